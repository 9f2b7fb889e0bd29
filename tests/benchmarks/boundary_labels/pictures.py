"""The pictures for labeling: spectrogram, waveform, magnified waveform and level on one time axis.

No result of a detector is used or drawn. The view is chosen by a crude level with a wide margin.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import signal

from tests.benchmarks.boundary_labels.crude_level import level_db
from tests.benchmarks.boundary_labels.sources import Pcm

Bound = Literal["start", "end"]
SIZE_PX: Final = (1400, 840)  # vision models scale larger pictures down
_DPI: Final = 100
_BEFORE_MS, _AFTER_MS = 250, 500  # around the last loud part (mirrored at the start), so that it is at a third
_WIDEST_MS: Final = 1_000
_LOUD_DB, _SOFT_DB = 15, 32  # below the loud parts: what the picture is positioned by, and what must also be in it
_ABOVE_FLOOR_DB: Final = 12
_PAST_FILE_MS: Final = 20
_WINDOW_MS: Final = 5.0
_RANGE_DB: Final = 60
_HIGHEST_HZ: Final = 8_000
_MAGNIFIED: Final = 25
_FFT_MS: Final = 32
_UPPER_HZ: Final = 1_000  # of the second level curve, in which rumble and murmur do not mask friction


@dataclass(frozen=True, slots=True)
class View:
    """The part of a file in a picture, in ms. `cut` means that some of the soft sound is outside."""

    begin_ms: int
    end_ms: int
    cut: bool


def view(pcm: Pcm, rate_hz: int, which: Bound) -> View:
    """Choose the view of a bound. The start is the end of the time-reversed clip."""
    length_ms = len(pcm) * 1000 / rate_hz
    if which == "start":
        reversed_view = view(pcm[::-1], rate_hz, "end")
        return View(
            round(length_ms) - reversed_view.end_ms, round(length_ms) - reversed_view.begin_ms, reversed_view.cut
        )
    level = level_db(pcm, rate_hz, 20)
    loud = float(np.percentile(level, 95))
    floor = float(np.percentile(level, 5))
    last_loud = int(np.flatnonzero(level > loud - _LOUD_DB)[-1])
    last_soft = int(np.flatnonzero(level > max(loud - _SOFT_DB, min(floor + _ABOVE_FLOOR_DB, loud - _LOUD_DB)))[-1])
    begin = last_loud - _BEFORE_MS
    target_end = max(last_loud + _AFTER_MS, last_soft + _AFTER_MS // 2)
    end = min(target_end, begin + _WIDEST_MS, int(length_ms) + _PAST_FILE_MS)
    return View(max(begin, -_PAST_FILE_MS), end, target_end > begin + _WIDEST_MS and length_ms > end)


def draw(file: Path, pcm: Pcm, rate_hz: int, title: str, shown: View) -> None:
    """Write one picture of 1400 × 840 px."""
    samples = pcm.astype(np.float64) / 32_768.0
    with mpl.rc_context({"font.size": 9, "axes.linewidth": 0.6, "path.simplify": False}):
        figure = Figure(figsize=(SIZE_PX[0] / _DPI, SIZE_PX[1] / _DPI), dpi=_DPI)
        heights = [330, 110, 150, 170]
        axes: list[Axes] = list(figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": heights}))
        figure.subplots_adjust(left=0.045, right=0.993, top=0.925, bottom=0.045, hspace=0.135)
        figure.suptitle(title, x=0.01, y=0.992, ha="left", va="top", fontsize=11)
        _spectrogram(axes[0], samples, rate_hz, shown)
        _waveforms(axes[1], axes[2], samples, rate_hz, shown)
        _level(axes[3], samples, rate_hz)
        for place, axis in enumerate(axes):
            _time_axis(axis, shown, len(pcm) * 1000 / rate_hz, top=place == 0)
        figure.savefig(file)


def _spectrogram(axis: Axes, samples: NDArray[np.float64], rate_hz: int, shown: View) -> None:
    taps = round(_WINDOW_MS * rate_hz / 1000)
    hop_ms = 0.5
    times = np.arange(shown.begin_ms, shown.end_ms + hop_ms, hop_ms)
    starts = np.rint(times * rate_hz / 1000 - taps / 2).astype(int)
    frames = np.pad(samples, taps * 40)
    inside = (starts + taps > 0) & (starts < len(samples))
    picked = np.clip(starts + taps * 40, 0, len(frames) - taps)[:, None] + np.arange(taps)
    size = 2 ** int(np.ceil(np.log2(_FFT_MS * rate_hz / 1000)))
    power = np.abs(np.fft.rfft(frames[picked] * np.hanning(taps), size)) ** 2
    db = 10 * np.log10(np.maximum(power, 1e-12))
    db[~inside] = -200
    top = float(db.max())
    highest = min(rate_hz / 2, _HIGHEST_HZ)
    rows = int(highest / (rate_hz / size)) + 1
    axis.imshow(
        db[:, :rows].T, origin="lower", aspect="auto", cmap="gray_r", vmin=top - _RANGE_DB, vmax=top,
        extent=(shown.begin_ms - hop_ms / 2, shown.end_ms + hop_ms / 2, 0, highest), interpolation="bilinear",
    )  # fmt: skip
    axis.set_ylim(0, highest)
    axis.set_yticks(
        np.arange(0, highest + 1, 1000), [f"{value // 1000:g}k" for value in np.arange(0, highest + 1, 1000)]
    )
    axis.set_ylabel(f"Hz ({_WINDOW_MS:g} ms window, {_RANGE_DB} dB)", labelpad=1)


def _waveforms(plain: Axes, magnified: Axes, samples: NDArray[np.float64], rate_hz: int, shown: View) -> None:
    begin, end = (max(0, int(ms * rate_hz / 1000)) for ms in (shown.begin_ms, shown.end_ms))
    piece = samples[begin:end]
    peak = float(np.max(np.abs(samples)))
    times = (begin + np.arange(len(piece))) * 1000 / rate_hz
    for axis, gain, label in ((plain, 1, "× 1"), (magnified, _MAGNIFIED, f"× {_MAGNIFIED}, clipped")):
        axis.plot(times, np.clip(piece / peak * gain, -1.05, 1.05), color="#102a6b", linewidth=0.7)
        axis.set_ylim(-1.05, 1.05)
        axis.set_yticks([])
        axis.set_ylabel(label, labelpad=4)
        axis.axhline(0, color="#888888", linewidth=0.4)


def _level(axis: Axes, samples: NDArray[np.float64], rate_hz: int) -> None:
    above = signal.sosfiltfilt(signal.butter(4, _UPPER_HZ, "highpass", fs=rate_hz, output="sos"), samples)
    for band, color, label in ((above, "#d06000", f"above {_UPPER_HZ} Hz"), (samples, "black", "all")):
        level = level_db(np.asarray(band, dtype=np.float64), rate_hz, _WINDOW_MS)
        axis.plot(np.arange(len(level)), level, color=color, linewidth=1.1, label=label)
    axis.legend(loc="upper right", fontsize=8, ncols=2, framealpha=0.8, borderpad=0.2)
    axis.set_ylim(-92, 0)
    axis.set_yticks(range(-90, 1, 10))
    axis.grid(axis="y", color="#999999", linewidth=0.35)
    axis.set_ylabel("dBFS (5 ms)", labelpad=1)


def _time_axis(axis: Axes, shown: View, length_ms: float, *, top: bool) -> None:
    axis.set_xlim(shown.begin_ms, shown.end_ms)
    tens = np.arange(int(np.ceil(shown.begin_ms / 10)) * 10, shown.end_ms + 1, 10)
    fifties = tens[tens % 50 == 0]
    axis.set_xticks(fifties, [str(value) for value in fifties])
    axis.set_xticks(tens[tens % 50 != 0], minor=True)
    axis.tick_params(axis="x", which="both", bottom=True, top=top, labelbottom=True, labeltop=top, pad=1, length=3)
    axis.tick_params(axis="x", which="major", labelsize=9.5, length=5)
    for value in tens:
        strong = value % 50 == 0
        axis.axvline(
            float(value), color="#d02020" if strong else "#3a8f3a", linewidth=0.8 if strong else 0.45,
            alpha=0.75 if strong else 0.55, zorder=0.9 if not top else 3,
        )  # fmt: skip
    for begin, end in ((shown.begin_ms, 0.0), (length_ms, float(shown.end_ms))):
        if begin < end:
            axis.axvspan(begin, end, facecolor="#f3d9a8", edgecolor="#b07000", hatch="//", linewidth=0.5, zorder=4)
