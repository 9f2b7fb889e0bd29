"""The files of one call while it goes on: audio is written as it settles, the index when the call has ended."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import soundfile

from loadtest.audio.pcm import Pcm16
from loadtest.audio.resample import StreamResampler
from loadtest.engine.call_audio.heard_audio import HeardAudio
from loadtest.engine.call_audio.messages import CallOpened
from loadtest.engine.call_audio.sent_audio import SentAudio
from telemetry.store.private_files import FILE_MODE, make_folder, write_durably
from telemetry.store.recordings.kept_call import (
    AUDIO_SUFFIX,
    CHANNELS,
    INDEX_SUFFIX,
    NS_PER_S,
    UNFINISHED_SUFFIX,
    KeptCall,
    KeptTurn,
    file_stem,
    run_folder,
)

# Audio is written in pieces of at least this, and rendered in pieces of at most this.
_LEAST_S: Final = 5
_MOST_S: Final = 30
# The store and the audio share a disk: what telemetry needs is left to it.
LEAST_FREE_BYTES: Final = 256 << 20
# The first reply decides at what rate the file is; where none comes for so long, the caller's own does.
_WAIT_FOR_RATE_S: Final = 60
_RATES: Final = range(1, 655_351)  # that FLAC has
_MOST_EARLY: Final = 1000


class CallFile:
    """Writes one call. What fails is noted in the index; nothing is raised."""

    def __init__(
        self,
        recordings: Path,
        opened: CallOpened,
        sent: SentAudio,
        now_unix_ns: int,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._opened = opened
        self._sent = sent
        self._folder = run_folder(recordings, opened.run_id)
        self._created_unix_ns = now_unix_ns
        self._keep_until_unix_ns = now_unix_ns + opened.keep_for_ns
        self._stem = file_stem(opened.call_id, now_unix_ns, self._keep_until_unix_ns)
        self._free_bytes = free_bytes
        self._began_perf_ns: int | None = None
        self._heard: HeardAudio | None = None
        self._early: list[tuple[int, int, int, bytes | memoryview]] = []  # played before the caller's first frame
        self._rate_hz = opened.rate_hz
        self._resampler: StreamResampler | None = None
        self._caller = np.zeros(0, np.int16)  # resampled, and not written yet
        self._frames = 0  # of the caller that have been taken
        self._written = 0
        self._out: soundfile.SoundFile | None = None
        self._turns: list[KeptTurn] = []
        self._note: str | None = None

    def began(self, first_sample_perf_ns: int) -> None:
        """The first sample of the call was spoken."""
        self._began_perf_ns = first_sample_perf_ns
        for piece in self._early:
            self.played(*piece)
        self._early.clear()

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, audio: bytes | memoryview) -> None:
        """A piece of a reply is played from a moment. The first one decides at what rate the file is."""
        if rate_hz not in _RATES or self._note is not None:
            return
        if self._began_perf_ns is None:
            self._early += [(playback, rate_hz, start_perf_ns, audio)] if len(self._early) < _MOST_EARLY else []
            return
        heard = self._heard or self._begin_to_hear(rate_hz, self._began_perf_ns)
        heard.played(playback, rate_hz, start_perf_ns, np.frombuffer(audio, "<i2").astype(np.int16, copy=False))

    def _begin_to_hear(self, rate_hz: int, began_perf_ns: int) -> HeardAudio:
        if self._out is None:
            self._rate_hz = rate_hz
        self._heard = HeardAudio(self._rate_hz, began_perf_ns)
        return self._heard

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        """Nothing of a playback is heard from a moment."""
        if self._heard is not None:
            self._heard.stopped(playback, now_perf_ns)

    def lost(self, start_perf_ns: int, length_ns: int) -> None:
        """Audio was dropped before it came here."""
        if self._began_perf_ns is not None:
            (self._heard or self._begin_to_hear(self._rate_hz, self._began_perf_ns)).lost(start_perf_ns, length_ns)

    def recorded(self, turn: KeptTurn) -> None:
        """A turn of the call has been recorded."""
        self._turns.append(turn)

    def write_until(self, settled_perf_ns: int, *, everything: bool = False) -> None:
        """Write what does not change any more, if it is worth it."""
        if self._began_perf_ns is None or not self._opened.keeps_audio:
            return
        until = (settled_perf_ns - self._began_perf_ns) * self._rate_hz // NS_PER_S
        least_s = _LEAST_S if self._heard is not None or self._out is not None else _WAIT_FOR_RATE_S
        if until - self._written < (1 if everything else least_s * self._rate_hz):
            return
        try:
            while self._written < until and self._note is None:
                self._write(min(until, self._written + _MOST_S * self._rate_hz))
        except (OSError, soundfile.LibsndfileError, AssertionError) as error:
            # libsndfile writes fewer samples than it was given when the disk is full: soundfile asserts on that.
            reason = getattr(error, "strerror", None) or "the disk may be full"
            self._note = f"the audio could not be written ({reason})"

    def _write(self, end: int) -> None:
        out = self._out or self._open()
        if self._free_bytes(self._folder) < LEAST_FREE_BYTES:
            self._note = f"the audio ends here: the disk had less than {LEAST_FREE_BYTES >> 20} MiB left"
            return
        block = np.zeros((end - self._written, CHANNELS), np.int16)
        block[:, 0] = self._caller_until(end)
        if self._heard is not None:
            block[:, 1] = self._heard.taken(self._written, end)
        out.write(block)
        self._written = end

    def _open(self) -> soundfile.SoundFile:
        make_folder(self._folder)
        path = self._path(AUDIO_SUFFIX + UNFINISHED_SUFFIX)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        self._out = soundfile.SoundFile(path, "w", self._rate_hz, CHANNELS, "PCM_16", format="FLAC")
        return self._out

    def _caller_until(self, end: int) -> Pcm16:
        """The caller's samples from the last written one, at the file's rate."""
        own_hz, size = self._opened.rate_hz, self._opened.frame_samples
        self._resampler = self._resampler or StreamResampler(own_hz, self._rate_hz)
        wanted = end - self._written
        while len(self._caller) < wanted:
            # The resampler keeps some samples back, so a little more than what is wanted goes in.
            more = max(1, -(-(wanted - len(self._caller)) * own_hz // (self._rate_hz * size)))
            fed = self._resampler.feed(self._sent.taken(self._frames, self._frames + more))
            self._frames += more
            self._caller = np.concatenate([self._caller, fed])
        taken, self._caller = self._caller[:wanted], self._caller[wanted:]
        return taken

    def close(self, ended_perf_ns: int, *, lost: bool = False) -> None:
        """Write the rest and the index. A call is `lost` where its worker ended before it did."""
        self.write_until(ended_perf_ns, everything=True)
        if lost:
            self._note = self._note or "the process of the caller ended before the call did"
        is_kept = self._finish_audio()
        if not is_kept and self._note is None and not any(map(_has_text, self._turns)):
            return  # of a call that was never connected
        index = self._index(is_kept)
        try:
            make_folder(self._folder)
            unfinished = self._path(INDEX_SUFFIX + UNFINISHED_SUFFIX)
            write_durably(unfinished, msgspec.json.encode(index))
            unfinished.rename(self._path(INDEX_SUFFIX))
        except OSError:
            # Without its index the audio belongs to nothing.
            with contextlib.suppress(OSError):
                self._path(AUDIO_SUFFIX).unlink(missing_ok=True)

    def _finish_audio(self) -> bool:
        if self._out is None:
            return False
        unfinished = self._path(AUDIO_SUFFIX + UNFINISHED_SUFFIX)
        try:
            self._out.close()
            unfinished.rename(self._path(AUDIO_SUFFIX))
        except (OSError, soundfile.LibsndfileError) as error:
            self._note = f"the audio could not be written ({getattr(error, 'strerror', None) or error})"
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            return False
        if self._written:
            return True
        with contextlib.suppress(OSError):
            self._path(AUDIO_SUFFIX).unlink(missing_ok=True)
        return False

    def _index(self, is_kept: bool) -> KeptCall:
        began, opened = self._began_perf_ns or 0, self._opened
        call = KeptCall(
            run_id=opened.run_id,
            call_id=opened.call_id,
            trace_id=opened.trace_id,
            created_unix_ns=self._created_unix_ns,
            keep_until_unix_ns=self._keep_until_unix_ns,
            turns=(),
            rate_hz=self._rate_hz if is_kept else None,
            samples=self._written,
            began_perf_ns=began,
            missing=() if self._heard is None else tuple(self._heard.missing),
            note=self._note,
        )
        turns = tuple(
            msgspec.structs.replace(
                turn, first_sample=call.sample_at(turn.started_perf_ns), end_sample=call.sample_at(turn.ended_perf_ns)
            )
            for turn in self._turns
        )
        return msgspec.structs.replace(call, turns=turns)

    def _path(self, suffix: str) -> Path:
        return self._folder / f"{self._stem}{suffix}"


def _has_text(turn: KeptTurn) -> bool:
    return any(text is not None for text in (turn.asked, turn.transcript, turn.reply))
