"""The store's questions and their answers: the one interface through which reports, the dashboard and the gate read.

Each question is an attribute of `StoreReader`, made from the function in telemetry.store.questions that answers it; its
parameters and its answer are those of the function, here and on the wire (telemetry.store.wire).
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar, overload

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import Objective
from telemetry.sidecar_client import TIMEOUT_S
from telemetry.store.answers import Filter
from telemetry.store.connection import EXACT_TURNS, StoreConnection
from telemetry.store.database import InUseError, first_line, owned_here, read_only
from telemetry.store.questions.burn_rates import burn_rates, objectives_page
from telemetry.store.questions.caches import model_servers
from telemetry.store.questions.cohorts import cohorts_page
from telemetry.store.questions.comparisons import run_turns
from telemetry.store.questions.conversations import call_counts
from telemetry.store.questions.explanation import explanation
from telemetry.store.questions.filters import ANY, dimension_values, metric_values, slowest, turns
from telemetry.store.questions.instrument import processes
from telemetry.store.questions.objectives import count_objectives
from telemetry.store.questions.pages import cache_page, instrument_page, page
from telemetry.store.questions.pairs import both_sides, stage_budget
from telemetry.store.questions.rollouts import rollout_page, rollout_turns
from telemetry.store.questions.run_figures import run_details, run_list
from telemetry.store.questions.runs import runs
from telemetry.store.questions.summaries import summary
from telemetry.store.questions.timelines import generator_points, timeline
from telemetry.store.questions.turns import spans_of_trace, turn_view, turns_page
from telemetry.store.questions.verdicts import run_verdict_evidence
from telemetry.store.recordings.expiry import remove_expired
from telemetry.store.rollout_rows import has_rollouts, kept_rollouts, rollout_history
from telemetry.store.wire import AskedQuestion, AskedSidecar, StoreQuestion, owner_of

# Who owns the store is looked at again after this.
_LOCKED_WITHIN_S: Final = 0.2
# How long a sidecar may hold a store before its first answer, and after its last one.
OWNED_WITHIN_S: Final = 20.0
_Answer = TypeVar("_Answer")
_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Third = TypeVar("_Third")


def state(connection: StoreConnection) -> int:
    """A number that changes with every commit of turns or verdicts."""
    commits = "SELECT commits FROM store_state"
    if has_rollouts(connection):
        commits += " UNION ALL SELECT count(*) FROM rollout_rows"
    return sum(int(number) for (number,) in connection.execute(commits).fetchall())


class StoreReader:
    """Reads a store's folder; thread-safe.

    While a sidecar owns the store, the questions are asked of it; otherwise the file is opened for each question and
    closed again, as nobody can write to it meanwhile. Every question, and all that are asked `together`, are one
    consistent read of what is committed at that moment: there is nothing to refresh. Raises StoreError from any
    question when the store cannot be read, BadQuestionError for one that cannot be asked.
    Percentiles are exact, but on pages: those of views of more than `exact_turns` are estimates there, marked as such.
    """

    state = StoreQuestion(state)
    runs = StoreQuestion(runs)
    summary = StoreQuestion(summary)
    page = StoreQuestion(page)
    cache_page = StoreQuestion(cache_page)
    instrument_page = StoreQuestion(instrument_page)
    timeline = StoreQuestion(timeline)
    generator_points = StoreQuestion(generator_points)
    slowest = StoreQuestion(slowest)
    turn = StoreQuestion(both_sides)
    turns = StoreQuestion(turns)
    dimension_values = StoreQuestion(dimension_values)
    spans = StoreQuestion(spans_of_trace)
    calls = StoreQuestion(call_counts)
    processes = StoreQuestion(processes)
    model_servers = StoreQuestion(model_servers)
    objective_counts = StoreQuestion(count_objectives)
    run_verdict = StoreQuestion(run_verdict_evidence)
    explanation = StoreQuestion(explanation)
    metric_values = StoreQuestion(metric_values)
    stage_budget = StoreQuestion(stage_budget)
    rollout_turns = StoreQuestion(rollout_turns)
    rollouts = StoreQuestion(kept_rollouts)
    rollout_history = StoreQuestion(rollout_history)
    burn_rates = StoreQuestion(burn_rates)
    objectives_page = StoreQuestion(objectives_page)
    cohorts_page = StoreQuestion(cohorts_page)
    rollout_page = StoreQuestion(rollout_page)
    run_turns = StoreQuestion(run_turns)
    run_list = StoreQuestion(run_list)
    run_details = StoreQuestion(run_details)
    turns_page = StoreQuestion(turns_page)
    turn_view = StoreQuestion(turn_view)

    def __init__(
        self,
        directory: Path | str,
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
        exact_turns: int = EXACT_TURNS,
    ) -> None:
        self.directory = Path(directory)
        self._wall_clock_ns = wall_clock_ns
        self._exact_turns = exact_turns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no resource is held between two questions."""

    def elsewhere(self) -> AskedSidecar | None:
        """The sidecar that answers instead of this process, None if this process reads the store itself."""
        return None if owned_here(self.directory) is not None else owner_of(self.directory)

    def count(self, f: Filter = ANY) -> Callable[[Objective], EligibleTurns]:
        """Good and eligible turns of one objective after another. The function raises NotObservable when the wire
        withholds the metric on all of them."""
        return lambda objective: self.objective_counts(f, (objective,)).count(objective)

    @overload
    def together(self, first: AskedQuestion[_First], second: AskedQuestion[_Second], /) -> tuple[_First, _Second]: ...
    @overload
    def together(
        self, first: AskedQuestion[_First], second: AskedQuestion[_Second], third: AskedQuestion[_Third], /
    ) -> tuple[_First, _Second, _Third]: ...
    @overload
    def together(self, *asked: AskedQuestion[Any]) -> tuple[Any, ...]: ...
    def together(self, *asked: AskedQuestion[Any]) -> tuple[Any, ...]:
        """The answers to questions, in their order, from one snapshot of the store; by a sidecar in one request."""
        until_s = time.monotonic() + OWNED_WITHIN_S
        while True:
            sidecar, failed = self.elsewhere(), None
            if sidecar is not None:
                try:
                    return sidecar.ask(asked)
                except StoreError as error:
                    if sidecar.owns is None:
                        raise
                    # It may have been killed, and anybody may listen there now: who holds the file owns the store.
                    failed = error
            try:
                return self._ask(lambda connection: tuple(question.answer(connection) for question in asked))
            except InUseError:
                if failed is not None and not isinstance(failed.__cause__, ConnectionRefusedError):
                    raise failed from failed.__cause__
                # A sidecar that starts holds the store before it answers, and one that stops after it has answered.
                if time.monotonic() >= until_s:
                    raise

    def _ask(self, asked: Callable[[StoreConnection], _Answer]) -> _Answer:
        """Answer from one consistent read. Raises StoreError if the store cannot be read, or the question needs more
        memory than allowed."""
        here = owned_here(self.directory)
        try:
            with ExitStack() as stack:
                now_unix_ns, database = self._wall_clock_ns(), here
                if database is None:
                    database = stack.enter_context(read_only(self.directory, within_s=_LOCKED_WITHIN_S))
                    # Without a running sidecar, a reader of the store removes kept calls that are due.
                    remove_expired(self.directory, now_unix_ns)
                cursor = stack.enter_context(database.snapshot())
                return asked(StoreConnection(cursor, self.directory, now_unix_ns, self._exact_turns))
        except msgspec.ValidationError as error:
            # The ingest takes no turn that this version could not read again.
            raise StoreError(
                f"{self.directory}: a turn cannot be read ({error}); update voiceprobe to the version that wrote it"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise StoreError(
                f"{self.directory}: too many turns for one answer, narrow it by time or a dimension "
                f"({first_line(error)})"
            ) from error
        except (duckdb.IOException, duckdb.InternalException, duckdb.FatalException) as error:
            raise StoreError(f"{self.directory}: the store cannot be read ({error})") from error


def is_address(store: str) -> bool:
    """Return whether `--store` names a sidecar instead of a folder."""
    return store.startswith(("http://", "https://"))


def open_store(store: str | Path, token: str | None) -> StoreReader:
    """The reader of a folder, or of the sidecar at an address with its token. Raises StoreError for a bad address."""
    return RemoteStore(str(store), token) if is_address(str(store)) else StoreReader(store)


class RemoteStore(StoreReader):
    """Asks the sidecar at `address` (`http://host:4318`) the questions that a StoreReader answers for a folder;
    thread-safe.

    Raises StoreError for a bad address, and from any question if the sidecar cannot be reached, refuses, or answers in
    a way that this version does not understand.
    """

    def __init__(self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._sidecar = AskedSidecar(address, token, timeout_s=timeout_s)
        self.directory = Path(self._sidecar.address)
        self.address = self._sidecar.address

    def elsewhere(self) -> AskedSidecar:
        """The sidecar at the address."""
        return self._sidecar
