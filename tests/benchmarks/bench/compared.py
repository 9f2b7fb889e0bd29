"""What the rounds of all senders say together: medians, spreads, paired ratios, and each beside its target. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from telemetry.model.formatting import declared_milliseconds
from tests.benchmarks.bench.cases import CONTROL, DUPLEX, NAIVE, ONE_WAY, OURS, SENDERS, Case
from tests.benchmarks.bench.figures import Figures, Spread, paired_ratio, spread
from tests.benchmarks.bench.senders import Trial
from tests.benchmarks.bench.singles import StampError

# By mode: the most times C, and the sizes that this is promised for.
MOST_TIMES_CONTROL: Final = {ONE_WAY: (1.25, (100, 2000)), DUPLEX: (1.7, (1000, 1000))}
MOST_TIMES_NAIVE: Final = 0.6  # who only sends
MOST_CORE_SHARE: Final = 0.6  # for callers in conversation
MOST_TELEMETRY_US: Final = 150.0  # a turn
PACING_P99_MS: Final = 1.0
# Zero drift, as far as a window of seconds can tell it from noise.
DRIFT_MS_PER_S: Final = 0.1
# Frames that are due as a window ends are sent behind it: of those unsent, no more than this is an edge.
EDGE_SHARE: Final = 0.0005
STAMP_P99_MS: Final = 0.1
# The steps of telemetry for each turn, and their names in what its part prints.
TELEMETRY_STEPS: Final = {
    "record": "build_us",
    "spans, encoded and logged": "emit_us",
    "Locust's statistics": "events_us",
    "deliver": "export_us",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One sender at one case, over all rounds. None is what no round could measure."""

    case: Case
    sender: str
    cpu_us_per_frame: Spread | None
    core_share: Spread | None
    lateness_p50_ms: Spread | None
    lateness_p99_ms: Spread | None
    lateness_max_ms: Spread | None
    drift_ms_per_s: Spread | None
    never_sent_share: Spread | None
    times_control: Spread | None
    times_naive: Spread | None
    times_ws: float | None  # over wss: what TLS costs this sender, beside its own figure over ws
    peer_was_limit: bool
    failures: tuple[str, ...]


def _by_round(trials: Sequence[Trial], case: Case, sender: str) -> dict[int, Figures | None]:
    return {trial.round: trial.figures for trial in trials if trial.case == case and trial.sender == sender}


def _cpu(figures: Figures | None) -> float | None:
    return figures.cpu_us_per_frame if figures is not None else None


def _ratio(trials: Sequence[Trial], case: Case, over: str, under: str) -> Spread | None:
    a, b = _by_round(trials, case, over), _by_round(trials, case, under)
    shared = sorted(a.keys() & b.keys())
    return paired_ratio([_cpu(a[number]) for number in shared], [_cpu(b[number]) for number in shared])


def _row(trials: Sequence[Trial], case: Case, sender: str) -> Row:
    mine = [trial for trial in trials if trial.case == case and trial.sender == sender]
    known = [trial.figures for trial in mine if trial.figures is not None]
    cpu = spread([figures.cpu_us_per_frame for figures in known])
    plain = spread([_cpu(each) for each in _by_round(trials, Case(case.callers, case.mode, "ws"), sender).values()])
    return Row(
        case=case,
        sender=sender,
        cpu_us_per_frame=cpu,
        core_share=spread([figures.core_share for figures in known]),
        lateness_p50_ms=spread([figures.lateness_p50_ms for figures in known]),
        lateness_p99_ms=spread([figures.lateness_p99_ms for figures in known]),
        lateness_max_ms=spread([figures.lateness_max_ms for figures in known]),
        drift_ms_per_s=spread([figures.drift_ms_per_s for figures in known]),
        never_sent_share=spread([figures.never_sent_share for figures in known]),
        times_control=_ratio(trials, case, sender, CONTROL) if sender != CONTROL else None,
        times_naive=_ratio(trials, case, sender, NAIVE) if sender == OURS else None,
        times_ws=cpu.middle / plain.middle if case.wire == "wss" and cpu and plain else None,
        peer_was_limit=any(figures.peer_was_limit for figures in known),
        failures=tuple(trial.failed for trial in mine if trial.failed is not None),
    )


def rows(trials: Sequence[Trial]) -> list[Row]:
    """One row for each sender and case that was tried, in the order of trying."""
    cases = list(dict.fromkeys(trial.case for trial in trials))
    present = {(trial.case, trial.sender) for trial in trials}
    return [_row(trials, case, sender) for case in cases for sender in SENDERS if (case, sender) in present]


@dataclass(frozen=True, slots=True)
class TargetResult:
    """One target and what was found here. `met` is None where it was not measured."""

    target: str
    found: str
    met: bool | None

    @property
    def word(self) -> str:
        """For people."""
        return {True: "met here", False: "not met here", None: "not measured"}[self.met]


def at_most(target: str, value: float | None, most: float, shown: str, *, failed: bool = False) -> TargetResult:
    """A sender that did not come to its figures misses its targets; what was not tried is not measured."""
    if failed:
        return TargetResult(target, "no figure", False)
    return TargetResult(target, "–" if value is None else shown.format(value), None if value is None else value <= most)


def below(target: str, value: float | None, limit: float, shown: str, *, failed: bool = False) -> TargetResult:
    """As `at_most`, for what has to stay under its limit."""
    result = at_most(target, value, limit, shown, failed=failed)
    return replace(result, met=value < limit) if value is not None and not failed else result


def _worst(values: Sequence[Spread | None]) -> float | None:
    known = [value.middle for value in values if value is not None]
    return max(known) if known else None


def sender_verdicts(table: Sequence[Row]) -> list[TargetResult]:
    """The targets for the engine, each against the worst case that was measured."""
    ours = [row for row in table if row.sender == OURS and row.case.wire == "ws"]
    verdicts: list[TargetResult] = []
    for mode, (most, (fewest_callers, most_callers)) in MOST_TIMES_CONTROL.items():
        these = [row for row in ours if row.case.mode == mode and fewest_callers <= row.case.callers <= most_callers]
        if not these:
            continue
        sizes = f"{fewest_callers:,}" if fewest_callers == most_callers else f"{fewest_callers:,}–{most_callers:,}"
        of_control = f"{mode}, {sizes} callers: CPU per frame at most {most:g} × the control"
        ratios, failed = _worst([row.times_control for row in these]), any(_failed(row) for row in these)
        verdicts.append(at_most(of_control, ratios, most, "{:.2f} ×", failed=failed))
        if mode == ONE_WAY:
            of_naive = f"{mode}: CPU per frame at most {MOST_TIMES_NAIVE:g} × the naive locustfile"
            ratios = _worst([row.times_naive for row in these])
            verdicts.append(at_most(of_naive, ratios, MOST_TIMES_NAIVE, "{:.2f} ×", failed=failed))
    return verdicts + _at_size(ours, 1000, DUPLEX) + _at_size(ours, 2000, ONE_WAY)


def stamp_verdicts(errors: Sequence[StampError]) -> list[TargetResult]:
    """The kernel's stamps are those that figures are made of; the program's own only show what they are good for."""
    limit = declared_milliseconds(STAMP_P99_MS * 1e6)
    return [
        at_most(
            f"event stamps at {error.case.callers:,} callers, {error.case.mode}: p99 within {limit}",
            error.p99_ms,
            STAMP_P99_MS,
            "{:.3f} ms",
        )
        for error in errors
        if error.kind == "kernel"
    ]


def telemetry_verdicts(found: Mapping[str, Any] | None) -> list[TargetResult]:
    """The target for telemetry, from what its part printed."""
    if found is None:
        return []
    cost_us = sum(found[name] for name in TELEMETRY_STEPS.values())
    return [at_most(f"telemetry: at most {MOST_TELEMETRY_US:g} µs a turn", cost_us, MOST_TELEMETRY_US, "{:.0f} µs")]


def _at_size(ours: Sequence[Row], callers: int, mode: str) -> list[TargetResult]:
    found = [row for row in ours if row.case.callers == callers and row.case.mode == mode]
    if not found:
        return []
    (row,) = found
    name = f"{callers:,} callers, {mode}"
    p99, drift, unsent = (
        value.middle if value is not None else None
        for value in (row.lateness_p99_ms, row.drift_ms_per_s, row.never_sent_share)
    )
    failed, limit = _failed(row), declared_milliseconds(PACING_P99_MS * 1e6)
    moved = abs(drift) if drift is not None else None
    return [
        below(f"{name}: pacing p99 below {limit}", p99, PACING_P99_MS, "{:,.2f} ms", failed=failed),
        at_most(f"{name}: no drift", moved, DRIFT_MS_PER_S, "{:,.3f} ms a second", failed=failed),
        at_most(f"{name}: nothing unsent", unsent, EDGE_SHARE, "{:.2%}", failed=failed),
    ]


def _failed(row: Row) -> bool:
    return bool(row.failures) and row.core_share is None
