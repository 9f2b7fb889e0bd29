"""From what callers and endpoint recorded of their conversations to figures. Pure; the same for ours and for C."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.stats import shown_percentile
from tests.benchmarks.bench.figures import PEER_CORE_SHARE, PEER_LATENESS_P99_MS, Lateness, percentiles_ms
from tests.benchmarks.bench.messages import FRAME_NS

# What is answered within this time before the window's end may still be on its way into the caller's record.
STILL_UNDER_WAY_NS: Final = 2_000_000_000
# Where more truths than this are not certain, the endpoint was interrupted too often to know what is true.
UNSURE_SHARE_LIMIT: Final = 0.1

# Callers in C state no interval.
NOT_STATED: Final = -1

Rows = NDArray[np.int64]


class TurnState(IntEnum):
    """How a caller's turn ended, in a row of its record."""

    UNANSWERED = 0
    ANSWERED = 1
    INVALID = 2


class TurnColumn(IntEnum):
    """What a row of a caller's record holds: moments on the monotonic clock, in ns."""

    CALLER = 0  # and the turn: as the answer names them
    TURN = 1
    SPEECH_END = 2
    HEARD = 3  # the reply's first audible sample, or its first chunk where nobody looks into it
    ENDED = 4
    STATE = 5
    SHORTER = 6  # by how much voice-to-voice may truly be shorter, and longer; NOT_STATED without an interval
    LONGER = 7


class TruthColumn(IntEnum):
    """What a row of the endpoint's record holds."""

    CALLER = 0
    TURN = 1
    SPEECH_END = 2
    SPEECH_END_CERTAIN = 3
    FIRST_CHUNK = 4
    FIRST_AUDIO = 5
    AUDIO_CERTAIN = 6
    REPLY_END = 7
    DONE = 8
    WORST_LAG = 9
    AUDIO_WITHIN = 10  # it sent the first audible sample at most so much later


@dataclass(frozen=True, slots=True)
class VoiceToVoiceError:
    """How far voice-to-voice is from the endpoint's truth, over so many turns; None where they are too few to say."""

    turns: int
    unsure: int  # left out: the truth is not certain
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class StatedWidths:
    """How wide the intervals are in which callers state that voice-to-voice lies, over so many turns, and how many do
    not contain the endpoint's truth; None where they are too few to say."""

    turns: int
    outside: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class ConversationFigures:
    """What the callers of one kind did in one window. None is what could not be measured."""

    callers: int
    window_s: float
    turns: int  # that ended in the window
    invalid: int
    unanswered: int
    missing: int  # that the endpoint answered in the window and the caller did not record
    invalid_by_reason: Mapping[str, int]
    cpu_us_per_caller_s: float
    core_share: float
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None
    lateness_max_ms: float | None
    due: int
    sent: int
    never_sent_share: float
    error: VoiceToVoiceError
    widths: StatedWidths
    peer_core_share: float | None
    peer_lag_p99_ms: float | None
    peer_was_limit: bool


def conversation_figures(
    callers: int, answer: dict[str, Any], lateness_ns: Lateness, records: tuple[Rows, Rows], peer: dict[str, Any]
) -> ConversationFigures:
    """`answer` and `peer` are what caller and endpoint printed, `records` their rows of turns.

    Where the caller looks for the first audible sample, `answer["hears"]` is "first_audio".
    """
    began, ended = answer["began_perf_ns"], answer["ended_perf_ns"]
    window_ns = ended - began
    turns, truths = records
    inside = turns[(turns[:, TurnColumn.ENDED] >= began) & (turns[:, TurnColumn.ENDED] < ended)]
    states = inside[:, TurnColumn.STATE]
    due = callers * window_ns // FRAME_NS
    p50, p99, worst = percentiles_ms(lateness_ns)
    true_of = {(row[TruthColumn.CALLER], row[TruthColumn.TURN]): row for row in truths.tolist()}
    heard = TruthColumn.FIRST_AUDIO if answer.get("hears") == "first_audio" else TruthColumn.FIRST_CHUNK
    error = voice_to_voice_error(inside.tolist(), true_of, heard)
    answered = truths[(truths[:, TruthColumn.DONE] >= began) & (truths[:, TruthColumn.DONE] < ended)]
    lags_ms = answered[:, TruthColumn.WORST_LAG] / 1e6
    lag_ms = shown_percentile(lags_ms.tolist(), "p99")
    share = share_of_core(peer["cpu"], began, ended)
    unsure = error.unsure > UNSURE_SHARE_LIMIT * max(1, error.turns + error.unsure)
    return ConversationFigures(
        callers=callers,
        window_s=window_ns / 1e9,
        turns=len(inside),
        invalid=int(np.count_nonzero(states == TurnState.INVALID)),
        unanswered=int(np.count_nonzero(states == TurnState.UNANSWERED)),
        missing=missing_turns(turns, answered[answered[:, TruthColumn.DONE] < ended - STILL_UNDER_WAY_NS]),
        invalid_by_reason=answer.get("invalid_by_reason", {}),
        cpu_us_per_caller_s=answer["cpu_ns"] / 1e3 / (callers * window_ns / 1e9),
        core_share=answer["cpu_ns"] / window_ns,
        lateness_p50_ms=p50,
        lateness_p99_ms=p99,
        lateness_max_ms=worst,
        due=due,
        sent=answer["sent"],
        never_sent_share=max(0.0, 1 - answer["sent"] / due) if due else 0.0,
        error=error,
        widths=stated_widths(inside.tolist(), true_of, heard),
        peer_core_share=share,
        peer_lag_p99_ms=lag_ms,
        peer_was_limit=unsure or (lag_ms or 0.0) > PEER_LATENESS_P99_MS or (share or 0.0) > PEER_CORE_SHARE,
    )


def voice_to_voice_error(
    turns: Sequence[Sequence[int]], true_of: Mapping[tuple[int, int], Sequence[int]], heard: TruthColumn
) -> VoiceToVoiceError:
    """Of the turns that were answered and are valid: what was measured against what the endpoint knows."""
    compared = _compared(turns, true_of, heard)
    sizes_ms = [abs(error_ns) / 1e6 for _, error_ns in compared if error_ns is not None]
    p50, p99 = shown_percentile(sizes_ms, "p50"), shown_percentile(sizes_ms, "p99")
    return VoiceToVoiceError(len(sizes_ms), len(compared) - len(sizes_ms), p50, p99, max(sizes_ms, default=None))


def stated_widths(
    turns: Sequence[Sequence[int]], true_of: Mapping[tuple[int, int], Sequence[int]], heard: TruthColumn
) -> StatedWidths:
    """Of the same turns, as far as they state an interval."""
    widths_ms: list[float] = []
    outside = 0
    for turn, error_ns in _compared(turns, true_of, heard):
        truth = true_of[turn[TurnColumn.CALLER], turn[TurnColumn.TURN]]
        shorter_ns, longer_ns = turn[TurnColumn.SHORTER], turn[TurnColumn.LONGER]
        if error_ns is None or NOT_STATED in (shorter_ns, longer_ns):
            continue
        widths_ms.append((shorter_ns + longer_ns) / 1e6)
        outside += not -longer_ns <= error_ns <= shorter_ns + truth[TruthColumn.AUDIO_WITHIN]
    p50, p99 = shown_percentile(widths_ms, "p50"), shown_percentile(widths_ms, "p99")
    return StatedWidths(len(widths_ms), outside, p50, p99, max(widths_ms, default=None))


def _compared(
    turns: Sequence[Sequence[int]], true_of: Mapping[tuple[int, int], Sequence[int]], heard: TruthColumn
) -> list[tuple[Sequence[int], int | None]]:
    """The turns that were answered and are valid, each with measured - true in ns; None where the truth is not
    certain."""
    found: list[tuple[Sequence[int], int | None]] = []
    for turn in turns:
        truth = true_of.get((turn[TurnColumn.CALLER], turn[TurnColumn.TURN]))
        if truth is None or turn[TurnColumn.STATE] != TurnState.ANSWERED:
            continue
        is_certain = truth[TruthColumn.SPEECH_END_CERTAIN] and truth[TruthColumn.AUDIO_CERTAIN]
        measured = turn[TurnColumn.HEARD] - turn[TurnColumn.SPEECH_END]
        true = truth[heard] - truth[TruthColumn.SPEECH_END]
        found.append((turn, measured - true if is_certain else None))
    return found


def missing_turns(turns: Rows, answered: Rows) -> int:
    """How many of the answers that the endpoint sent no caller has recorded."""
    recorded = {(row[TurnColumn.CALLER], row[TurnColumn.TURN]) for row in turns.tolist()}
    return sum((row[TruthColumn.CALLER], row[TruthColumn.TURN]) not in recorded for row in answered.tolist())


def share_of_core(looks: Sequence[Sequence[int]], began_perf_ns: int, ended_perf_ns: int) -> float | None:
    """What a process used between the looks (moment, CPU time so far, in ns) just around a window."""
    before = [look for look in looks if look[0] <= began_perf_ns]
    after = [look for look in looks if look[0] >= ended_perf_ns]
    if not before or not after:
        return None
    return (after[0][1] - before[-1][1]) / (after[0][0] - before[-1][0])
