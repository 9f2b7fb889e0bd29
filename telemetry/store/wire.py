"""The store's questions as they travel: a question's parameters and answer are those of the reader's method.

`question` marks a method of `StoreReader`. From its signature come the parameters in JSON, from its annotation the
answer in MessagePack or JSON, and where the store belongs to a sidecar, the call is one to that sidecar.
"""

import functools
import inspect
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import msgspec

from telemetry.model.errors import StoreError
from telemetry.model.metrics import HEADLINE, METRIC_NAMES
from telemetry.sidecar_client import OK, TIMEOUT_S, SidecarClient
from telemetry.store.database import OWNER_NAME, InUseError

QUERY_PATH: Final = "/v1/query/"
# How long a sidecar may hold a store before its first answer, and after its last one.
OWNED_WITHIN_S: Final = 20.0
_BAD_QUESTION: Final = 400
# What sidecars answer to a question, and to a part of one, that a later version has added.
_NOT_KNOWN_YET: Final = ("there is no question ", "contains unknown field ", " to ask by")
_HEADERS: Final = {"Accept": "application/vnd.msgpack"}

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")
_Reader = TypeVar("_Reader", bound="_Asks")


class BadQuestionError(ValueError):
    """Raised for a question that there is none of, or parameters that it does not take; the text says which."""


class Owner(msgspec.Struct):
    """Who owns a store, in `owner.json` beside it: where it answers questions, and the token that it asks for."""

    pid: int
    url: str
    token: str


class AskedSidecar:
    """The sidecar at an address, asked what a reader answers of a folder. `owns` is the store whose `owner.json` names
    it, None where somebody else does. Raises StoreError for a bad address."""

    def __init__(
        self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S, owns: Path | None = None
    ) -> None:
        self._sidecar = SidecarClient(address, token, timeout_s=timeout_s)
        self.owns = owns
        self.address = self._sidecar.address

    def ask(self, name: str, parameters: Mapping[str, object]) -> Any:
        """Ask a question by its name. Raises StoreError when the sidecar cannot be reached, refuses, or answers what
        this version does not understand."""
        answer = self._sidecar.ask("POST", QUERY_PATH + name, msgspec.json.encode(parameters), _HEADERS)
        if answer.status == _BAD_QUESTION and any(part in answer.words for part in _NOT_KNOWN_YET):
            raise self._sidecar.of_older_version(name)
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        try:
            return msgspec.msgpack.decode(answer.content, type=question_named(name).answer)
        except msgspec.DecodeError as error:
            raise self._sidecar.of_another_version("its answer", error) from error


class _Asks(Protocol):
    def elsewhere(self) -> AskedSidecar | None: ...


@dataclass(frozen=True, slots=True)
class StoreQuestion:
    """The parameters of a question as a struct, and the type of its answer."""

    parameters: type[msgspec.Struct]
    answer: Any


_methods: dict[str, Callable[..., object]] = {}


def question(
    method: Callable[Concatenate[_Reader, _Parameters], _Answer],
) -> Callable[Concatenate[_Reader, _Parameters], _Answer]:
    """Make a method of a reader one of the store's questions."""
    _methods[method.__name__] = method
    signature = inspect.signature(method)

    @functools.wraps(method)
    def asked(reader: _Reader, /, *values: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
        until_s = time.monotonic() + OWNED_WITHIN_S
        while True:
            sidecar = reader.elsewhere()
            if sidecar is not None:
                given = signature.bind(reader, *values, **named)
                given.apply_defaults()
                _, *parameters = given.arguments.items()
                try:
                    return sidecar.ask(method.__name__, dict(parameters))
                except StoreError as error:
                    if sidecar.owns is None or not isinstance(error.__cause__, ConnectionRefusedError):
                        raise
                    # It was killed, and the file says where it was: the store can be opened.
            try:
                return method(reader, *values, **named)
            except InUseError:
                # A sidecar that starts holds the store before it answers, and one that stops after it has answered.
                if time.monotonic() >= until_s:
                    raise

    return asked


def questions() -> tuple[str, ...]:
    """The names of all questions."""
    return tuple(_methods)


@functools.cache
def question_named(name: str) -> StoreQuestion:
    """A question by its name. Raises BadQuestionError."""
    if name not in _methods:
        raise BadQuestionError(f"there is no question {name!r:.60}; known are {', '.join(_methods)}")
    method = _methods[name]
    hints = typing.get_type_hints(method, include_extras=True)
    _, *given = inspect.signature(method).parameters.values()
    fields: list[Any] = [
        (each.name, hints[each.name])
        if each.default is inspect.Parameter.empty
        else (each.name, hints[each.name], each.default)
        for each in given
    ]
    parameters = msgspec.defstruct(f"{name}_parameters", fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
    return StoreQuestion(parameters, hints["return"])


def answer(reader: Any, name: str, parameters: bytes) -> object:
    """Answer a question with its parameters in JSON. Raises BadQuestionError, and StoreError as the reader does."""
    asked_for = question_named(name)
    try:
        asked: Any = msgspec.json.decode(parameters or b"{}", type=asked_for.parameters)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadQuestionError(f"{name}: {error}") from error
    # A filter by a name that there is none of would otherwise be one about everything.
    unknown = _unknown(msgspec.json.decode(parameters or b"{}"), msgspec.to_builtins(asked))
    if unknown is not None:
        raise BadQuestionError(f"{name}: there is no {unknown!r:.60} to ask by")
    for part in (asked, getattr(asked, "asked", None)):
        metric = getattr(part, "metric", HEADLINE)
        if metric not in METRIC_NAMES:
            raise BadQuestionError(f"{name}: there is no metric {metric!r:.60}; known are {', '.join(METRIC_NAMES)}")
    return getattr(reader, name)(**{field: getattr(asked, field) for field in asked.__struct_fields__})


def owner_of(directory: Path) -> AskedSidecar | None:
    """The sidecar that says of itself that it owns a store; None where no file does."""
    try:
        owner = msgspec.json.decode((directory / OWNER_NAME).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return AskedSidecar(owner.url, owner.token, owns=directory)


def _unknown(sent: Any, understood: Any) -> str | None:
    """A name that was sent and not understood, at any depth."""
    if isinstance(sent, list) and isinstance(understood, list | tuple):
        parts: list[tuple[Any, Any]] = list(zip(sent, understood, strict=False))
    elif isinstance(sent, dict) and isinstance(understood, dict):
        names: list[str] = [name for name in sent if name not in understood]
        if names:
            return names[0]
        parts = [(sent[name], understood[name]) for name in sent]
    else:
        return None
    return next((found for part in parts if (found := _unknown(*part)) is not None), None)
