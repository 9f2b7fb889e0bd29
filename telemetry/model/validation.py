"""Checks a file's content against a pydantic model; every fault has its path and says how to fix it. Pure.

A model derives from `CheckedTable`. The description of a field says how to fix it and follows "is 95; " or "is missing;
", as in `Field(description="a number above 0 and below 1 is expected")`. Rules about several keys are `rules`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from telemetry.model.file_faults import FaultAt, Path, nearest, shown

S = TypeVar("S", bound="CheckedTable")

_FAULT: Final = "fault"  # the type of an error that is a sentence of ours


def validated(model: type[S], value: object) -> tuple[S | None, list[FaultAt]]:
    """The model of a value, or None and every fault, in the order of the model's fields."""
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, [
            FaultAt(details["loc"], str(details.get("ctx", {}).get("sentence", details["msg"])))
            for details in error.errors(include_url=False)
        ]


def refused(sentence: str) -> PydanticCustomError:
    """The error with which a validator refuses a value with its own sentence, which `validated` passes on."""
    return PydanticCustomError(_FAULT, "refused", {"sentence": sentence})


NAME_HELP: Final = "a name has up to 63 letters, digits, '.', '_' and '-', with a letter or digit at each end"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_name(value: object) -> bool:
    """Return whether a value can name an objective, a rollout, a stage or a cohort."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _checked_name(value: object) -> str:
    if not is_name(value):
        raise refused(f"is {shown(value)}; {NAME_HELP}")
    return cast("str", value)


Name = Annotated[str, PlainValidator(_checked_name)]


def one_of(known: Collection[str], what: str) -> PlainValidator:
    """Create a validator of a text that is one of the known ones; `what` says what these are."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise refused(f"{shown(value)} is not {what}{nearest(value if isinstance(value, str) else '', known)}")
        return value

    return PlainValidator(check)


class CheckedTable(BaseModel):
    """A mapping with known keys; unknown ones are faults, and values have exactly the declared type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    kind_of_value: ClassVar[str] = "mapping"

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[Path, str]]:
        """Yield the paths and sentences of contradictions in a table; `faulty` keys have a fault already."""
        del table, faulty
        return ()

    @classmethod
    def known_keys(cls) -> dict[str, FieldInfo]:
        """The fields by their names in the file."""
        by_alias = cls.model_config.get("validate_by_alias", True)
        return {(by_alias and field.alias) or name: field for name, field in cls.model_fields.items()}

    @model_validator(mode="wrap")
    @classmethod
    def _find_all_faults(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            named = f"the key{'s' * (len(cls.known_keys()) > 1)} {', '.join(cls.known_keys())}"
            raise refused(f"is {shown(value)}; a {cls.kind_of_value} with {named} is expected")
        table = {_encodable(key): entry for key, entry in cast("Mapping[Any, Any]", value).items()}
        made: Self | None = None
        faults: list[tuple[Path, str]] = []
        try:
            made = handler(table)
        except ValidationError as error:
            faults = list(cls._sentences(error))
        faults += cls.rules(table, {str(path[0]) for path, _ in faults if path})
        if made is None or faults:
            raise ValidationError.from_exception_data(
                cls.__name__, [InitErrorDetails(type=refused(text), loc=path, input=None) for path, text in faults]
            )
        return made

    @classmethod
    def _sentences(cls, error: ValidationError) -> Iterator[tuple[Path, str]]:
        known = cls.known_keys()
        for details in error.errors(include_url=False):
            path, kind = details["loc"], details["type"]
            if kind == _FAULT:
                yield path, details.get("ctx", {})["sentence"]
            elif kind == "extra_forbidden":
                yield path, f"is not a known key{nearest(str(path[0]), tuple(known))}"
            else:
                field = known.get(str(path[0]))
                mend = _mend(field) or f"{details['msg'][:1].lower()}{details['msg'][1:]}"
                yield path, f"is {'missing' if kind == 'missing' else shown(details['input'])}; {mend}"


def _mend(field: FieldInfo | None) -> str:
    if field is None or field.description is not None:
        return "" if field is None else field.description or ""
    if isinstance(field.annotation, type) and issubclass(field.annotation, CheckedTable):
        return f"it holds {', '.join(field.annotation.known_keys())}"
    return ""


def _encodable(key: object) -> str:
    """A key as pydantic takes it: text without lone surrogates."""
    text = key if isinstance(key, str) else shown(key)
    return text if text.isprintable() else "".join("?" if "\ud800" <= char <= "\udfff" else char for char in text)
