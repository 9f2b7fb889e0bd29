"""Figures and states of a run as text for the pages. Independent of Streamlit.

Unknown is `UNKNOWN` or a dash, never 0.
"""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from telemetry.model.bounds import Statistic
from telemetry.model.formatting import (
    DASH,
    NOT_REPORTED,
    NS_PER_S,
    count,
    estimate_if,
    milliseconds,
    number,
    share,
    signed_milliseconds,
)
from telemetry.model.generator_health import SUMMARY_FIGURES, invalid_text
from telemetry.model.metrics import DEFINITIONS, MIN_COUNT_FOR
from telemetry.model.semconv import Source
from telemetry.model.services import ServiceDay
from telemetry.store.answers import (
    ClientServiceDelta,
    Generator,
    MetricStats,
    RunRecord,
    SpeechBoundErrors,
    TelemetryLoss,
    TurnCounts,
)
from telemetry.store.run_folders.entries import RunEntry

UNKNOWN: Final = NOT_REPORTED
ESTIMATED: Final = "estimated from one value in 16; the exact figure lies in the interval with 95 % confidence"

# A caller's turn with its think time rarely lasts longer: longer silence is reported.
LIVE_WITHIN_S: Final = 30.0
# A turn dated further in the future than the limit for live turns in the past does not show when it arrived.
AHEAD_S: Final = 30.0
# A process of the load generator reports its health about every second; a busy machine may delay that.
QUIET_AFTER_S: Final = 10.0

State = Literal["live", "stale", "ended"]
# The format of a time.
Clock = Callable[[int], str]


def percentile(stats: MetricStats, name: str, *, with_unit: bool = False) -> str:
    """One percentile as the table shows it: the figure, or why it is missing ("too few (12)")."""
    value: float | None = getattr(stats, name)
    if value is not None:
        text = estimate_if(stats.approximate, DEFINITIONS[stats.name].format(value, unit=with_unit))
        between = estimated_between(stats, name)
        return f"{text} ({between})" if between else text
    if stats.n == 0:
        return DASH
    return f"too few ({stats.n})" if stats.n < MIN_COUNT_FOR[name] else DASH


def estimated_between(stats: MetricStats, name: str) -> str:
    """`95 % 806–829`: the interval of an estimated percentile; empty for an exact one."""
    if (between := stats.estimated_within.get(name)) is None:
        return ""
    low, high = (DEFINITIONS[stats.name].format(value, unit=False) for value in between)
    return f"95 % {low}–{high}"


def describe_bounds(stats: MetricStats, name: Statistic) -> str:
    """Describe the measurement bounds of a percentile where they differ from it, for how many turns they are not known,
    and what an estimate is taken from."""
    parts = (stats.within(name), describe_unknown_bounds(stats), ESTIMATED if name in stats.estimated_within else "")
    return "; ".join(filter(None, parts))


def describe_unknown_bounds(stats: MetricStats) -> str:
    """Describe for how many turns the measurement bounds are unknown; empty if they are known for all."""
    unknown = 0 if stats.measured_within is None else stats.measured_within.turns_unknown
    return f"measurement bounds not known for {number(unknown)} of {count(stats.n, 'turn')}" if unknown else ""


def describe_speech_bounds(bounds: SpeechBoundErrors) -> str:
    """Describe how precisely the end of the callers' speech is known, from which latencies are measured."""
    if not bounds.turns:
        return DASH
    unknown = f"± not known for {number(bounds.turns_unknown)} of {count(bounds.turns, 'turn')}"
    if bounds.end_median_ns is None:
        return unknown
    median = estimate_if(bounds.approximate, f"± {milliseconds(bounds.end_median_ns)}")
    known = f"end {median} · worst ± {milliseconds(bounds.end_worst_ns)}" if bounds.end_worst_ns else "end exact"
    return f"{known} · {unknown}" if bounds.turns_unknown else known


def values(stats: MetricStats) -> str:
    """The number of values of a metric; `17 of 40` if turns went unanswered and its percentiles are of the others."""
    return f"{number(stats.n)} of {stats.n + stats.unanswered:,}" if stats.unanswered else f"{stats.n:,}"


def why_no_figures(stats: MetricStats, source: Source = "client") -> str | None:
    """Explain why a metric has no figure at all; None if it has some."""
    if stats.n:
        return None
    if stats.withheld:
        return f"not observable on this wire: {stats.withheld}"
    return "not measured on these turns" if source == "client" else UNKNOWN


def ago(seconds: float) -> str:
    """`4 s ago`, `3 min ago`, `2 h ago`, `5 days ago`; a time in the future is "now"."""
    if seconds < 1:
        return "now"
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            whole = int(seconds // size)
            return f"{whole} {unit}{'s' if unit == 'day' and whole > 1 else ''} ago"
    return f"{int(seconds)} s ago"


def zone_of(name: str | None) -> tzinfo:
    """The viewer's time zone as the browser reports it, else UTC."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def time_of_day(unix_ns: int, zone: tzinfo = UTC) -> str:
    """`14:03:22`, in the reader's zone."""
    return f"{datetime.fromtimestamp(unix_ns / NS_PER_S, zone):%H:%M:%S}"


def day_and_time(unix_ns: int, zone: tzinfo = UTC) -> str:
    """`20 Nov 14:03`, in the reader's zone."""
    return f"{datetime.fromtimestamp(unix_ns / NS_PER_S, zone):%d %b %H:%M}".lstrip("0")


def day_and_second(unix_ns: int, zone: tzinfo = UTC) -> str:
    """`20 Nov 14:03:22`, in the reader's zone."""
    return f"{datetime.fromtimestamp(unix_ns / NS_PER_S, zone):%d %b %H:%M:%S}".lstrip("0")


def began(entry: RunEntry, zone: tzinfo = UTC) -> str:
    """The start of a run, in the viewer's zone."""
    if entry.began_unix_ns is None:
        return DASH
    return datetime.fromtimestamp(entry.began_unix_ns // NS_PER_S, zone).strftime("%Y-%m-%d %H:%M")


def clock_of(run: RunRecord, zone: tzinfo = UTC) -> Clock:
    """Return a formatter for the times of a run: the time of day, with the date if the run covers several days in the
    viewer's zone."""
    first, last = (datetime.fromtimestamp(ns / NS_PER_S, zone).date() for ns in (run.first_unix_ns, run.last_unix_ns))
    written = time_of_day if first == last else day_and_second
    return lambda unix_ns: written(unix_ns, zone)


def state_of(run: RunRecord, newest_unix_ns: int | None, now_unix_ns: int) -> State:
    """Return whether figures still arrive: `ended` if the run announced it or a service's day is over, else by the age
    of the newest turn. A turn that is dated in the future is not live."""
    today = datetime.fromtimestamp(now_unix_ns / NS_PER_S, UTC).date()
    if run.ended or (run.service is not None and run.service.day < today):
        return "ended"
    newest = run.last_unix_ns if newest_unix_ns is None else newest_unix_ns
    return "live" if -AHEAD_S <= (now_unix_ns - newest) / NS_PER_S <= LIVE_WITHIN_S else "stale"


def describe_state(
    state: State, newest_unix_ns: int, now_unix_ns: int, zone: tzinfo = UTC, *, is_service: bool = False
) -> str:
    """Explain the state in one short sentence."""
    age_s = (now_unix_ns - newest_unix_ns) / NS_PER_S
    if age_s < -AHEAD_S:
        ahead = ago(-age_s).removesuffix(" ago")
        return f"last turn is dated {ahead} ahead of this clock: set the clocks of the hosts"
    age = ago(age_s)
    if state == "live":
        return f"last turn {age}"
    if state == "stale":
        return f"last turn {age}" + ("" if is_service else "; the run has not said that it ended")
    return f"last turn {day_and_time(newest_unix_ns, zone)}, {age}"


def describe_silence(heard_unix_ns: int | None, now_unix_ns: int) -> str:
    """Describe how long a running process has been silent; empty if no longer than usual."""
    if heard_unix_ns is None or now_unix_ns - heard_unix_ns <= QUIET_AFTER_S * NS_PER_S:
        return ""
    return f"; a process of the load generator was last heard {ago((now_unix_ns - heard_unix_ns) / NS_PER_S)}"


def describe_invalid(turns: TurnCounts) -> str:
    """Describe how many turns are invalid, with those that were not spoken as recorded apart from those spoiled by a
    fault."""
    if not turns.invalid:
        return "none invalid"
    why = invalid_text(turns.not_as_recorded, turns.faults, turns.invalid_by_reason)
    return f"{number(turns.invalid)} invalid ({share(turns.invalid, turns.total)}): {why}"


def describe_unread(turns: TurnCounts) -> str:
    """Count the turns in which the endpoint did not take the caller's audio; empty where it always did."""
    unread = turns.endpoint_did_not_read
    return f"did not read in {number(unread)} of {count(turns.valid, 'turn')}" if unread else ""


def describe_loss(loss: TelemetryLoss) -> tuple[str, bool | None]:
    """Describe whether telemetry is missing, and whether that is good (None: unknown)."""
    if loss.missing:
        return f"{count(loss.missing, 'turn')} lost on the way ({number(loss.received)} received)", False
    if loss.emitted is None:
        return "no gap seen (the generator has not said how many it sent)", None
    return "none lost", True


def describe_client_service_delta(client_service_delta: ClientServiceDelta, service: ServiceDay | None = None) -> str:
    """Describe how far the service's own figures are from those of the callers."""
    if not client_service_delta.joined:
        return "the service reports nothing of its own" if service is None else "no caller of ours heard these turns"

    def shown(name: str, ns: float | None) -> str:
        text = estimate_if(client_service_delta.approximate, signed_milliseconds(ns))
        between = [signed_milliseconds(bound) for bound in client_service_delta.estimated_within.get(name, ())]
        return f"{text} (95 % {' to '.join(between)})" if between else text

    p50 = shown("p50", client_service_delta.difference_p50_ns)
    p99 = f"too few ({client_service_delta.joined})"
    if client_service_delta.difference_p99_ns is not None:
        p99 = shown("p99", client_service_delta.difference_p99_ns)
    return f"p50 {p50} · p99 {p99} over {count(client_service_delta.joined, 'turn')}{client_service_delta.note}"


def describe_generator(generator: Generator, line: str) -> str:
    """The figures of the load generator's health that one line of the page shows."""
    figures = [figure for figure in SUMMARY_FIGURES if figure.page_line == line]
    return " · ".join(
        generator.describe(figure) for figure in figures if generator[figure.name] or not figure.hidden_when_zero
    )


def describe_calibration(run: RunRecord) -> str:
    """Describe the error bound that the run declared, if it was calibrated."""
    if sentence := run.declared.get("calibration"):
        return sentence
    bound = run.calibrated_to_ms
    return f"calibrated to ± {bound} ms" if bound else "not calibrated"


def describe_corpus(run: RunRecord) -> str:
    """Name the utterances that were replayed."""
    return run.declared.get("corpus") or UNKNOWN
