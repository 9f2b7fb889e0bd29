"""The store's questions as they travel: the parameters of each, the type of its answer, and how a reader answers it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from telemetry.comparison.runs import ComparedRun
from telemetry.model import semconv
from telemetry.model.metrics import HEADLINE, METRIC_NAMES
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective
from telemetry.store.answers import (
    CallCounts,
    Filter,
    GeneratorPoint,
    ProcessInfo,
    RunRecord,
    StageStats,
    Summary,
    TimelinePoint,
)
from telemetry.store.burn_rates import BurnRateAnswer
from telemetry.store.cohort_pages import CohortsAnswer, CohortsQuestion
from telemetry.store.explanation import Explanation, ExplanationQuestion
from telemetry.store.model_servers import ModelServer
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.objectives_pages import ObjectivesPage
from telemetry.store.pages import PageAnswer, PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.rollout_log import MOST_ENTRIES, RolloutRecord
from telemetry.store.rollout_pages import RolloutPage
from telemetry.store.rollout_turns import RolloutQuestion, RolloutTurns
from telemetry.store.run_details import RunDetails
from telemetry.store.run_figures import RunFigures
from telemetry.store.run_turns import RunTurnsQuestion
from telemetry.store.run_verdict import RunVerdictEvidence
from telemetry.store.system_pages import CachePage, InstrumentPage
from telemetry.store.turn_pages import MOST_PAGED, ORDERS, PAGE_SIZES, TurnsAnswer, TurnsQuestion
from telemetry.store.turn_views import TurnView
from telemetry.store.views import ViewQuestion

# An answer over the network stays of a size that both sides can hold.
MOST_TURNS: Final = 10_000
MOST_BUCKETS: Final = 10_000
MOST_OBJECTIVES: Final = 200

_Turns = Annotated[int, msgspec.Meta(ge=0, le=MOST_TURNS)]
_Buckets = Annotated[int, msgspec.Meta(ge=1, le=MOST_BUCKETS)]
_Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Parameters(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of a question; one that has none takes none."""


class _OfFilter(_Parameters, frozen=True):
    f: Filter = Filter()


class _OfRun(_Parameters, frozen=True):
    run_id: str


class _OfTrace(_Parameters, frozen=True):
    trace_id: str


class _OfTurn(_Parameters, frozen=True):
    trace_id: str
    turn_index: _Natural


class _Page(_Parameters, frozen=True):
    asked: PageQuestion = PageQuestion()


class _ViewParameters(_Parameters, frozen=True):
    asked: ViewQuestion = ViewQuestion()


class _CohortsParameters(_Parameters, frozen=True):
    asked: CohortsQuestion = CohortsQuestion()


class _Timeline(_Parameters, frozen=True):
    f: Filter = Filter()
    metric: str = "voice_to_voice"
    buckets: _Buckets = 60


class _Slowest(_Parameters, frozen=True):
    f: Filter = Filter()
    metric: str = "voice_to_voice"
    limit: _Turns = 10


class _TurnsOfFilter(_Parameters, frozen=True):
    f: Filter = Filter()
    limit: _Turns = 1000
    offset: _Natural = 0
    source: semconv.Source | None = None
    outcome: semconv.Outcome | None = None


class _Between(_Parameters, frozen=True):
    since_unix_ns: _Natural
    until_unix_ns: _Natural


class _Objectives(_Parameters, frozen=True):
    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(max_length=MOST_OBJECTIVES)]
    f: Filter = Filter()


class _TurnsPage(_Parameters, frozen=True):
    asked: TurnsQuestion = TurnsQuestion()


class _TurnView(_Parameters, frozen=True):
    trace_id: str
    turn_index: _Natural
    whole_call: bool = False


class _Explanation(_Parameters, frozen=True):
    asked: ExplanationQuestion


class _Rollout(_Parameters, frozen=True):
    asked: RolloutQuestion


class _RolloutPage(_Parameters, frozen=True):
    name: str | None = None
    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(max_length=MOST_OBJECTIVES)] = ()


class _Rollouts(_Parameters, frozen=True):
    most_entries: Annotated[int, msgspec.Meta(ge=1, le=MOST_ENTRIES)] = MOST_ENTRIES


class _FiguresOfRun(_Parameters, frozen=True):
    run_id: str
    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(max_length=MOST_OBJECTIVES)]
    now_unix_ns: _Natural | None = None


class _RunTurns(_Parameters, frozen=True):
    asked: RunTurnsQuestion


@dataclass(frozen=True, slots=True)
class StoreQuestion:
    """One question of the store: its parameters, its answer, and how a reader answers it."""

    parameters: type[msgspec.Struct]
    answer: Any
    ask: Callable[[StoreReader, Any], object]


QUESTIONS: Final[dict[str, StoreQuestion]] = {
    "state": StoreQuestion(_Parameters, int, lambda reader, _: reader.state()),
    "runs": StoreQuestion(_Parameters, list[RunRecord], lambda reader, _: reader.runs()),
    "summary": StoreQuestion(_OfFilter, Summary, lambda reader, of: reader.summary(of.f)),
    "page": StoreQuestion(_Page, PageAnswer, lambda reader, of: reader.page(_bounded(of.asked))),
    "cache_page": StoreQuestion(
        _ViewParameters, CachePage, lambda reader, of: reader.cache_page(_bounded_view(of.asked))
    ),
    "instrument_page": StoreQuestion(
        _ViewParameters, InstrumentPage, lambda reader, of: reader.instrument_page(_bounded_view(of.asked))
    ),
    "timeline": StoreQuestion(
        _Timeline, list[TimelinePoint], lambda reader, of: reader.timeline(of.f, of.metric, of.buckets)
    ),
    "generator_points": StoreQuestion(
        _OfFilter, list[GeneratorPoint], lambda reader, of: reader.generator_points(of.f)
    ),
    "slowest": StoreQuestion(_Slowest, list[Turn], lambda reader, of: reader.slowest(of.f, of.metric, of.limit)),
    "turn": StoreQuestion(
        _OfTurn, tuple[Turn | None, Turn | None], lambda reader, of: reader.turn(of.trace_id, of.turn_index)
    ),
    "turns": StoreQuestion(
        _TurnsOfFilter,
        list[Turn],
        lambda reader, of: reader.turns(of.f, of.limit, of.offset, source=of.source, outcome=of.outcome),
    ),
    "dimension_values": StoreQuestion(
        _OfFilter, dict[str, tuple[str, ...]], lambda reader, of: reader.dimension_values(of.f)
    ),
    "spans": StoreQuestion(_OfTrace, list[SpanRow], lambda reader, of: reader.spans(of.trace_id)),
    "calls": StoreQuestion(_OfFilter, CallCounts, lambda reader, of: reader.calls(of.f)),
    "processes": StoreQuestion(_OfRun, list[ProcessInfo], lambda reader, of: reader.processes(of.run_id)),
    "model_servers": StoreQuestion(
        _Between,
        tuple[ModelServer, ...],
        lambda reader, of: reader.model_servers(of.since_unix_ns, of.until_unix_ns),
    ),
    "objective_counts": StoreQuestion(
        _Objectives, ObjectiveCounts, lambda reader, of: reader.objective_counts(of.f, of.objectives)
    ),
    "explanation": StoreQuestion(_Explanation, Explanation, lambda reader, of: reader.explanation(of.asked)),
    "run_verdict": StoreQuestion(
        _Objectives, RunVerdictEvidence, lambda reader, of: reader.run_verdict(of.f, of.objectives)
    ),
    "stage_budget": StoreQuestion(_OfFilter, dict[str, StageStats], lambda reader, of: reader.stage_budget(of.f)),
    "turns_page": StoreQuestion(_TurnsPage, TurnsAnswer, lambda reader, of: reader.turns_page(_paged(of.asked))),
    "turn_view": StoreQuestion(
        _TurnView,
        TurnView,
        lambda reader, of: reader.turn_view(of.trace_id, of.turn_index, whole_call=of.whole_call),
    ),
    "rollout_turns": StoreQuestion(_Rollout, RolloutTurns, lambda reader, of: reader.rollout_turns(of.asked)),
    "burn_rates": StoreQuestion(_Objectives, BurnRateAnswer, lambda reader, of: reader.burn_rates(of.objectives, of.f)),
    "objectives_page": StoreQuestion(
        _Objectives, ObjectivesPage, lambda reader, of: reader.objectives_page(of.objectives, of.f)
    ),
    "cohorts_page": StoreQuestion(
        _CohortsParameters, CohortsAnswer, lambda reader, of: reader.cohorts_page(_bounded_cohorts(of.asked))
    ),
    "rollout_page": StoreQuestion(
        _RolloutPage, RolloutPage, lambda reader, of: reader.rollout_page(of.name, of.objectives)
    ),
    "rollouts": StoreQuestion(
        _Rollouts, tuple[RolloutRecord, ...], lambda reader, of: reader.rollouts(of.most_entries)
    ),
    "run_details": StoreQuestion(_OfRun, RunDetails, lambda reader, of: reader.run_details(of.run_id)),
    "run_figures": StoreQuestion(
        _FiguresOfRun,
        RunFigures,
        lambda reader, of: reader.run_figures(of.run_id, of.objectives, of.now_unix_ns),
    ),
    "run_turns": StoreQuestion(_RunTurns, ComparedRun | None, lambda reader, of: reader.run_turns(of.asked)),
}


class BadQuestionError(ValueError):
    """Raised for a question that there is none of, or parameters that it does not take; the text says which."""


def answer(reader: StoreReader, name: str, parameters: bytes) -> object:
    """Answer a question with its parameters in JSON. Raises BadQuestionError, and StoreError as the reader does."""
    question = QUESTIONS.get(name)
    if question is None:
        raise BadQuestionError(f"there is no question {name!r:.60}; known are {', '.join(QUESTIONS)}")
    try:
        asked = msgspec.json.decode(parameters or b"{}", type=question.parameters)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadQuestionError(f"{name}: {error}") from error
    # A filter by a name that there is none of would otherwise be one about everything.
    unknown = _unknown(msgspec.json.decode(parameters or b"{}"), msgspec.to_builtins(asked))
    if unknown is not None:
        raise BadQuestionError(f"{name}: there is no {unknown!r:.60} to ask by")
    metric = getattr(asked, "metric", HEADLINE)
    if metric not in METRIC_NAMES:
        raise BadQuestionError(f"{name}: there is no metric {metric!r:.60}; known are {', '.join(METRIC_NAMES)}")
    return question.ask(reader, asked)


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


def _paged(asked: TurnsQuestion) -> TurnsQuestion:
    if asked.metric not in METRIC_NAMES:
        raise BadQuestionError(f"turns_page: there is no metric {asked.metric!r:.60}")
    if asked.order not in ORDERS:
        raise BadQuestionError(f"turns_page: there is no order {asked.order!r:.60}; known are {', '.join(ORDERS)}")
    if asked.page_size not in PAGE_SIZES or not 0 <= asked.page <= MOST_PAGED:
        raise BadQuestionError(f"turns_page: a page has {', '.join(map(str, PAGE_SIZES))} turns, and none is negative")
    return asked


def _bounded_view(asked: ViewQuestion) -> ViewQuestion:
    for name, value, most in (
        ("objectives", len(asked.objectives), MOST_OBJECTIVES),
        ("window_ns", asked.window_ns or 0, 2**62),
    ):
        if not 0 <= value <= most:
            raise BadQuestionError(f"page: {name} is {value}, not within 0 and {most}")
    return asked


def _bounded_cohorts(asked: CohortsQuestion) -> CohortsQuestion:
    _bounded_view(asked.view)
    return asked


def _bounded(asked: PageQuestion) -> PageQuestion:
    wanted = {
        "slowest": (asked.slowest, 0, MOST_TURNS),
        "dots": (asked.dots, 0, MOST_TURNS),
        "turns_per_bucket": (asked.turns_per_bucket, 1, 2**62),
        "fewest_buckets": (asked.fewest_buckets, 1, MOST_BUCKETS),
        "most_buckets": (asked.most_buckets, 1, MOST_BUCKETS),
        "objectives": (len(asked.objectives), 0, MOST_OBJECTIVES),
        "window_ns": (asked.window_ns or 0, 0, 2**62),
    }
    if asked.metric not in METRIC_NAMES:
        raise BadQuestionError(f"page: there is no metric {asked.metric!r:.60}; known are {', '.join(METRIC_NAMES)}")
    for name, (value, least, most) in wanted.items():
        if not least <= value <= most:
            raise BadQuestionError(f"page: {name} is {value}, not within {least} and {most}")
    return asked
