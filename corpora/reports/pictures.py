"""Pictures of a corpus as PNG data URIs: distributions, and the waveform and spectrogram of a clip."""

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import altair as alt
import numpy as np
import vl_convert
from numpy.typing import NDArray

from corpora.manifest.manifest import LONG_ABOVE_S, SHORT_BELOW_S

SPEECH: Final = "#2f6fab"
BOUND: Final = "#d1495b"
_FLOOR_DB: Final = -100.0
_MAX_BARS: Final = 20
_MINUS: Final = "−"
_LOUDEST_DB: Final = -20.0
# Of a clip's picture, in px; the wave has so many columns.
_WIDTH: Final = 800
_HEIGHT: Final = 160


def _data_uri(chart: Any, width: int) -> str:
    whole: Any = chart.configure_view(stroke=None).configure_axis(gridOpacity=0.4, titleFontWeight="normal")
    spec = whole.to_dict(validate=False)
    for view in spec.get("vconcat", [spec]):
        view["width"] = width
    return "data:image/png;base64," + base64.b64encode(vl_convert.vegalite_to_png(spec, scale=1.25)).decode()


def _rows(rows: Iterable[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(list(rows)))  # type: ignore[arg-type]


def _rules(values: Sequence[float], **mark: Any) -> alt.Chart:
    return _rows({"at": value} for value in values).mark_rule(color=BOUND, **mark).encode(x="at:Q")


def _histogram(values: Sequence[float], title: str, bins: int, marks: Sequence[float], reach: float = 0.0) -> str:
    """Bars of the numbers of values; as far to both sides of the mark as `reach` says, where it does."""
    extent = (marks[0] - reach, marks[0] + reach) if reach else None
    heights, edges = np.histogram(values, bins, extent)
    rows = (
        {"low": low, "high": high, "n": n} for low, high, n in zip(edges, edges[1:], heights.tolist(), strict=False)
    )
    scale = alt.Scale(zero=False, nice=False)
    x = alt.X("low:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6, labelOverlap=True))
    bars = _rows(rows).mark_rect(color=SPEECH, stroke="white", strokeWidth=0.5)
    utterances = alt.Y("n:Q", title="utterances", axis=alt.Axis(tickMinStep=1))
    drawn = bars.encode(x=x, x2="high:Q", y=utterances, y2=alt.Y2Datum(0))
    return _data_uri(alt.layer(drawn, _rules(marks, strokeDash=[5, 3])).properties(height=170), 380)


def _bins(values: Sequence[float]) -> int:
    return min(40, max(8, len(values) // 4))


def lengths(seconds: Sequence[float]) -> str:
    """A histogram of the speech durations, with the limits of short, medium and long."""
    return _histogram(seconds, "seconds of speech", _bins(seconds), (SHORT_BELOW_S, LONG_ABOVE_S))


def floors(values: Sequence[float]) -> str:
    """A histogram of the level of the speech above the noise floor of its clip, in dB."""
    return _histogram(values, "dB", _bins(values), ())


def with_minus(text: str) -> str:
    """Figures with the minus sign that the axes of the pictures have."""
    return text.replace("-", _MINUS)


def obtained_snr(values: Sequence[float], requested_db: float) -> str:
    """A histogram of the measured SNR around the requested one, over at least the guaranteed ±0.1 dB."""
    width = max(0.1, *(abs(value - requested_db) for value in values))
    return _histogram(values, with_minus(f"dB; requested {requested_db:g}"), 41, (requested_db,), width)


def counts(named: Sequence[tuple[str, int]]) -> str:
    """A bar chart of the number of utterances by name, the most frequent on top; the rest share one bar."""
    shown = list(named[:_MAX_BARS])
    if len(named) > _MAX_BARS:
        shown.append((f"{len(named) - _MAX_BARS} others", sum(count for _, count in named[_MAX_BARS:])))
    rows = ({"place": place, "name": name[:40], "n": count} for place, (name, count) in enumerate(shown))
    y = alt.Y("name:N", sort=alt.EncodingSortField("place"), title=None, axis=alt.Axis(labelLimit=220))
    x = alt.X("n:Q", title="utterances", axis=alt.Axis(tickMinStep=1))
    return _data_uri(_rows(rows).mark_bar(color=SPEECH).encode(x=x, y=y).properties(height=18 * len(shown)), 300)


def clip(samples: NDArray[np.float64], rate_hz: int, start_sample: int, end_sample: int) -> str:
    """Waveform and spectrogram of a clip, samples of shape (samples,), full scale ±1.0, with its speech bounds."""
    bounds = _rules((start_sample / rate_hz, end_sample / rate_hz), strokeWidth=1.2)
    step = max(1, len(samples) // _WIDTH)
    columns = ((at / rate_hz, samples[at : at + step]) for at in range(0, len(samples), step))
    peaks = _rows({"at": at, "low": float(part.min()), "high": float(part.max())} for at, part in columns)
    seconds: dict[str, Any] = {"scale": alt.Scale(domain=[0, len(samples) / rate_hz], nice=False)}
    wave = peaks.mark_area(color=SPEECH).encode(
        x=alt.X("at:Q", title=None, axis=alt.Axis(labels=False), **seconds),
        y=alt.Y("low:Q", title="wave", scale=alt.Scale(domain=[-1, 1])),
        y2="high:Q",
    )
    frequencies = _rows([{"at": 0.0, "khz": 0.0, "url": _sonagram(samples, rate_hz)}])
    levels = frequencies.mark_image(width=_WIDTH, height=_HEIGHT, aspect=False, align="left", baseline="bottom").encode(
        x=alt.X("at:Q", title="seconds", **seconds),
        y=alt.Y("khz:Q", title="kHz", scale=alt.Scale(domain=[0, rate_hz / 2000], nice=False)),
        url="url:N",
    )
    picture = alt.vconcat(
        alt.layer(wave, bounds).properties(height=80), alt.layer(levels, bounds).properties(height=160)
    )
    return _data_uri(picture, 800)


def _sonagram(samples: NDArray[np.float64], rate_hz: int) -> str:
    """The power by time and frequency, the louder the darker, as the data URI of an image."""
    window = 256 if rate_hz <= 16_000 else 512
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(samples, (0, window)), window)[:: window // 4]
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(window), axis=1) / (window / 4)))
    level_db = np.clip(10 * np.log10(np.maximum(power, 1e-10)), _FLOOR_DB, _LOUDEST_DB).T[::-1]
    gray = np.round(255 * (_LOUDEST_DB - level_db) / (_LOUDEST_DB - _FLOOR_DB)).astype(np.uint8)
    height, width = gray.shape
    lines = b"".join(b"\0" + line.tobytes() for line in gray)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(written)).decode()
