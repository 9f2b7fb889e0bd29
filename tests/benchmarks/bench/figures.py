"""Figures from the records of callers and endpoint. Pure; one definition for every sender."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from telemetry.model.stats import shown_percentile
from tests.benchmarks.bench.modes import FRAME_NS
from tests.benchmarks.bench.paired import Figures

# Of a sender that sent next to nothing, neither a cost nor a lateness of each frame says anything.
LEAST_SENT_SHARE: Final = 0.01
# An endpoint beyond these was not ready for its callers, and the comparison says so.
ENDPOINT_LATENESS_P99_MS: Final = 5.0
ENDPOINT_CORE_SHARE: Final = 0.9
# Where more truths than this are not certain, the endpoint was interrupted too often to know what is true.
UNSURE_SHARE_LIMIT: Final = 0.1
# What is answered within this time before the window's end may still be on its way into the caller's record.
STILL_UNDER_WAY_NS: Final = 2_000_000_000
# Callers in C state no interval.
NOT_STATED: Final = -1

Rows = NDArray[np.int64]


class TurnState(IntEnum):
    """End of a caller's turn, in a row of its record."""

    UNANSWERED = 0
    ANSWERED = 1
    INVALID = 2


class TurnColumn(IntEnum):
    """Columns of a caller's record: moments on the monotonic clock, in ns."""

    CALLER = 0  # and the turn: as the answer names them
    TURN = 1
    SPEECH_END = 2
    HEARD = 3  # the reply's first audible sample, or its first chunk where nobody looks into it
    ENDED = 4
    STATE = 5
    SHORTER = 6  # by how much voice-to-voice may truly be shorter, and longer; NOT_STATED without an interval
    LONGER = 7


class TruthColumn(IntEnum):
    """Columns of the endpoint's record."""

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


def figures(
    callers: int, answer: dict[str, Any], lateness_ns: Rows, records: tuple[Rows, Rows], endpoint: dict[str, Any]
) -> Figures:
    """`answer` and `endpoint` are what caller and endpoint printed, `records` their rows of turns. Milliseconds, and
    None for what could not be measured, such as the cost of no frame.

    Where the caller looks for the first audible sample, `answer["hears"]` is "first_audio".
    """
    began, ended = answer["began_perf_ns"], answer["ended_perf_ns"]
    window_ns = ended - began
    due, sent = callers * window_ns // FRAME_NS, answer["sent"]
    has_figures = 0 < sent >= LEAST_SENT_SHARE * due
    late_ms = lateness_ns / 1e6 if has_figures else lateness_ns[:0]
    turns, truths = records
    inside = turns[(turns[:, TurnColumn.ENDED] >= began) & (turns[:, TurnColumn.ENDED] < ended)]
    states = inside[:, TurnColumn.STATE]
    answered = truths[(truths[:, TruthColumn.DONE] >= began) & (truths[:, TruthColumn.DONE] < ended)]
    lag_ms = shown_percentile((answered[:, TruthColumn.WORST_LAG] / 1e6).tolist(), "p99")
    share = share_of_core(endpoint["cpu"], began, ended)
    of_truth = _compared_with_truth(inside, truths, answer.get("hears") == "first_audio")
    unsure = of_truth["unsure"] > UNSURE_SHARE_LIMIT * max(1, len(inside))
    was_limit = unsure or (lag_ms or 0.0) > ENDPOINT_LATENESS_P99_MS or (share or 0.0) > ENDPOINT_CORE_SHARE
    return {
        "cpu_us": answer["cpu_ns"] / 1e3 / sent if has_figures else None,
        "core": answer["cpu_ns"] / window_ns,
        "late_p50": float(np.quantile(late_ms, 0.5)) if len(late_ms) else None,
        "late_p99": float(np.quantile(late_ms, 0.99)) if len(late_ms) else None,
        "late_max": float(late_ms.max()) if len(late_ms) else None,
        "unsent": max(0.0, 1 - sent / due) if due else 0.0,
        **of_truth,
        "turns": len(inside),
        "invalid": int(np.count_nonzero(states == TurnState.INVALID)),
        "unanswered": int(np.count_nonzero(states == TurnState.UNANSWERED)),
        "missing": missing_turns(turns, answered[answered[:, TruthColumn.DONE] < ended - STILL_UNDER_WAY_NS]),
        "endpoint_was_limit": float(was_limit),
        **{f"invalid by {reason}": number for reason, number in answer.get("invalid_by_reason", {}).items()},
    }


def _compared_with_truth(turns: Rows, truths: Rows, hears_audio: bool) -> dict[str, Any]:
    """Return for the answered, valid turns: what was measured against what the endpoint knows, how wide the
    stated intervals are, and how many of them do not contain the truth."""
    heard = TruthColumn.FIRST_AUDIO if hears_audio else TruthColumn.FIRST_CHUNK
    true_of = {(row[TruthColumn.CALLER], row[TruthColumn.TURN]): row for row in truths.tolist()}
    errors_ms: list[float] = []
    widths_ms: list[float] = []
    unsure = outside = 0
    for turn in turns.tolist():
        truth = true_of.get((turn[TurnColumn.CALLER], turn[TurnColumn.TURN]))
        if truth is None or turn[TurnColumn.STATE] != TurnState.ANSWERED:
            continue
        if not (truth[TruthColumn.SPEECH_END_CERTAIN] and truth[TruthColumn.AUDIO_CERTAIN]):
            unsure += 1
            continue
        true_ns = truth[heard] - truth[TruthColumn.SPEECH_END]
        error_ns = turn[TurnColumn.HEARD] - turn[TurnColumn.SPEECH_END] - true_ns
        errors_ms.append(abs(error_ns) / 1e6)
        shorter_ns, longer_ns = turn[TurnColumn.SHORTER], turn[TurnColumn.LONGER]
        if NOT_STATED not in (shorter_ns, longer_ns):
            widths_ms.append((shorter_ns + longer_ns) / 1e6)
            outside += not -longer_ns <= error_ns <= shorter_ns + truth[TruthColumn.AUDIO_WITHIN]
    return {
        "error_p50": shown_percentile(errors_ms, "p50"),
        "error_p99": shown_percentile(errors_ms, "p99"),
        "error_max": max(errors_ms, default=None),
        "width_p50": shown_percentile(widths_ms, "p50"),
        "width_p99": shown_percentile(widths_ms, "p99"),
        "compared": len(errors_ms),
        "unsure": unsure,
        "intervals": len(widths_ms),
        "outside": outside,
    }


def missing_turns(turns: Rows, answered: Rows) -> int:
    """Count the endpoint's answers that no caller recorded."""
    recorded = {(row[TurnColumn.CALLER], row[TurnColumn.TURN]) for row in turns.tolist()}
    return sum((row[TruthColumn.CALLER], row[TruthColumn.TURN]) not in recorded for row in answered.tolist())


def share_of_core(looks: Sequence[Sequence[int]], began_perf_ns: int, ended_perf_ns: int) -> float | None:
    """Return the core share of a process between the samples (moment, CPU time so far, in ns) just around a window."""
    before = [look for look in looks if look[0] <= began_perf_ns]
    after = [look for look in looks if look[0] >= ended_perf_ns]
    if not before or not after:
        return None
    return (after[0][1] - before[-1][1]) / (after[0][0] - before[-1][0])
