"""The store's questions, in this process and on the wire.

A `StoreQuestion` is made from the function that answers it: as an attribute of `StoreReader`, or as the decorator of
the function. The parameters in JSON derive from that function's signature, the answer in MessagePack or JSON from its
annotation. The questions of a view are sent together: answered from one snapshot, by a sidecar in one request.
"""

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

import msgspec

from telemetry.sidecar_client import OK, TIMEOUT_S, SidecarAnswer, SidecarClient
from telemetry.store.connection import BadQuestionError, StoreConnection
from telemetry.store.database import OWNER_NAME
from telemetry.store.rollout_rows import RolloutRow

# One question, with its name behind; several without.
QUERY_PATH: Final = "/v1/query"
# Where processes of this machine have a row of a rollout kept, by the token of `owner.json` alone.
KEEP_PATH: Final = "/v1/rollout-rows"
# So many may be asked together: a page asks few.
MOST_TOGETHER: Final = 16
_BAD_QUESTION: Final = 400
# What sidecars answer to a question, and to a part of one, that a later version has added.
_NOT_KNOWN_YET: Final = ("there is no question ", "contains unknown field ", " to ask by")
_HEADERS: Final = {"Accept": "application/vnd.msgpack"}

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class AskedQuestion(Generic[_Answer]):
    """A question with its parameters, and the function that answers it from a snapshot."""

    name: str
    parameters: Mapping[str, object]
    answer: Callable[[StoreConnection], _Answer]


class _Asks(Protocol):
    def together(self, *asked: AskedQuestion[Any]) -> tuple[Any, ...]: ...


class StoreQuestion(Generic[_Parameters, _Answer]):
    """One of the store's questions: `question(reader, ...)` sends it alone, as does `reader.page(...)` if it is the
    attribute `page` of the reader; `question.of(...)` is for sending it together with others."""

    def __init__(self, answer: Callable[Concatenate[StoreConnection, _Parameters], _Answer]) -> None:
        self._answer = answer
        self._signature = inspect.signature(answer)
        self.name = answer.__name__
        self.__doc__ = answer.__doc__
        _questions[self.name] = self

    def __set_name__(self, _owner: type, name: str) -> None:
        _questions[name] = _questions.pop(self.name)
        self.name = name

    @overload
    def __get__(self, reader: None, owner: type) -> Self: ...
    @overload
    def __get__(self, reader: _Asks, owner: type) -> Callable[_Parameters, _Answer]: ...
    def __get__(self, reader: _Asks | None, owner: type) -> Self | Callable[_Parameters, _Answer]:
        return self if reader is None else functools.partial(self, reader)

    def __call__(self, reader: _Asks, /, *values: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
        (answered,) = reader.together(self.of(*values, **named))
        return answered

    def of(self, *values: _Parameters.args, **named: _Parameters.kwargs) -> AskedQuestion[_Answer]:
        """The question with these parameters."""
        given = self._signature.bind(None, *values, **named)
        given.apply_defaults()
        _, *parameters = given.arguments.items()
        return AskedQuestion(self.name, dict(parameters), lambda connection: self._answer(connection, *values, **named))

    @functools.cached_property
    def parameters(self) -> type[msgspec.Struct]:
        """The parameters as a struct."""
        hints = typing.get_type_hints(self._answer, include_extras=True)
        _, *given = self._signature.parameters.values()
        fields: list[Any] = [
            (parameter.name, hints[parameter.name])
            if parameter.default is inspect.Parameter.empty
            else (parameter.name, hints[parameter.name], parameter.default)
            for parameter in given
        ]
        name = f"{self.name}_parameters"
        return msgspec.defstruct(name, fields, forbid_unknown_fields=True, frozen=True, kw_only=True)

    @functools.cached_property
    def type_of_answer(self) -> Any:
        """The type of its answer."""
        return typing.get_type_hints(self._answer, include_extras=True)["return"]

    def from_json(self, parameters: bytes) -> AskedQuestion[_Answer]:
        """The question with parameters in JSON. Raises BadQuestionError."""
        try:
            asked: Any = msgspec.json.decode(parameters or b"{}", type=self.parameters)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadQuestionError(f"{self.name}: {error}") from error
        # A filter by a name that there is none of would otherwise be one about everything.
        unknown = _unknown(msgspec.json.decode(parameters or b"{}"), msgspec.to_builtins(asked))
        if unknown is not None:
            raise BadQuestionError(f"{self.name}: there is no {unknown!r:.60} to ask by")
        ask: Callable[..., AskedQuestion[_Answer]] = self.of
        return ask(**{field: getattr(asked, field) for field in asked.__struct_fields__})


_questions: dict[str, StoreQuestion[..., Any]] = {}


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    """A question among others in one request."""

    name: str
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


_Together = typing.Annotated[list[_Named], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)]


def questions() -> tuple[str, ...]:
    """The names of all questions."""
    _find_all()
    return tuple(_questions)


@functools.cache
def _find_all() -> None:
    """Import every module with questions: a page that was not opened in this process may define one."""
    package = importlib.import_module("telemetry.store.questions")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def question_named(name: str) -> StoreQuestion[..., Any]:
    """A question by its name. Raises BadQuestionError."""
    if name not in _questions and name not in questions():
        raise BadQuestionError(f"there is no question {name!r:.60}; known are {', '.join(_questions)}")
    return _questions[name]


def asked_together(body: bytes) -> list[AskedQuestion[Any]]:
    """Parse a request with several questions: a list in JSON, each by `name` with its `parameters`. Raises
    BadQuestionError."""
    try:
        named = msgspec.json.decode(body, type=_Together)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadQuestionError(f"give a list of questions, each with its name and its parameters: {error}") from error
    return [question_named(question.name).from_json(bytes(question.parameters)) for question in named]


def answer(reader: _Asks, name: str, parameters: bytes) -> object:
    """Answer a question with its parameters in JSON. Raises BadQuestionError, and StoreError as the reader does."""
    (answered,) = reader.together(question_named(name).from_json(parameters))
    return answered


class Owner(msgspec.Struct):
    """The owner of a store, in `owner.json` next to it: the address that answers questions, and the token that it
    requires."""

    pid: int
    url: str
    token: str


class AskedSidecar:
    """The sidecar at an address, which answers the questions of a reader. `owns` is the store whose `owner.json` names
    it, None for any other. Raises StoreError for a bad address."""

    def __init__(
        self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S, owns: Path | None = None
    ) -> None:
        self._sidecar = SidecarClient(address, token, timeout_s=timeout_s)
        self.owns = owns
        self.address = self._sidecar.address

    def ask(self, asked: Sequence[AskedQuestion[Any]]) -> tuple[Any, ...]:
        """The answers to questions, in one request, from one snapshot. Raises StoreError if the sidecar cannot be
        reached, refuses, or answers in a way that this version does not understand."""
        types: tuple[Any, ...] = tuple(question_named(question.name).type_of_answer for question in asked)
        if len(asked) == 1:
            answer = self._post(f"{QUERY_PATH}/{asked[0].name}", asked[0].parameters)
        else:
            answer = self._post(
                QUERY_PATH, [{"name": question.name, "parameters": question.parameters} for question in asked]
            )
        if answer.status == _BAD_QUESTION and any(part in answer.words for part in _NOT_KNOWN_YET):
            raise self._sidecar.older_version_error(", ".join(question.name for question in asked))
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        try:
            if len(asked) == 1:
                return (msgspec.msgpack.decode(answer.content, type=types[0]),)
            return msgspec.msgpack.decode(answer.content, type=tuple[types])
        except msgspec.DecodeError as error:
            raise self._sidecar.another_version_error("its answer", error) from error

    def keep(self, row: RolloutRow) -> None:
        """Commit a row of a rollout. Raises StoreError if it could not be committed."""
        answer = self._post(KEEP_PATH, row)
        if answer.status != OK:
            raise self._sidecar.refused(answer)

    def _post(self, path: str, body: object) -> SidecarAnswer:
        return self._sidecar.ask("POST", path, msgspec.json.encode(body), _HEADERS)


def owner_of(directory: Path) -> AskedSidecar | None:
    """The sidecar that owns a store according to its `owner.json`; None without such a file."""
    try:
        owner = msgspec.json.decode((directory / OWNER_NAME).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return AskedSidecar(owner.url, owner.token, owns=directory)


def _unknown(sent: Any, understood: Any) -> str | None:
    """Return a name, at any depth, that was sent and not understood."""
    if isinstance(sent, list) and isinstance(understood, list | tuple):
        parts: list[tuple[Any, Any]] = list(zip(sent, understood, strict=False))
    elif isinstance(sent, dict) and isinstance(understood, dict):
        names: list[str] = [name for name in sent if name not in understood]
        if names:
            return names[0]
        parts = [(sent[name], understood[name]) for name in sent]
    else:
        return None
    return next((name for part in parts if (name := _unknown(*part)) is not None), None)
