"""The process that writes the audio of a worker's calls: `python -m loadtest.engine.call_audio.writer FOLDER`.

Messages come over standard input, a socket. It ends when the worker has closed its end, or was killed: what has arrived
by then is written. It yields the processor to those whose audio is due.
"""

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from loadtest.engine.call_audio.call_file import CallFile
from loadtest.engine.call_audio.messages import CallOpened, KeeperDeframer, KeeperMessage, KeeperMessageKind, ns_of
from loadtest.engine.call_audio.sent_audio import SentAudio, SentFormat
from telemetry.model.personal_data import text_without_personal_data
from telemetry.store.recordings.kept_call import KeptTurn, PartialText

NICENESS: Final = 10
_READ_BYTES: Final = 1 << 20
_SETTLED_AFTER_NS: Final = 5_000_000_000  # by how much the moment of a SETTLED message lies in the past

Pcm = np.ndarray[tuple[int], np.dtype[np.int16]]


class CallAudioWriter:
    """Takes messages and writes the files of the calls that they are about."""

    def __init__(self, recordings: Path, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._recordings = recordings
        self._wall_clock_ns = wall_clock_ns
        self._files: dict[int, CallFile] = {}
        self._sent: dict[int, SentAudio] = {}
        self._backgrounds: dict[int, Pcm] = {}
        self._latest_perf_ns = 0

    def take(self, message: KeeperMessage) -> None:
        """Account for one message."""
        kind, number, _, _, at, payload = message
        if kind == KeeperMessageKind.BACKGROUND:
            self._backgrounds[at] = _pcm(payload)
        elif kind == KeeperMessageKind.OPEN:
            self._open(number, msgspec.msgpack.decode(payload, type=CallOpened))
        elif kind == KeeperMessageKind.SETTLED:
            self._latest_perf_ns = at + _SETTLED_AFTER_NS
            for file in self._files.values():
                file.write_until(at)
        elif (file := self._files.get(number)) is not None:
            self._take_of_call(file, message)

    def _open(self, number: int, opened: CallOpened) -> None:
        none = np.zeros(0, np.int16)
        background = self._backgrounds.get(opened.line, none)
        sent = SentAudio(SentFormat(opened.rate_hz, opened.frame_samples, background, opened.background_first))
        self._sent[number] = sent
        self._files[number] = CallFile(self._recordings, opened, sent, self._wall_clock_ns())

    def _take_of_call(self, file: CallFile, message: KeeperMessage) -> None:
        kind, number, playback, rate_hz, at, payload = message
        if kind == KeeperMessageKind.PLAYED:
            file.played(playback, rate_hz, at, payload)
        elif kind == KeeperMessageKind.STOPPED:
            file.stopped(playback, at)
        elif kind == KeeperMessageKind.BEGAN:
            file.began(at)
        elif kind == KeeperMessageKind.SPOKE:
            self._sent[number].spoke(at, _pcm(payload))
        elif kind == KeeperMessageKind.MUTED:
            self._sent[number].muted(at)
        elif kind == KeeperMessageKind.LOST:
            file.lost(at, ns_of(payload))
        elif kind == KeeperMessageKind.TURN:
            file.recorded(_without_personal_data(msgspec.msgpack.decode(payload, type=KeptTurn)))
        elif kind == KeeperMessageKind.CLOSE:
            file.close(at)
            del self._files[number], self._sent[number]

    def close(self) -> None:
        """Write what is left of calls that did not end."""
        for file in self._files.values():
            file.close(self._latest_perf_ns, lost=True)
        self._files.clear()


def _pcm(payload: bytes | memoryview) -> Pcm:
    return np.frombuffer(payload, "<i2").astype(np.int16, copy=False)


def _without_personal_data(turn: KeptTurn) -> KeptTurn:
    """The turn with marks in place of personal data in its texts, as in all texts that are kept."""

    def clean(text: str | None) -> str | None:
        return None if text is None else text_without_personal_data(text)

    return msgspec.structs.replace(
        turn,
        asked=clean(turn.asked),
        transcript=clean(turn.transcript),
        reply=clean(turn.reply),
        partials=tuple(
            PartialText(partial.after_ns, text_without_personal_data(partial.text)) for partial in turn.partials
        ),
    )


def _yield_the_processor() -> None:
    os.nice(max(0, NICENESS - os.getpriority(os.PRIO_PROCESS, 0)))
    # Where Linux groups processes by session, it is the group's niceness that counts against others.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def _allow_many_files() -> None:
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(arguments: Sequence[str]) -> int:
    """Write what arrives on standard input below a folder, until it ends."""
    os.umask(0o077)
    _yield_the_processor()
    _allow_many_files()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its worker, which says so by closing the socket
    writer, deframer = CallAudioWriter(Path(arguments[0])), KeeperDeframer()
    with socket.socket(fileno=os.dup(0)) as stream:
        while True:
            try:
                data = stream.recv(_READ_BYTES)
            except ConnectionError:
                break
            if not data:
                break
            for message in deframer.feed(data):
                writer.take(message)
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
