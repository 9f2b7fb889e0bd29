"""The types of the store's answers, which reports, the dashboard, Prometheus and the gate all read.

Durations are integer nanoseconds. Percentiles are exact. None: not measured, or too few values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from telemetry.model import formatting
from telemetry.model.bounds import STATISTICS, MeasuredWithin, Statistic, measured_within
from telemetry.model.formatting import count, number, turns
from telemetry.model.generator_health import HEALTH_FIGURES, HealthFigure
from telemetry.model.metrics import DEFINITIONS
from telemetry.model.semconv import CONTRADICTION_LABELS, RAMP, Source
from telemetry.model.services import REPORTED, ServiceDay, service_day

# 1,000 s or more bound nothing.
_MOST_BOUND_MS: Final = 1e6


def calibrated_bound_ms(declared: object) -> float | None:
    """The bound of the instrument's error that a run declares; None for an invalid one."""
    try:
        bound_ms = float(str(declared))
    except ValueError:
        return None
    return bound_ms if 0.0 < bound_ms < _MOST_BOUND_MS else None


@dataclass(frozen=True, slots=True)
class Filter:
    """The turns that a question is about, None for any; `until_unix_ns` is exclusive. Where no phase is asked for,
    figures leave the turns of ramps out."""

    run_id: str | None = None
    cohort: str | None = None
    target: str | None = None
    noise_profile: str | None = None
    length_class: str | None = None
    channel_profile: str | None = None
    route: str | None = None
    phase: str | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run in the store. `declared` is what the generator declared of itself at the start (strings).

    Turns that a service reports outside a run of callers form a run per service and day (`service`): its figures are
    the service's own, not measured by callers. `lacks_old_turns` means that retention has removed turns of the run.
    `stored_unix_ns` is when its newest turn was stored, by the store's clock; None if the store does not know. The
    other times are of the senders' clocks.
    """

    run_id: str
    first_unix_ns: int
    last_unix_ns: int
    turns: int
    target: str | None
    protocol: str | None
    ended: bool
    declared: dict[str, str]
    lacks_old_turns: bool = False
    stored_unix_ns: int | None = field(default=None, compare=False)  # the same run may be stored in two places

    @property
    def reached_unix_ns(self) -> int:
        """The newest time of the run, at most the time at which it was stored."""
        return self.last_unix_ns if self.stored_unix_ns is None else min(self.last_unix_ns, self.stored_unix_ns)

    @property
    def service(self) -> ServiceDay | None:
        """The service and the UTC day of a run that only a service reported; None for a run of callers."""
        return service_day(self.run_id)

    @property
    def calibrated_to_ms(self) -> str | None:
        """The bound of the instrument's error as the run declares it, from the calibration of its machine."""
        declared = self.declared.get("calibrated_to_ms")
        return None if calibrated_bound_ms(declared) is None else declared


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One generator process of a run. A process that has not `ended` by the end of its run was lost: `calls_in_flight`
    is its last report."""

    process_id: str
    worker: str  # "2 of 4", as it named itself
    began_unix_ns: int | None
    last_seen_unix_ns: int
    ended: bool
    turns: int
    calls_in_flight: int | None
    cpu_ratio: float | None = None  # three in four of its seconds took no more than this share of a core
    calls_reported_unix_ns: int | None = None  # when it reported `calls_in_flight`


@dataclass(frozen=True, slots=True)
class MetricStats:
    """Statistics of one metric over the valid client-heard turns of a filter, in the metric's unit.

    `n` values, of `eligible` turns (of `connect`: calls); None where most turns have nothing to measure. `unanswered`
    of them ended without an answer and without a value: no percentile includes them, so the figures are of the answered
    ones only.
    """

    name: str
    unit: str
    n: int
    p50: float | None
    p95: float | None  # None under 20 values
    p99: float | None  # None under 100 values
    max: float | None
    withheld: str | None = None  # the reason, where the wire cannot show it
    eligible: int | None = None
    unanswered: int = 0
    measured_within: MeasuredWithin | None = None  # None of the gaps between pieces of text
    approximate: bool = False  # whether the percentiles are estimates, from the turns of one in 16 calls
    # By the name of an estimated percentile: what the exact one lies between with 95 % confidence.
    estimated_within: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def within(self, which: Statistic) -> str | None:
        """The measurement bounds of a statistic, `measured within 806–818`; None if they equal the value or are not
        known."""
        bounds = None if self.measured_within is None else getattr(self.measured_within, which)
        return measured_within(DEFINITIONS[self.name], getattr(self, which), bounds)

    @property
    def stated_bounds(self) -> str | None:
        """The statistics whose measurement bounds differ from them: `p95 818 ms (measured within 806–818)`."""
        stated = [(name, within) for name in STATISTICS if (within := self.within(name)) is not None]
        metric = DEFINITIONS[self.name]
        return ", ".join(f"{name} {metric.format(getattr(self, name))} ({within})" for name, within in stated) or None

    @property
    def stated_estimates(self) -> str | None:
        """The intervals of estimated percentiles: `p95 806–830 ms`."""
        metric = DEFINITIONS[self.name]
        stated = [
            f"{name} {metric.format(low, unit=False)}–{metric.format(high)}"
            for name, (low, high) in self.estimated_within.items()
            if getattr(self, name) is not None
        ]
        return f"estimated from one value in 16; with 95 % confidence the exact {', '.join(stated)}" if stated else None


@dataclass(frozen=True, slots=True)
class ShareByName:
    """The occurrences of each value of a dimension: `counts` by name, of `reported` turns which reported anything."""

    total: int
    reported: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Cache use by tier. `hits_by_tier` counts turns; `reported` is how many turns reported hit or miss at all."""

    reported: int
    hits: int
    hits_by_tier: dict[str, int]

    @property
    def hit_rate(self) -> float | None:
        """Hits / reported turns, None when no turn reported."""
        return self.hits / self.reported if self.reported else None


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Turns by outcome, client-heard. `eligible` is every turn that is neither invalid nor cut by the generator before
    its end (`cut_by` says by what); no reply counts as bad. `endpoint_did_not_read` counts the valid turns, those that
    were cut among them, in which the endpoint, or the network, did not take the caller's audio."""

    total: int
    ok: int
    invalid: int
    by_outcome: dict[str, int]
    invalid_by_reason: dict[str, int] = field(default_factory=dict)
    endpoint_did_not_read: int = 0
    cut_by: dict[str, int] = field(default_factory=dict)
    not_as_recorded: int = 0  # of the invalid ones: not said as recorded (telemetry.model.generator_health)

    @property
    def valid(self) -> int:
        """Turns that were said as recorded, those that were cut before their end among them."""
        return self.total - self.invalid

    @property
    def faults(self) -> int:
        """Turns that a fault of the load generator alone made invalid."""
        return self.invalid - self.not_as_recorded

    @property
    def eligible(self) -> int:
        """Turns that count for or against the service."""
        return self.valid - self.cut

    @property
    def cut(self) -> int:
        """Turns that the generator ended before their end."""
        return self.by_outcome.get("cut", 0)

    @property
    def invalid_share(self) -> float | None:
        """Invalid turns / all turns, None without a turn."""
        return self.invalid / self.total if self.total else None

    @property
    def abandoned(self) -> int:
        """Turns in which the caller hung up."""
        return self.by_outcome.get("abandoned", 0)

    @property
    def abandoned_share(self) -> float | None:
        """Abandoned turns / eligible turns, None without one."""
        return self.abandoned / self.eligible if self.eligible else None


@dataclass(frozen=True, slots=True)
class Behavior:
    """Callers' behavior other than asking and waiting, and the endpoint's reactions: counts of valid client turns.

    `barge_ins` are turns whose speech overlapped a reply. By `barge_in_end`, the endpoint stopped it (the time is the
    metric `barge_in_stop`), it ended by itself, it was not stopped, or the wire does not show it. `barge_ins_missed`
    were planned but the reply was already over. An intent is compared if the script names one and the endpoint reports
    one.
    """

    barge_ins: int = 0
    barge_ins_stopped: int = 0
    barge_ins_ended: int = 0
    barge_ins_not_stopped: int = 0
    barge_ins_unclear: int = 0
    barge_ins_recovered: int = 0
    barge_ins_missed: int = 0
    backchannels: int = 0
    backchannels_stopped: int = 0
    silent_turns: int = 0
    reprompted: int = 0
    intents_expected: int = 0
    intents_reported: int = 0
    intents_matched: int = 0

    @property
    def barge_ins_judged(self) -> int:
        """Interruptions for which the wire shows how the reply ended."""
        return self.barge_ins_stopped + self.barge_ins_ended + self.barge_ins_not_stopped

    @property
    def recovered_share(self) -> float | None:
        """Interruptions that were answered / interruptions, None without one."""
        return self.barge_ins_recovered / self.barge_ins if self.barge_ins else None

    @property
    def intent_accuracy(self) -> float | None:
        """Intents as expected / intents reported, None when none was reported."""
        return self.intents_matched / self.intents_reported if self.intents_reported else None


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls by outcome; `connect_failure` is the newest reason why a call could not be connected.

    Of the started calls, `prevented` are those that the generator itself could not connect.
    """

    started: int
    connected: int
    connect_failure: str | None
    target: str | None = None
    prevented: int = 0

    @property
    def none_reached(self) -> bool:
        """Whether calls tried to reach the target, and not one of them reached a session."""
        return self.started > self.prevented and not self.connected


@dataclass(frozen=True, slots=True)
class CohortSummary:
    """The figures of one cohort, compared with the others."""

    cohort: str
    turns: TurnCounts
    metrics: dict[str, MetricStats]
    cache: CacheStats
    fallback: ShareByName


@dataclass(frozen=True, slots=True)
class WerByCondition:
    """The endpoint's word error rate under one profile: word errors ÷ words, pooled over its turns.

    `characters` of the words are characters of texts without spaces between words.

    The interval holds the true rate with 95 % confidence; turns, not words, are taken as independent (the ratio
    estimator's variance), because the words of a turn fail together. None with fewer than 20 turns.
    """

    noise_profile: str | None
    snr_asked_db: float | None
    channel_profile: str | None
    turns: int
    words: int
    errors: int
    interval: tuple[float, float] | None
    characters: int = 0

    @property
    def wer(self) -> float:
        """Word error rate; above 1 if more words are recognized than were spoken."""
        return self.errors / self.words


@dataclass(frozen=True, slots=True)
class StartCounts:
    """Calls of open arrivals: due so far, begun, begun too late, and never begun because too many were under way."""

    planned: int
    started: int
    late: int
    dropped: int


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """The figures of one phase of a run, in the order of time; a ramp too. `metrics` are those of PHASE_METRICS."""

    phase: str
    kind: str | None
    first_unix_ns: int
    turns: TurnCounts
    metrics: dict[str, MetricStats]
    starts: StartCounts | None = None  # None where callers call again when they have ended a call

    @property
    def is_ramp(self) -> bool:
        """Whether its turns are left out of the figures of the run."""
        return self.kind == RAMP


@dataclass(frozen=True, slots=True)
class TelemetryLoss:
    """Telemetry known to be missing, from the sequence numbers of each process."""

    processes: int
    emitted: int | None  # what the processes say they emitted, None where they did not say
    received: int
    missing: int


@dataclass(frozen=True, slots=True)
class Generator:
    """Health of the load generator over the filter. `figures` are those of
    telemetry.model.generator_health.SUMMARY_FIGURES by name, None where nothing was reported."""

    processes: int
    figures: Mapping[str, int | float | None] = field(default_factory=dict[str, int | float | None])
    receive_stamp: str | None = None
    pacer: str | None = None
    approximate: frozenset[str] = frozenset()  # the figures that are estimates, by name
    # By the name of a percentile that is None for that reason alone: how many turns report what it is taken from.
    too_few: Mapping[str, int] = field(default_factory=dict[str, int])

    def __getitem__(self, name: str) -> int | float | None:
        """A figure by its name; None where it was not reported. Raises KeyError for a name that is no figure."""
        return self.figures.get(HEALTH_FIGURES[name].name)

    def describe(self, figure: HealthFigure) -> str:
        """A figure with its label, for people."""
        is_estimate, too_few = figure.name in self.approximate, self.too_few.get(figure.name)
        return figure.describe(self[figure.name], is_estimate=is_estimate, too_few=too_few)


@dataclass(frozen=True, slots=True)
class Beside:
    """Messages outside the conversations of the client turns: events of types unknown to the protocol (the names of the
    first few), events that the endpoint sent twice, and turns on which the service stated its own latencies."""

    unknown: int = 0
    duplicates: int = 0
    turns_with_service_latency: int = 0
    unknown_names: tuple[str, ...] = ()


NOTHING_BESIDE: Final = Beside()


@dataclass(frozen=True, slots=True)
class ContradictedValue:
    """The number of a source's turns on which a metric was withheld because its value is impossible, and the cause."""

    source: Source
    metric: str
    cause: str
    turns: int

    @property
    def text(self) -> str:
        """The turns, the metric and the cause: `3 × voice to voice, heard: not a number, or more than a day`."""
        metric = DEFINITIONS[self.metric].phrase if self.metric in DEFINITIONS else self.metric
        cause = CONTRADICTION_LABELS.get(self.cause, self.cause.replace("_", " "))
        whose = "heard" if self.source == "client" else "reported"
        return f"{number(self.turns)} × {metric}, {whose}: {cause}"


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Impossible values in the turns of a filter and in the services' reports on them, the most common first; and the
    service's turns that late spans changed, with the number of those spans."""

    values: tuple[ContradictedValue, ...] = ()
    late_spans: int = 0
    revised_turns: int = 0

    @property
    def texts(self) -> dict[str, str]:
        """Both as text, by a short key: the same in every report and on the page."""
        texts: dict[str, str] = {}
        if total := sum(value.turns for value in self.values):
            causes = "; ".join(value.text for value in self.values)
            texts["withheld"] = f"{count(total, 'impossible value')} ({causes})"
        if self.late_spans:
            revised = turns(self.revised_turns)
            texts["late"] = f"{count(self.late_spans, 'span')} of services came late: {revised} judged again"
        return texts


NO_CONTRADICTIONS: Final = Contradictions()


@dataclass(frozen=True, slots=True)
class ClientServiceDelta:
    """Client-heard against service-reported voice-to-voice on joined turns, corrected for where each believes that
    speech ended: the rest is network, playout and the error of the instrument. On `uncorrected` ones the service does
    not state where that was, and the difference includes it. `service_only` counts responses that no caller heard; in a
    view that is narrower than a run those of the calls in view."""

    joined: int
    client_only: int
    service_only: int
    difference_p50_ns: float | None
    difference_p99_ns: float | None  # None under 100 joined turns
    difference_abs_max_ns: float | None
    approximate: bool = False  # whether the percentiles are estimates
    uncorrected: int = 0
    estimated_within: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )  # as of MetricStats

    @property
    def reported(self) -> str:
        """Whose figures those of a view by service and day are, for people: callers may have heard the same turns."""
        return "reported by the service, not as callers heard them" if self.joined else REPORTED

    @property
    def note(self) -> str:
        """A note on what the difference includes; empty where it is corrected for the end of speech."""
        if not self.uncorrected:
            return ""
        return f" (the service does not state where speech ended in {formatting.turns(self.uncorrected)})"


# Of so many turns the service may have kept its caller, and is still not what kept other calls from beginning.
SHARE_LIMIT: Final = 0.01
# Why no objective is judged then.
GENERATOR_LIMITED: Final = "the load generator was the limit, not the service"


@dataclass(frozen=True, slots=True)
class GeneratorLimit:
    """The reason why figures say nothing about the service, as half a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class SpeechBoundErrors:
    """Uncertainty of the beginning and end of the callers' speech, over the valid client turns that were spoken:
    half-widths of 95 % intervals; None where no turn states one."""

    turns: int = 0
    turns_unknown: int = 0  # turns of which one bound or both are not known
    start_median_ns: float | None = None
    start_worst_ns: int | None = None
    end_median_ns: float | None = None
    end_worst_ns: int | None = None
    approximate: bool = False  # whether the medians are estimates


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Eligible turns that failed for one cause; `kind` is None if it was not recorded. `example` is the record of the
    newest of them."""

    kind: str | None
    code: str | None
    turns: int
    example: str | None


@dataclass(frozen=True, slots=True)
class RemarkCount:
    """Eligible turns that ended well but to which the endpoint added a remark."""

    remark: str
    turns: int


@dataclass(frozen=True, slots=True)
class Retries:
    """Waits before the next call: how often an endpoint asked for one, and how often a caller waited because of that
    and then called again."""

    asked: int = 0
    asked_worst_ns: int | None = None
    waits: int = 0
    waited_ns: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a summary or a page needs for one filter, from one consistent read of the store."""

    filter: Filter
    turns: TurnCounts
    metrics: dict[str, MetricStats]  # every name of telemetry.model.metrics.METRIC_NAMES
    cache: CacheStats
    fallback: ShareByName
    routes: ShareByName
    cohorts: tuple[CohortSummary, ...]
    client_service_delta: ClientServiceDelta
    loss: TelemetryLoss
    generator: Generator
    newest_unix_ns: int | None  # end of the newest turn, for "how old is this"
    wer_by_condition: tuple[WerByCondition, ...] = ()  # by profile, quietest first; empty without transcripts
    behavior: Behavior = Behavior()
    beside: Beside = NOTHING_BESIDE
    contradictions: Contradictions = NO_CONTRADICTIONS
    phases: tuple[PhaseSummary, ...] = ()
    failures: tuple[FailureCount, ...] = ()  # why turns failed, the commonest first; also prevented ones
    remarks: tuple[RemarkCount, ...] = ()  # on turns that ended well, the commonest first
    retries: Retries = Retries()
    speech_bounds: SpeechBoundErrors = SpeechBoundErrors()
    starts: StartCounts | None = None  # of the whole run; None without open arrivals, or where a filter narrows it
    lacks_old_turns: bool = False  # as of RunRecord; without a run, of any of the store
    limit: GeneratorLimit | None = None  # why the figures say nothing about the service, None where they do
    unreached: str | None = None  # that no call of the run reached a session, and why; None where one did
    # Last sign of life of the generator's process that is quiet for longest; None where all have announced their end.
    heard_unix_ns: int | None = None

    @property
    def is_generator_limited(self) -> bool:
        """Whether the figures say nothing about the service, whatever the objectives."""
        return self.limit is not None

    @property
    def ramp_turns(self) -> int:
        """Turns that are in no figure because they began during a ramp."""
        return 0 if self.filter.phase is not None else sum(p.turns.total for p in self.phases if p.is_ramp)


# Where voice-to-voice goes. The first four a service can report of itself.
STAGE_LABELS: Final[dict[str, str]] = {
    "endpointing": "endpointing",
    "asr": "ASR",
    "llm": "LLM",
    "tts": "TTS",
    "leading_silence": "leading silence",
    "unexplained": "network, playout, unexplained",
}
REPORTED_STAGES: Final = ("endpointing", "asr", "llm", "tts")


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage's part in voice-to-voice over the answered turns with a known stage: quantiles of its length; p95 is
    None under 20 turns. `by_service` counts those of turns that callers heard whose stage the service reports."""

    name: str
    n: int
    p50_ns: float | None
    p95_ns: float | None
    approximate: bool = False  # whether they are estimates
    by_service: bool = False
    estimated_within: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )  # as of MetricStats

    @property
    def label(self) -> str:
        """The label in pages and reports."""
        return f"{STAGE_LABELS[self.name]}{' by the service' if self.by_service else ''}"
