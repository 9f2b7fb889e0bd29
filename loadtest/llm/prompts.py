"""Prompts with answers that a program can check: the default set, and files in the same format. Pure but for the file.

A file is TOML (a `[[prompt]]` table each) or JSONL (an object a line), each with `id`, `user`, and optionally `system`
and `expect`, one of:

    {intent = "lights_on", among = ["lights_on", "lights_off"]}   names this intent, and none of the others
    {slots = {room = "kitchen", minutes = 5}}                     the JSON object in the answer has these values
    {number = 42, tolerance = 0.5}                                the last number in the answer
    {schema = {type = "object", ...}}                             the JSON value in the answer is valid by a JSON schema
    {contains = ["Paris"]}                                        every one of these texts, in any case
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import AfterValidator, Field

from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import parse_toml, path_text, shown
from telemetry.model.validation import CheckedTable, refused, validated

KINDS: Final = ("intent", "slots", "number", "schema", "contains")
_NUMBER: Final = re.compile(r"(?<![\w.])[-−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.])[-−]?\d+(?:\.\d+)?(?!\w)")
_MOST_FAULTS: Final = 20
_MOST_OPENINGS: Final = 20  # of which one may begin the JSON of an answer
_Table = TypeVar("_Table", bound=CheckedTable)
_OF: Final = {"among": "intent", "tolerance": "number"}  # of which kind these are


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(value).check_schema(value)
    except SchemaError as error:
        raise refused(f"is no JSON schema: {error.message[:80]}") from None
    return value


_Text = Annotated[str, Field(pattern=r"\S", description="a text is expected")]
_Texts = Annotated[list[_Text], Field(min_length=1, description="a list of texts is expected")]


class Expectation(CheckedTable):
    """The content of a right answer, of exactly one kind; `among` are the other intents."""

    kind_of_value = "table"

    intent: _Text | None = None
    among: _Texts | None = None
    slots: Annotated[dict[str, Any], Field(min_length=1)] | None = Field(
        default=None, description="give names and values"
    )
    number: float | None = Field(default=None, description="a finite number is expected")
    tolerance: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="a number, 0 or more, is expected"
    )
    schema_: Annotated[dict[str, Any], AfterValidator(_schema)] | None = Field(
        default=None, alias="schema", description="a JSON schema is expected"
    )
    contains: _Texts | None = None

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """One kind, with what belongs to it."""
        del faulty
        kinds = [kind for kind in KINDS if kind in table]
        if len(kinds) != 1:
            yield (), f"is {shown(table)}; give one of {', '.join(KINDS)}"
        yield from (((name,), f"goes with {kind}") for name, kind in _OF.items() if name in table and kinds != [kind])

    @property
    def kind(self) -> str:
        """Its kind."""
        return next(iter(self.model_fields_set - _OF.keys())).rstrip("_")

    def is_met(self, answer: str) -> bool:
        """Return whether an answer is right."""
        if self.intent is not None:
            others = [other for other in self.among or () if other != self.intent]
            return _names(answer, self.intent) and not any(_names(answer, other) for other in others)
        if self.number is not None:
            numbers = _NUMBER.findall(answer)
            return bool(numbers) and abs(_number(numbers[-1]) - self.number) <= (self.tolerance or 0)
        if self.contains is not None:
            return all(text.casefold() in answer.casefold() for text in self.contains)
        parsed = json_in(answer)
        if self.schema_ is not None:
            return is_valid(parsed, self.schema_)
        wanted = self.slots or {}
        return isinstance(parsed, dict) and all(
            _is_same(value, cast("dict[str, Any]", parsed).get(name)) for name, value in wanted.items()
        )


class Prompt(CheckedTable):
    """A question, and what a right answer to it holds; None where nothing can be checked."""

    kind_of_value = "table"

    name: _Text = Field(alias="id")
    user: _Text
    system: _Text | None = None
    expect: Expectation | None = None


class _Prompts(CheckedTable):
    kind_of_value = "table"

    prompt: Annotated[list[Prompt], Field(min_length=1, description="a [[prompt]] with id and user is expected")]

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """Each prompt has an id of its own."""
        entries: Any = table.get("prompt")
        known: list[Any] = []
        for place, entry in enumerate(cast("list[Any]", entries) if isinstance(entries, list) else ()):
            name = cast("dict[str, Any]", entry).get("id") if isinstance(entry, dict) else None
            if isinstance(name, str) and name in known:
                yield ("prompt", place), f"has the id of an earlier one, {shown(name)}; give each its own"
            known.append(name)


class NoJson:
    """The value of a text that holds no JSON."""


def json_in(answer: str) -> Any:
    """The JSON value of an answer: the whole of it, without the fence of Markdown, or the first object or list in it;
    `NoJson` where there is none."""
    text = re.sub(r"\A```\w*\n|\n?```\Z", "", answer.strip())
    decoder = json.JSONDecoder()
    openings = [0, *(match.start() for match in islice(re.finditer(r"[{\[]", text), _MOST_OPENINGS))]
    for opening in openings if text else ():
        try:
            value, end = decoder.raw_decode(text, opening)
        except ValueError:
            continue
        except RecursionError:
            break
        if opening or end == len(text):
            return value
    return NoJson


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON value is valid by a JSON schema; `NoJson` is not."""
    from jsonschema.validators import validator_for

    return value is not NoJson and bool(validator_for(schema)(schema).is_valid(value))


def load_prompts(file: Path | None) -> list[Prompt]:
    """The prompts of a file, or the default ones. Raises ConfigError with every fault."""
    if file is None:
        text = (files("loadtest.llm") / "data" / "prompts.toml").read_text(encoding="utf-8")
        return _Prompts.model_validate(parse_toml(text, "default prompts").table).prompt
    if file.suffix != ".jsonl":
        return table_of_file(_Prompts, file).prompt
    entries: list[Any] = []
    lines: list[int] = []
    faults: list[str] = []
    for line, text in enumerate(_text_of(file).splitlines(), 1):
        try:
            entries += [json.loads(text)] if text.strip() else []
            lines += [line] if text.strip() else []
        except (ValueError, RecursionError) as error:
            faults.append(f"line {line} is no JSON: {error}")
    made, invalid = validated(_Prompts, {"prompt": entries})
    for fault in invalid:
        _, *inside = fault.path
        line = f"line {lines[int(inside[0])]} " if inside else ""
        faults.append(f"{line}{path_text(tuple(inside[1:]))} {fault.sentence}".replace("  ", " "))
    if made is None or faults:
        raise ConfigError(str(file), _bounded(faults))
    return made.prompt


def table_of_file(model: type[_Table], file: Path) -> _Table:
    """The content of a TOML file. Raises ConfigError with every fault."""
    toml = parse_toml(_text_of(file), str(file))
    table, faults = validated(model, toml.table)
    if table is None:
        raise ConfigError(
            str(file), _bounded([sentence.removeprefix(f"{file}: ") for sentence in toml.sentences(faults)])
        )
    return table


def _bounded(faults: list[str]) -> list[str]:
    more = [f"and {len(faults) - _MOST_FAULTS} more faults"] if faults[_MOST_FAULTS:] else []
    return faults[:_MOST_FAULTS] + more


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(str(file), ["is no UTF-8 text; save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None


def _names(answer: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", answer.casefold()) is not None


def _is_same(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(given, str) and wanted.strip().casefold() == given.strip().casefold()
    if _is_number(wanted) and isinstance(given, str) and _NUMBER.fullmatch(given.strip()):
        given = _number(given.strip())  # "5" for 5: the assistant's program reads both
    is_like = type(wanted) is type(given) or (_is_number(wanted) and _is_number(given))
    return is_like and wanted == given


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def checkable(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Those whose answers can be checked."""
    return [prompt for prompt in prompts if prompt.expect is not None]
