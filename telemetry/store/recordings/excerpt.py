"""The part of a kept call that a page shows and plays: peaks of both channels, and the audio of a period of it."""

import io
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import soundfile

from telemetry.store.recordings.files import find_call
from telemetry.store.recordings.kept_call import CHANNELS, NS_PER_S, KeptCall, KeptTurn

# Of a call that goes on for hours this much is sent to a browser: at 24 kHz some 10 MB.
MOST_AUDIO_S: Final = 300
_PEAKS: Final = 900
_BLOCK_SAMPLES: Final = 1 << 20
_FULL_SCALE: Final = 32_768
MEDIA_TYPE: Final = "audio/flac"


class CallExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A period of a call on the clock of its turns. `audio` is FLAC of two channels, None if there is none.

    `peaks` has for each channel the largest sample of each of equally long parts of the period, 0 to 1. `missing` are
    the parts of it whose audio was dropped, as times.
    """

    first_perf_ns: int = 0
    end_perf_ns: int = 0
    peaks: tuple[tuple[float, ...], ...] = ()
    audio: bytes | None = None
    missing: tuple[tuple[int, int, str], ...] = ()
    turn: KeptTurn | None = None
    note: str | None = None
    fault: str | None = None
    expires_unix_ns: int = 0


class CallOfTurn(msgspec.Struct, frozen=True):
    """The wanted period of a call: that of a turn, with what is around it, as moments of the turns' clock."""

    run_id: str
    call_id: str
    turn_index: int
    first_perf_ns: int
    end_perf_ns: int


def excerpt(store: Path, wanted: CallOfTurn, now_unix_ns: int) -> CallExcerpt | None:
    """The period of a kept call; None if nothing is kept of the call. Faults are sentences of the answer."""
    kept = find_call(store, wanted.run_id, wanted.call_id, now_unix_ns)
    if kept is None:
        return None
    call = kept.call
    if call is None:
        return CallExcerpt(fault=kept.fault)
    turn, expires = call.turn(wanted.turn_index), call.keep_until_unix_ns
    if kept.audio is None:
        return CallExcerpt(turn=turn, note=call.note, fault=kept.fault, expires_unix_ns=expires)
    first = call.sample_at(wanted.first_perf_ns)
    most = MOST_AUDIO_S * (call.rate_hz or 1)
    end = min(call.sample_at(wanted.end_perf_ns), first + most)
    try:
        samples = _read(kept.audio, call, first, end)
    except (OSError, soundfile.LibsndfileError, ValueError):
        fault = f"{Path(kept.audio).name}: is damaged: its audio cannot be read"
        return CallExcerpt(turn=turn, note=call.note, fault=fault, expires_unix_ns=expires)
    is_cut = len(samples) < end - first
    return CallExcerpt(
        first_perf_ns=_moment(call, first),
        end_perf_ns=_moment(call, first + len(samples)),
        peaks=tuple(_peaks(samples[:, channel]) for channel in range(CHANNELS)),
        audio=_encoded(samples, call.rate_hz or 1) if len(samples) else None,
        missing=tuple(_missing(call, first, end)),
        turn=turn,
        note=call.note,
        fault=f"{Path(kept.audio).name}: is cut off: it lacks the end of this stretch" if is_cut else None,
        expires_unix_ns=expires,
    )


def _read(path: str, call: KeptCall, first: int, end: int) -> Any:
    """Samples of shape (n, 2); fewer than requested from a truncated file."""
    with soundfile.SoundFile(path) as file:
        if file.channels != CHANNELS or file.samplerate != call.rate_hz:
            raise ValueError("another format than its index says")
        end = min(end, file.frames)
        if end <= first:
            return np.zeros((0, CHANNELS), np.int16)
        file.seek(first)
        parts: list[Any] = []
        left = end - first
        while left > 0:
            part = file.read(min(left, _BLOCK_SAMPLES), dtype="int16")
            if not len(part):
                break
            parts.append(part)
            left -= len(part)
        return np.concatenate(parts) if parts else np.zeros((0, CHANNELS), np.int16)


def _moment(call: KeptCall, sample: int) -> int:
    return call.began_perf_ns + sample * NS_PER_S // (call.rate_hz or 1)


def _peaks(channel: Any) -> tuple[float, ...]:
    if not len(channel):
        return ()
    starts = np.unique(np.linspace(0, len(channel), _PEAKS, endpoint=False).astype(np.int64))
    greatest = np.maximum.reduceat(np.abs(channel.astype(np.int32)), starts)
    return tuple(np.round(greatest / _FULL_SCALE, 3).tolist())


def _encoded(samples: Any, rate_hz: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def _missing(call: KeptCall, first: int, end: int) -> list[tuple[int, int, str]]:
    return [
        (_moment(call, max(gap.first_sample, first)), _moment(call, min(gap.end_sample, end)), gap.reason)
        for gap in call.missing
        if gap.end_sample > first and gap.first_sample < end
    ]
