"""Conversion of a recording to a clip: one channel, resampled once, and normalized.

Loudness is normalized by the active speech level (ITU-T P.56, by default to -26 dBov) or by ITU-R BS.1770 (by default
to -23 LUFS). If that would clip, the clip is raised only until its peak is 1 dB below full scale. The processing is
stored in the manifest.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import soxr
from numpy.typing import NDArray

from corpora.annotation.bounds import find_speech_bounds
from corpora.annotation.levels import active_speech_level_dbov
from corpora.annotation.lint import CAME_CLIPPED, CLIPPED_RUN_SAMPLES, find_runs
from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import RATES_HZ
from corpora.sources.importing.decoding import Block, Stream, open_stream
from corpora.sources.importing.items import Channel, Item, Settings

_PEAK_DB = -1.0
_END_SLACK_S = 0.05
_LOUDNESS_BLOCK_S = 0.4  # the block of BS.1770, its shortest input
_NEARLY = 1 - 1e-5  # the same sample, whatever number of bits it has come through
_SAME = 1e-4  # channels that differ by less than -80 dB of full scale are equal

Samples = NDArray[np.float64]


def read_recording(item: Item, settings: Settings) -> tuple[Samples, int, list[str]]:
    """Read an item's audio: mono, resampled and normalized, shape (samples,); its rate in Hz; its processing steps.

    Raises CorpusError in a sentence that begins with the name of the file.
    """
    steps: list[str] = []
    with open_stream(item.audio, item.shown, settings.raw, item.start_s) as stream:
        targets = [int(transform.value) for transform in item.transforms if transform.kind == "resample"]
        own_rate_hz = targets[-1] if targets else stream.rate_hz
        rate_hz = settings.rate_hz or max(RATES_HZ[0], min(own_rate_hz, RATES_HZ[-1]))
        _check_length(item, stream, settings)
        channel = settings.channel if item.channel is None else item.channel
        if stream.channels > 1 and channel is not None:
            steps.append("channels mixed" if channel == "mix" else f"channel {channel} of {stream.channels}")
        clipped = _Clipping(stream.full_scale)
        mono = _one_channel(replace(stream, blocks=clipped.watched(stream.blocks, channel)), channel, item.shown)
        cut = _cut(mono, stream.rate_hz, item, settings)
        if item.transforms:
            samples = _transformed(_resampled(cut, stream.rate_hz, stream.rate_hz), stream.rate_hz, rate_hz, item)
            steps += [transform.label for transform in item.transforms]
        else:
            samples = _resampled(cut, stream.rate_hz, rate_hz)
        if rate_hz != stream.rate_hz:
            steps.append(f"resampled from {stream.rate_hz} Hz")
        steps += clipped.steps(stream.rate_hz, item.end_s, item.start_s)
    if not len(samples):
        raise CorpusError(f"{item.shown}: contains no samples{_between(item)}; remove or restore it.")
    try:
        return _normalized(samples, rate_hz, settings, steps), rate_hz, steps
    except CorpusError as error:
        raise CorpusError(f"{item.shown}: {error}{_between(item)}") from error


class _Clipping:
    """Clipping of a recording as delivered, before its channels are mixed and its level is set."""

    def __init__(self, full_scale: float) -> None:
        self._least = full_scale * _NEARLY
        self._full: list[NDArray[np.bool_]] = []

    def watched(self, blocks: Iterator[Block], channel: Channel) -> Iterator[Block]:
        """The blocks as they are; looks at the channel that is read, or at all that are."""
        for block in blocks:
            read = block[:, [channel]] if isinstance(channel, int) and channel < block.shape[1] else block
            self._full.append(np.max(np.abs(read), axis=1) >= self._least)
            yield block

    def steps(self, rate_hz: int, end_s: float | None, start_s: float) -> list[str]:
        """The sentence for the processing of a clip, if it is clipped; `end_s` and `start_s` are of its cut."""
        full = np.concatenate(self._full) if self._full else np.zeros(0, dtype=bool)
        if end_s is not None:
            full = full[: round((end_s - start_s) * rate_hz)]
        runs = find_runs(full, CLIPPED_RUN_SAMPLES)
        places = "1 place" if len(runs) == 1 else f"{len(runs)} places"
        return [f"{CAME_CLIPPED}{places}, first at {runs[0][0] / rate_hz:.2f} s"] if runs else []


def _between(item: Item) -> str:
    return "" if item.end_s is None else f" (from {item.start_s:.3f} to {item.end_s:.3f} s)"


def _check_length(item: Item, stream: Stream, settings: Settings) -> None:
    if item.end_s is not None and item.end_s <= item.start_s:
        raise CorpusError(
            f"{item.shown}: the end of the cut is not after its start{_between(item)}; correct the times."
        )
    if stream.frames is None:
        return
    file_s = stream.frames / stream.rate_hz
    if item.end_s is not None and item.end_s > file_s + _END_SLACK_S:
        raise CorpusError(
            f"{item.shown}: lasts {file_s:.3f} s, but is cut beyond that{_between(item)}; correct the times."
        )
    duration_s = (file_s if item.end_s is None else item.end_s) - item.start_s
    if duration_s > settings.max_s:
        raise _too_long(item, settings, f"lasts {duration_s:.1f} s and exceeds")


def _too_long(item: Item, settings: Settings, lasts: str) -> CorpusError:
    return CorpusError(
        f"{item.shown}: {lasts} the maximum of {settings.max_s:g} s; cut it into utterances or raise --max-seconds."
    )


def _one_channel(stream: Stream, channel: Channel, label: str) -> Iterator[Block]:
    if isinstance(channel, int) and channel >= stream.channels:
        raise CorpusError(f"{label}: has {stream.channels} channels, so there is no channel {channel}; choose another.")
    for block in stream.blocks:
        if stream.channels == 1:
            yield block[:, 0]
        elif channel == "mix":
            yield block.mean(axis=1, dtype=np.float32)
        elif channel is not None:
            yield np.ascontiguousarray(block[:, channel])
        elif float(np.max(np.abs(block - block[:, :1]))) <= _SAME:
            yield np.ascontiguousarray(block[:, 0])
        else:
            raise CorpusError(
                f"{label}: has {stream.channels} channels that differ; choose one with --channel (left, right, "
                "a number from 0, or mix), or import calls with --format stereo-calls."
            )


def _cut(mono: Iterator[Block], rate_hz: int, item: Item, settings: Settings) -> Iterator[Block]:
    """Cut a recording that was opened at the item's start; the length in its header is not trusted."""
    wanted = None if item.end_s is None else round((item.end_s - item.start_s) * rate_hz)
    max_samples = round(settings.max_s * rate_hz) + rate_hz
    count = 0
    for block in mono:
        piece = block if wanted is None else block[: wanted - count]
        count += len(piece)
        if count > max_samples:
            raise _too_long(item, settings, "exceeds")
        yield piece
        if wanted is not None and count >= wanted:
            return


def _resampled(blocks: Iterator[Block], from_hz: int, to_hz: int) -> Samples:
    if from_hz == to_hz:
        pieces = list(blocks)
    else:
        stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="VHQ")
        pieces = [cast("Block", stream.resample_chunk(block)) for block in blocks]
        pieces.append(cast("Block", stream.resample_chunk(np.zeros(0, dtype=np.float32), last=True)))
    return np.concatenate(pieces).astype(np.float64) if pieces else np.zeros(0)


def _transformed(samples: Samples, from_hz: int, to_hz: int, item: Item) -> Samples:
    """Apply an item's transforms in order and resample to the rate of the clip."""
    current_hz: float = from_hz
    for kind, value in [*((transform.kind, transform.value) for transform in item.transforms), ("resample", to_hz)]:
        if kind == "gain":
            samples = samples * value
            continue
        # Speech played at another rate changes pitch and speed together.
        start_hz, end_hz = (current_hz * value, current_hz) if kind == "speed" else (current_hz, value)
        if start_hz != end_hz and len(samples):
            samples = np.asarray(soxr.resample(samples, start_hz, end_hz, quality="VHQ"), dtype=np.float64)
        current_hz = end_hz
    return samples


def _normalized(samples: Samples, rate_hz: int, settings: Settings, steps: list[str]) -> Samples:
    peak = float(np.max(np.abs(samples)))
    if peak <= 0.0:
        raise CorpusError("The recording is digital silence; remove it.")
    headroom_db = _PEAK_DB - 20.0 * math.log10(peak)
    if settings.loudness == "none":
        gain_db = min(0.0, headroom_db) if peak > 1.0 else 0.0
        if gain_db:
            steps.append(f"lowered by {-gain_db:.1f} dB, it was overloaded")
        return samples * 10.0 ** (gain_db / 20.0)
    if settings.loudness == "asl":
        bounds = find_speech_bounds(samples, rate_hz)
        level_db, unit = active_speech_level_dbov(samples, rate_hz, bounds.start_sample, bounds.end_sample), "dBov ASL"
    else:
        level_db, unit = loudness_lufs(samples, rate_hz), "LUFS"
    target_gain_db = settings.level_db - level_db
    gain_db = min(target_gain_db, headroom_db)
    short = "" if gain_db == target_gain_db else f", {target_gain_db - gain_db:.1f} dB short of it for its peak"
    steps.append(f"{gain_db:+.1f} dB to {settings.level_db + gain_db - target_gain_db:.1f} {unit}{short}")
    return samples * 10.0 ** (gain_db / 20.0)


def loudness_lufs(samples: Samples, rate_hz: int) -> float:
    """Integrated loudness by ITU-R BS.1770; a clip shorter than a block of 400 ms is repeated to fill one."""
    import pyloudnorm

    shortest = math.ceil(_LOUDNESS_BLOCK_S * rate_hz) + 1
    measured = samples if len(samples) >= shortest else np.resize(samples, shortest)
    loudness = float(pyloudnorm.Meter(rate_hz).integrated_loudness(measured))
    if not math.isfinite(loudness):
        raise CorpusError("The clip is too quiet for BS.1770 loudness; use --loudness asl.")
    return loudness
