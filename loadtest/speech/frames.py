"""Utterances encoded as the frames of a wire protocol: encoded once, kept on disk, mapped by every process of a swarm.

Ten thousand utterances are several gigabytes of frames. The cache holds one copy for all processes, and a frame is
copied only while it is sent.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import overload

import msgspec
import numpy as np

from corpora.manifest.library import Corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache import CacheEntry, cache_entry_name, entry_key, open_cache_entry
from corpora.rendering.cache_archive import Archive, Chunk, PackWriter
from corpora.rendering.noise import derive_seed
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import Rendered, background
from corpora.rendering.renderings import Renderings
from loadtest.audio.pcm import Pcm16
from loadtest.conversation.prepared_clip import PreparedClip, prepare_positions
from loadtest.protocols.base import CallerProtocol
from loadtest.protocols.transports.masked_frames import preparation

BACKGROUND_S = 10.0
BACKGROUND_KEY = "background"

Take = tuple[Utterance, int]  # an utterance and the index of one of its variants


class MappedFrames(Sequence[bytes]):
    """The frames of one utterance in the mapped cache. A frame is copied when it is accessed."""

    __slots__ = ("_data", "_ends", "_offset")

    def __init__(self, archive: Archive, chunk: Chunk, count: int) -> None:
        # The chunk begins with a table of where each frame ends, in bytes from the start of the first frame.
        table = 4 * count
        self._data = archive.data
        self._ends = memoryview(archive.data)[chunk.offset : chunk.offset + table].cast("I")
        self._offset = chunk.offset + table

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def data(self) -> memoryview:
        """The bytes of all frames, one behind the other."""
        return memoryview(self._data)[self._offset : self._offset + (self._ends[-1] if self._ends else 0)]

    @property
    def ends(self) -> memoryview:
        """The end offset of each frame in `data`."""
        return self._ends

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...

    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._run(start, stop) if step == 1 else tuple(self[place] for place in range(start, stop, step))
        if index < 0:
            index += len(self)
            if index < 0:
                raise IndexError("frame index out of range")
        end = self._ends[index]
        begin = self._ends[index - 1] if index else 0
        return self._data[self._offset + begin : self._offset + end]

    def _run(self, start: int, stop: int) -> tuple[bytes, ...]:
        """Copy frames that follow one another, as an utterance is sent."""
        if stop <= start:
            return ()
        data, offset = self._data, self._offset
        edges = self._ends[start - 1 : stop].tolist() if start else [0, *self._ends[:stop]]
        return tuple([data[offset + begin : offset + end] for begin, end in pairwise(edges)])

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """A protocol's way to carry audio: everything that frames depend on.

    Random masks are seeded per utterance, so that they do not depend on which process prepares it.
    """

    protocol: CallerProtocol
    mask: str
    rate_hz: int
    frame_samples: int

    @classmethod
    def of(cls, protocol: CallerProtocol, mask: str = "fixed") -> "Wire":
        """Create the wire of a protocol."""
        capabilities = protocol.capabilities
        samples = capabilities.input_rate_hz * capabilities.frame_ms // 1000
        return cls(protocol, mask, capabilities.input_rate_hz, samples)

    @property
    def name(self) -> str:
        """A hash of the frame format, from two sample frames that contain every byte value."""
        ramp = np.arange(2 * self.frame_samples, dtype=np.int64) * 97 % 65_536 - 32_768
        return hashlib.sha256(b"\n".join(self.frames(ramp.astype(np.int16), 0))).hexdigest()

    def frames(self, pcm: Pcm16, seed: int) -> tuple[bytes, ...]:
        """Encode a whole number of frames. `seed` is for random masks."""
        prepare, size = preparation(self.protocol.capabilities, self.mask, seed), self.frame_samples
        return tuple(prepare(self.protocol.audio_message(pcm[at : at + size])) for at in range(0, len(pcm), size))


@dataclass(frozen=True, slots=True, eq=False)
class FrameCache:
    """The frames of a corpus with one profile, seed and wire, and the renderings that they are made from."""

    renderings: Renderings
    wire: Wire
    cache_entry: CacheEntry

    @classmethod
    def open(cls, corpus: Corpus, profile: Profile, seed: int, wire: Wire, root: Path | None = None) -> "FrameCache":
        """Open the cache as it is on disk."""
        renderings = Renderings.open(corpus, profile, wire.rate_hz, seed, root)
        name = cache_entry_name(corpus, profile, wire.rate_hz, seed, wire.name)
        return cls(renderings, wire, open_cache_entry(name, root))

    def refresh(self) -> None:
        """Read what has been added on disk since the cache was opened."""
        self.renderings.cache_entry.refresh()
        self.cache_entry.refresh()

    def missing(self, utterances: Iterable[Utterance], variants: int = 1) -> list[Take]:
        """Return the takes that are not on disk, grouped by utterance, for `variants` variants of each utterance."""
        both = (self.cache_entry, self.renderings.cache_entry)
        takes = ((utterance, variant) for utterance in utterances for variant in range(variants))
        return [take for take in takes if any(cache_entry.get(entry_key(*take)) is None for cache_entry in both)]

    def background_pcm(self) -> Pcm16:
        """Return the audio that is sent between utterances: a whole number of frames. Raises CorpusError."""
        made = self.renderings
        noise = background(made.corpus, made.profile, made.rate_hz, BACKGROUND_S, made.seed)
        return noise[: len(noise) // self.wire.frame_samples * self.wire.frame_samples]

    def put_background(self, noise: Pcm16, into: PackWriter) -> None:
        """Store the frames of the background."""
        self._put(BACKGROUND_KEY, noise, into)

    def put(self, rendered: Rendered, noise: Pcm16, into: PackWriter) -> None:
        """Store the frames of a rendering. Its last frame is padded with the background."""
        lacking = -len(rendered.pcm) % self.wire.frame_samples
        key = entry_key(rendered.utterance, rendered.variant)
        self._put(key, np.concatenate([rendered.pcm, noise[:lacking]]), into)

    def _put(self, key: str, pcm: Pcm16, into: PackWriter) -> None:
        frames = self.wire.frames(pcm, derive_seed(self.renderings.seed, "mask", key))
        ends = np.cumsum([len(frame) for frame in frames], dtype=np.uint32)
        into.add(key, len(frames), ends.tobytes(), b"".join(frames))

    def background(self) -> tuple[bytes, ...] | None:
        """Return the frames of the background, or None if they are not on disk. They are few, and shared in memory."""
        frames = self._frames(BACKGROUND_KEY)
        return None if frames is None else tuple(frames)

    def clip(self, utterance: Utterance, variant: int = 0) -> PreparedClip | None:
        """Return a variant of an utterance as frames of this wire, or None if it is not on disk."""
        frames, rendered = self._frames(entry_key(utterance, variant)), self.renderings.get(utterance, variant)
        if frames is None or rendered is None:
            return None
        first, last = prepare_positions(rendered, self.wire.frame_samples)
        return PreparedClip(rendered, frames, self.wire.frame_samples, first, last)

    def _frames(self, key: str) -> MappedFrames | None:
        stored = self.cache_entry.get(key)
        if stored is None:
            return None
        return MappedFrames(*stored, msgspec.json.decode(stored[1].about, type=int))
