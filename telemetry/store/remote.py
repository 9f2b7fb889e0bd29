"""A store on another machine: the same questions, asked of its sidecar over HTTP with its token."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import msgspec

from telemetry.sidecar_client import OK, TIMEOUT_S, SidecarClient
from telemetry.store.questions import QUESTIONS
from telemetry.store.reader import StoreReader

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")

QUERY_PATH: Final = "/v1/query/"
_BAD_QUESTION: Final = 400
# What sidecars answer to a question, and to a part of one, that a later version has added.
_NOT_KNOWN_YET: Final = ("there is no question ", "contains unknown field ", " to ask by")
_HEADERS: Final = {"Accept": "application/vnd.msgpack"}


def is_address(store: str) -> bool:
    """Whether `--store` names a sidecar instead of a folder."""
    return store.startswith(("http://", "https://"))


def open_store(store: str | Path, token: str | None) -> "StoreReader | RemoteStore":
    """The reader of a folder, or of the sidecar at an address with its token. Raises StoreError for a bad address."""
    return RemoteStore(str(store), token) if is_address(str(store)) else StoreReader(store)


def _asked(
    question: Callable[Concatenate[StoreReader, _Parameters], _Answer],
) -> Callable[Concatenate["RemoteStore", _Parameters], _Answer]:
    """The method with the same parameters and answer that asks the question of a sidecar."""
    signature = inspect.signature(question)

    @functools.wraps(question)
    def asked(store: "RemoteStore", /, *values: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
        given = signature.bind(store, *values, **named)
        given.apply_defaults()
        _, *parameters = given.arguments.items()
        return store.ask(question.__name__, dict(parameters))

    return asked


class RemoteStore:
    """Asks the sidecar at `address` (`http://host:4318`) what a StoreReader answers of a folder; thread-safe.

    Raises StoreError for a bad address, and from any question when the sidecar cannot be reached, refuses, or answers
    what this version does not understand.
    """

    def __init__(self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._sidecar = SidecarClient(address, token, timeout_s=timeout_s)
        self.directory = self._sidecar.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held between two questions."""

    state = _asked(StoreReader.state)
    runs = _asked(StoreReader.runs)
    summary = _asked(StoreReader.summary)
    page = _asked(StoreReader.page)
    cache_page = _asked(StoreReader.cache_page)
    instrument_page = _asked(StoreReader.instrument_page)
    timeline = _asked(StoreReader.timeline)
    generator_points = _asked(StoreReader.generator_points)
    slowest = _asked(StoreReader.slowest)
    turn = _asked(StoreReader.turn)
    turns = _asked(StoreReader.turns)
    dimension_values = _asked(StoreReader.dimension_values)
    spans = _asked(StoreReader.spans)
    calls = _asked(StoreReader.calls)
    processes = _asked(StoreReader.processes)
    model_servers = _asked(StoreReader.model_servers)
    objective_counts = _asked(StoreReader.objective_counts)
    explanation = _asked(StoreReader.explanation)
    run_verdict = _asked(StoreReader.run_verdict)
    stage_budget = _asked(StoreReader.stage_budget)
    rollout_turns = _asked(StoreReader.rollout_turns)
    turns_page = _asked(StoreReader.turns_page)
    turn_view = _asked(StoreReader.turn_view)
    burn_rates = _asked(StoreReader.burn_rates)
    objectives_page = _asked(StoreReader.objectives_page)
    cohorts_page = _asked(StoreReader.cohorts_page)
    rollout_page = _asked(StoreReader.rollout_page)
    rollouts = _asked(StoreReader.rollouts)
    run_turns = _asked(StoreReader.run_turns)
    run_details = _asked(StoreReader.run_details)
    run_figures = _asked(StoreReader.run_figures)

    def ask(self, name: str, parameters: Mapping[str, object]) -> Any:
        """Ask a question by its name. Raises StoreError."""
        answer = self._sidecar.ask("POST", QUERY_PATH + name, msgspec.json.encode(parameters), _HEADERS)
        if answer.status == _BAD_QUESTION and any(part in answer.words for part in _NOT_KNOWN_YET):
            raise self._sidecar.of_older_version(name)
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        try:
            return msgspec.msgpack.decode(answer.content, type=QUESTIONS[name].answer)
        except msgspec.DecodeError as error:
            raise self._sidecar.of_another_version("its answer", error) from error
