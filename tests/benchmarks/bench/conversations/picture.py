"""Cost, pacing and error of conversations by the number of callers, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.bench.compared import MOST_CORE_SHARE, PACING_P99_MS
from tests.benchmarks.bench.conversations.compared import ERROR_P99_MS, ConversationRow
from tests.benchmarks.bench.conversations.rounds import TALKERS
from tests.benchmarks.bench.picture import draw_line, plain_numbers, save


def draw_conversations(rows: Sequence[ConversationRow], folder: Path, machine: str) -> list[Path]:
    """Three columns: share of a core, pacing and voice-to-voice error. The files that were written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    figure, (core, pacing, error) = plt.subplots(1, 3, figsize=(15, 4.5))
    for sender in TALKERS:
        mine = [row for row in rows if row.sender == sender]
        draw_line(core, sender, [(row.callers, row.core_share) for row in mine])
        draw_line(pacing, sender, [(row.callers, row.lateness_p99_ms) for row in mine])
        draw_line(error, sender, [(row.callers, row.error_p99_ms) for row in mine])
    core.set(title="conversations", ylabel="share of a core", ylim=(0, 1))
    pacing.set(ylabel="lateness p99, ms", yscale="log")
    error.set(ylabel="voice-to-voice error p99, ms", yscale="log")
    for axes, target in ((core, MOST_CORE_SHARE), (pacing, PACING_P99_MS), (error, ERROR_P99_MS)):
        axes.axhline(target, color="#2ca02c", linestyle=":", label="target")
        axes.set(xlabel="callers", xticks=sorted({row.callers for row in rows}))
        axes.legend(fontsize=8)
    plain_numbers(pacing, error)
    figure.suptitle(machine, fontsize=9)
    figure.tight_layout()
    return save(figure, folder / "conversations")
