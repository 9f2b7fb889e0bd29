"""The frames of utterances as a wire carries them: encoded once, kept on disk, mapped by every process of a swarm.

Ten thousand utterances make some gigabytes of frames. They lie in the cache, one copy for all processes, and a frame
becomes bytes of its own only while it is sent.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import msgspec
import numpy as np

from corpora.cache import Shelf, entry_key, open_shelf, shelf_name
from corpora.library import Corpus
from corpora.manifest import Utterance
from corpora.noise import derive_seed
from corpora.packs import Pack, PackWriter, Piece
from corpora.profiles.profile import Profile
from corpora.render import Rendered, background
from corpora.renderings import Renderings
from loadtest.caller.line import PreparedClip, prepare_positions
from loadtest.protocols.base import CallerProtocol, Pcm16
from loadtest.protocols.websocket import FramePreparer

BACKGROUND_S = 10.0
BACKGROUND_KEY = "background"


class MappedFrames(Sequence[bytes]):
    """The frames of one utterance, in the cache's own memory. A frame is copied out when it is asked for."""

    __slots__ = ("_data", "_ends", "_offset")

    def __init__(self, pack: Pack, piece: Piece, count: int) -> None:
        # The piece begins with where each frame ends, in bytes from the first frame's beginning.
        table = 4 * count
        self._data = pack.data
        self._ends = memoryview(pack.data)[piece.offset : piece.offset + table].cast("I")
        self._offset = piece.offset + table

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...

    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        if index < 0:
            index += len(self)
            if index < 0:
                raise IndexError("there are not so many frames")
        end = self._ends[index]
        begin = self._ends[index - 1] if index else 0
        return self._data[self._offset + begin : self._offset + end]

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """How a protocol carries audio: all that frames depend on. Masks that look random are drawn for each utterance
    anew, so that they do not depend on which process prepares what."""

    protocol: CallerProtocol
    mask: str
    rate_hz: int
    frame_samples: int

    @classmethod
    def of(cls, protocol: CallerProtocol, mask: str = "fixed") -> "Wire":
        """The wire of a protocol."""
        capabilities = protocol.capabilities
        samples = capabilities.input_rate_hz * capabilities.frame_ms // 1000
        return cls(protocol, mask, capabilities.input_rate_hz, samples)

    @property
    def name(self) -> str:
        """A hash of how frames look: of two frames that hold every kind of octet, and of their size."""
        ramp = np.arange(2 * self.frame_samples, dtype=np.int64) * 97 % 65_536 - 32_768
        return hashlib.sha256(b"\n".join(self.frames(ramp.astype(np.int16), 0))).hexdigest()

    def frames(self, pcm: Pcm16, seed: int) -> tuple[bytes, ...]:
        """Samples as ready-made frames; there must be a whole number of them. The seed is that of random masks."""
        framer = FramePreparer(self.mask, seed)
        text, size = self.protocol.capabilities.audio_is_text, self.frame_samples
        return tuple(
            framer.frame(self.protocol.audio_message(pcm[start : start + size]), text=text)
            for start in range(0, len(pcm), size)
        )


@dataclass(frozen=True, slots=True, eq=False)
class FrameShelf:
    """The frames of a corpus with one profile and seed, over one wire, beside the renderings they are made of."""

    renderings: Renderings
    wire: Wire
    shelf: Shelf

    @classmethod
    def open(cls, corpus: Corpus, profile: Profile, seed: int, wire: Wire, root: Path | None = None) -> "FrameShelf":
        """What is on disk so far."""
        renderings = Renderings.open(corpus, profile, wire.rate_hz, seed, root)
        name = shelf_name(corpus, profile, wire.rate_hz, seed, wire.name)
        return cls(renderings, wire, open_shelf(name, root))

    def look(self) -> None:
        """Take notice of what came since."""
        self.renderings.shelf.look()
        self.shelf.look()

    def missing(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        """Those that are not on disk."""
        shelves = (self.shelf, self.renderings.shelf)
        return [each for each in utterances if any(shelf.get(entry_key(each)) is None for shelf in shelves)]

    def background_pcm(self) -> Pcm16:
        """What the line carries between utterances: a whole number of frames. Raises CorpusError."""
        made = self.renderings
        noise = background(made.corpus, made.profile, made.rate_hz, BACKGROUND_S, made.seed)
        return noise[: len(noise) // self.wire.frame_samples * self.wire.frame_samples]

    def put_background(self, noise: Pcm16, into: PackWriter) -> None:
        """Keep the frames of the background."""
        self._put(BACKGROUND_KEY, noise, into)

    def put(self, rendered: Rendered, noise: Pcm16, into: PackWriter) -> None:
        """Keep the frames of a rendering. Its last frame is filled up with what the line carries anyway."""
        lacking = -len(rendered.pcm) % self.wire.frame_samples
        self._put(entry_key(rendered.utterance), np.concatenate([rendered.pcm, noise[:lacking]]), into)

    def _put(self, key: str, pcm: Pcm16, into: PackWriter) -> None:
        frames = self.wire.frames(pcm, derive_seed(self.renderings.seed, "mask", key))
        ends = np.cumsum([len(frame) for frame in frames], dtype=np.uint32)
        into.add(key, len(frames), ends.tobytes(), b"".join(frames))

    def background(self) -> tuple[bytes, ...] | None:
        """The frames of the background, None where they are not on disk. Callers share these few in memory."""
        frames = self._frames(BACKGROUND_KEY)
        return None if frames is None else tuple(frames)

    def clip(self, utterance: Utterance) -> PreparedClip | None:
        """An utterance as this wire carries it, None where it is not on disk."""
        frames, rendered = self._frames(entry_key(utterance)), self.renderings.get(utterance)
        if frames is None or rendered is None:
            return None
        first, last = prepare_positions(rendered, self.wire.frame_samples)
        return PreparedClip(rendered, frames, self.wire.frame_samples, first, last)

    def _frames(self, key: str) -> MappedFrames | None:
        found = self.shelf.get(key)
        if found is None:
            return None
        return MappedFrames(*found, msgspec.json.decode(found[1].about, type=int))
