"""What the rounds of conversations say together: ours beside C at each load, and beside the targets. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from telemetry.model.formatting import declared_milliseconds, declared_percent
from telemetry.model.stats import MIN_COUNT_FOR
from tests.benchmarks.bench.cases import CONTROL, OURS
from tests.benchmarks.bench.compared import EDGE_SHARE, MOST_CORE_SHARE, PACING_P99_MS, TargetResult, at_most, below
from tests.benchmarks.bench.conversations.figures import ConversationFigures
from tests.benchmarks.bench.conversations.rounds import TALKERS, ConversationTrial
from tests.benchmarks.bench.figures import Spread, paired_ratio, spread

MOST_TIMES_C: Final = 2.0
# Callers that come to fewer turns than those in C cost less because they do less.
LEAST_TURNS_SHARE: Final = 0.95
TARGET_CALLERS: Final = 800  # on MOST_CORE_SHARE of a core
ERROR_P99_MS: Final = 1.0
# The loads that the ratio to C and the error are promised for.
FEWEST_CALLERS, MOST_CALLERS = 200, 1000

Value = Callable[[ConversationFigures], float | None]


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """Callers of one kind at one load, over all rounds. None is what no round could measure."""

    callers: int
    sender: str
    cpu_us_per_caller_s: Spread | None
    times_control: Spread | None
    turns_share: float | None  # of the turns that callers in C came to in the same rounds
    core_share: Spread | None
    lateness_p99_ms: Spread | None
    never_sent_share: Spread | None
    error_p50_ms: Spread | None
    error_p99_ms: Spread | None
    error_max_ms: Spread | None
    width_p50_ms: Spread | None
    width_p99_ms: Spread | None
    intervals: int  # that turns state and the endpoint's truth is known for
    outside: int  # of these: without the truth
    turns: int
    invalid: int
    unanswered: int
    missing: int
    invalid_by_reason: Mapping[str, int]
    peer_was_limit: bool
    failures: tuple[str, ...]


def conversation_rows(trials: Sequence[ConversationTrial]) -> list[ConversationRow]:
    """One row for each load and kind of callers that was tried, in the order of trying."""
    loads = list(dict.fromkeys(trial.callers for trial in trials))
    present = {(trial.callers, trial.sender) for trial in trials}
    return [_row(trials, load, sender) for load in loads for sender in TALKERS if (load, sender) in present]


def _row(trials: Sequence[ConversationTrial], callers: int, sender: str) -> ConversationRow:
    mine = [trial for trial in trials if (trial.callers, trial.sender) == (callers, sender)]
    known = [trial.figures for trial in mine if trial.figures is not None]

    def over_rounds(value: Value) -> Spread | None:
        return spread([value(figures) for figures in known])

    reasons: dict[str, int] = {}
    for reason, number in (item for figures in known for item in figures.invalid_by_reason.items()):
        reasons[reason] = reasons.get(reason, 0) + number
    return ConversationRow(
        callers=callers,
        sender=sender,
        cpu_us_per_caller_s=over_rounds(lambda figures: figures.cpu_us_per_caller_s),
        times_control=_ratio(trials, callers) if sender == OURS else None,
        turns_share=_turns_share(trials, callers) if sender == OURS else None,
        core_share=over_rounds(lambda figures: figures.core_share),
        lateness_p99_ms=over_rounds(lambda figures: figures.lateness_p99_ms),
        never_sent_share=over_rounds(lambda figures: figures.never_sent_share),
        error_p50_ms=over_rounds(lambda figures: figures.error.p50_ms),
        error_p99_ms=over_rounds(lambda figures: figures.error.p99_ms),
        error_max_ms=over_rounds(lambda figures: figures.error.max_ms),
        width_p50_ms=over_rounds(lambda figures: figures.widths.p50_ms),
        width_p99_ms=over_rounds(lambda figures: figures.widths.p99_ms),
        intervals=sum(figures.widths.turns for figures in known),
        outside=sum(figures.widths.outside for figures in known),
        turns=sum(figures.turns for figures in known),
        invalid=sum(figures.invalid for figures in known),
        unanswered=sum(figures.unanswered for figures in known),
        missing=sum(figures.missing for figures in known),
        invalid_by_reason=reasons,
        peer_was_limit=any(figures.peer_was_limit for figures in known),
        failures=tuple(trial.failed for trial in mine if trial.failed is not None),
    )


def _ratio(trials: Sequence[ConversationTrial], callers: int) -> Spread | None:
    """Of ours to C, each within a round."""
    costs: dict[str, dict[int, float | None]] = {sender: {} for sender in TALKERS}
    for trial in trials:
        if trial.callers == callers:
            costs[trial.sender][trial.round] = trial.figures.cpu_us_per_caller_s if trial.figures else None
    shared = sorted(costs[OURS].keys() & costs[CONTROL].keys())
    return paired_ratio([costs[OURS][each] for each in shared], [costs[CONTROL][each] for each in shared])


def _turns_share(trials: Sequence[ConversationTrial], callers: int) -> float | None:
    turns: dict[str, dict[int, int]] = {sender: {} for sender in TALKERS}
    for trial in trials:
        if trial.callers == callers and trial.figures is not None:
            turns[trial.sender][trial.round] = trial.figures.turns
    shared = turns[OURS].keys() & turns[CONTROL].keys()
    of_c = sum(turns[CONTROL][each] for each in shared)
    return sum(turns[OURS][each] for each in shared) / of_c if of_c else None


@dataclass(frozen=True, slots=True)
class CallersOfACore:
    """How many callers fit into MOST_CORE_SHARE of a core with pacing and error within their targets.

    `how` says what the number is: "interpolated" between two loads that both kept to pacing and error, the "largest
    load" of those tried that kept to all three, or "at least" that, where it is the largest of all. `callers` is None
    where no load kept to all three; `limit` is what the next larger load missed.
    """

    callers: int | None
    how: str
    limit: str


def callers_of_a_core(rows: Sequence[ConversationRow]) -> CallersOfACore | None:
    """The derived figure; None where no load had turns enough to tell."""
    ours = sorted((row for row in rows if row.sender == OURS and not _is_too_short(row)), key=lambda row: row.callers)
    below_it: ConversationRow | None = None
    for row in ours:
        missed = _missed(row)
        if not missed:
            below_it = row
            continue
        if below_it is None:
            return CallersOfACore(None, "none of the loads tried", ", ".join(missed))
        if missed == ["core"] and below_it.core_share is not None and row.core_share is not None:
            low, high = below_it.core_share.middle, row.core_share.middle
            part = (MOST_CORE_SHARE - low) / (high - low)
            between = below_it.callers + part * (row.callers - below_it.callers)
            return CallersOfACore(int(between), "interpolated", "core")
        return CallersOfACore(below_it.callers, "largest load", ", ".join(missed))
    return None if below_it is None else CallersOfACore(below_it.callers, "at least", "")


def _is_too_short(row: ConversationRow) -> bool:
    """Whether there are figures, but too few turns for a percentile of their errors."""
    return row.core_share is not None and row.error_p99_ms is None and row.turns < MIN_COUNT_FOR["p99"]


def _missed(row: ConversationRow) -> list[str]:
    """What a load misses of the three; a figure that is not there passes nothing."""
    core, late, error = row.core_share, row.lateness_p99_ms, row.error_p99_ms
    found = {
        "core": core is not None and core.middle <= MOST_CORE_SHARE,
        "pacing": late is not None and late.middle < PACING_P99_MS,
        "voice-to-voice": error is not None and error.middle <= ERROR_P99_MS,
    }
    return [name for name, kept in found.items() if not kept]


def conversation_verdicts(rows: Sequence[ConversationRow]) -> list[TargetResult]:
    """The targets for conversations, each against the worst load that it is promised for."""
    ours = [row for row in rows if row.sender == OURS]
    promised = [row for row in ours if FEWEST_CALLERS <= row.callers <= MOST_CALLERS]
    if not ours:
        return []
    name = f"conversations, {FEWEST_CALLERS}–{MOST_CALLERS:,} callers"
    failed = any(row.failures and row.core_share is None for row in promised)

    def worst(value: Callable[[ConversationRow], Spread | None]) -> float | None:
        known = [value(row) for row in promised]
        middles = [each.middle for each in known if each is not None]
        return max(middles) if middles and len(middles) == len(known) else None

    late, error = declared_milliseconds(PACING_P99_MS * 1e6), declared_milliseconds(ERROR_P99_MS * 1e6)
    cost, lateness = worst(lambda row: row.times_control), worst(lambda row: row.lateness_p99_ms)
    unsent, off = worst(lambda row: row.never_sent_share), worst(lambda row: row.error_p99_ms)
    ratio, truth = f"{name}: CPU at most {MOST_TIMES_C:g} × callers in C", f"{name}: voice-to-voice p99 within {error}"
    held = all(row.turns_share is None or row.turns_share >= LEAST_TURNS_SHARE for row in promised)
    cheap = at_most(ratio, cost, MOST_TIMES_C, "{:.2f} ×" if held else "{:.2f} ×, at fewer turns", failed=failed)
    verdicts = [
        cheap if held else replace(cheap, met=False),
        below(f"{name}: pacing p99 below {late}", lateness, PACING_P99_MS, "{:,.2f} ms", failed=failed),
        at_most(f"{name}: nothing unsent", unsent, EDGE_SHARE, "{:.2%}", failed=failed),
        at_most(truth, off, ERROR_P99_MS, "{:,.2f} ms", failed=failed),
    ]
    fit = callers_of_a_core(rows)
    if fit is not None:
        target = f"{TARGET_CALLERS} conversations on {declared_percent(MOST_CORE_SHARE)} of a core"
        enough = fit.callers is not None and fit.callers >= TARGET_CALLERS
        # A series that ends below the target without missing anything says nothing about it.
        met = None if fit.how == "at least" and not enough else enough
        verdicts.append(TargetResult(target, sentence(fit), met))
    return verdicts


def sentence(fit: CallersOfACore) -> str:
    """The derived figure in words."""
    if fit.callers is None:
        return f"{fit.how} (missed: {fit.limit})"
    shown = f"{fit.callers:,} ({fit.how}"
    return f"{shown})" if fit.how != "largest load" else f"{shown}; the next one missed: {fit.limit})"
