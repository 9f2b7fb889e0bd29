"""Pictures of a corpus as PNG data URIs: distributions, and the waveform and spectrogram of a clip."""

import base64
import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.manifest import LONG_ABOVE_S, SHORT_BELOW_S

SPEECH: Final = "#2f6fab"
BOUND: Final = "#d1495b"
_FLOOR_DB: Final = -100.0
_MAX_BARS: Final = 20
_MINUS: Final = "−"


def _canvas(width: float, height: float, rows: int = 1, **ratios: Any) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, 1, **ratios)


def _data_uri(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def lengths(seconds: Sequence[float]) -> str:
    """A histogram of the speech durations, with the limits of short, medium and long."""
    figure, axes = _canvas(4.6, 2.4)
    axes.hist(seconds, bins=min(40, max(8, len(seconds) // 4)), color=SPEECH)
    for limit in (SHORT_BELOW_S, LONG_ABOVE_S):
        axes.axvline(limit, color=BOUND, linestyle="--", linewidth=1)
    axes.set_xlabel("seconds of speech")
    axes.set_ylabel("utterances")
    return _finish(figure, axes)


def floors(values: Sequence[float]) -> str:
    """A histogram of the level of the speech above the noise floor of its clip, in dB."""
    figure, axes = _canvas(4.6, 2.4)
    axes.hist(values, bins=min(40, max(8, len(values) // 4)), color=SPEECH)
    axes.set_xlabel("dB")
    axes.set_ylabel("utterances")
    return _finish(figure, axes)


def with_minus(text: str) -> str:
    """Figures with the minus sign that the axes of the pictures have."""
    return text.replace("-", _MINUS)


def obtained_snr(values: Sequence[float], requested_db: float) -> str:
    """A histogram of the measured SNR around the requested one, over at least the guaranteed ±0.1 dB."""
    figure, axes = _canvas(4.6, 2.4)
    width = max(0.1, *(abs(value - requested_db) for value in values))
    axes.hist(values, bins=41, range=(requested_db - width, requested_db + width), color=SPEECH)
    axes.axvline(requested_db, color=BOUND, linestyle="--", linewidth=1)
    axes.set_xlabel(with_minus(f"dB; requested {requested_db:g}"))
    axes.set_ylabel("utterances")
    return _finish(figure, axes)


def counts(named: Sequence[tuple[str, int]]) -> str:
    """A bar chart of the number of utterances by name, the most frequent on top; the rest share one bar."""
    shown = list(named[:_MAX_BARS])
    if len(named) > _MAX_BARS:
        shown.append((f"{len(named) - _MAX_BARS} others", sum(count for _, count in named[_MAX_BARS:])))
    figure, axes = _canvas(4.6, 0.9 + 0.22 * len(shown))
    # Matplotlib would parse a dollar sign as the start of a formula.
    labels = [name.replace("$", r"\$")[:40] for name, _ in shown]
    axes.barh(range(len(shown)), [count for _, count in shown], color=SPEECH)
    axes.set_yticks(range(len(shown)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("utterances")
    return _finish(figure, axes)


def _finish(figure: Any, axes: Any) -> str:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return _data_uri(figure)


def clip(samples: NDArray[np.float64], rate_hz: int, start_sample: int, end_sample: int) -> str:
    """Waveform and spectrogram of a clip, samples of shape (samples,), full scale ±1.0, with its speech bounds."""
    figure, (wave, spectrum) = _canvas(9.2, 3.6, 2, sharex=True, height_ratios=(1, 2))
    times_s = np.arange(len(samples)) / rate_hz
    wave.plot(times_s, samples, color=SPEECH, linewidth=0.4)
    wave.set_ylim(-1, 1)
    wave.set_ylabel("wave")
    window = 256 if rate_hz <= 16_000 else 512
    if len(samples) >= window:
        powers = _spectrogram(samples, window)
        spectrum.imshow(
            powers,
            origin="lower",
            aspect="auto",
            extent=(0.0, len(samples) / rate_hz, 0.0, rate_hz / 2000),
            vmin=_FLOOR_DB,
            vmax=-20.0,
            cmap="magma",
        )
    spectrum.set_ylabel("kHz")
    spectrum.set_xlabel("seconds")
    for axes in (wave, spectrum):
        for bound in (start_sample, end_sample):
            axes.axvline(bound / rate_hz, color=BOUND, linewidth=1.2)
    return _data_uri(figure)


def _spectrogram(samples: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Power in dB of full scale, shape (window // 2 + 1, frames)."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[:: window // 4]
    spectrum = np.fft.rfft(frames * np.hanning(window), axis=1) / (window / 4)
    return 10.0 * np.log10(np.maximum(np.square(np.abs(spectrum)), 10.0 ** (_FLOOR_DB / 10.0))).T
