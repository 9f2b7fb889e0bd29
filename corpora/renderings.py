"""Renderings by way of the cache: the same as `render` gives, kept on disk and mapped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from corpora.cache import Shelf, entry_key, open_shelf, shelf_name
from corpora.library import Corpus
from corpora.manifest import Utterance
from corpora.packs import PackWriter
from corpora.profiles.profile import Profile
from corpora.render import Obtained, Rendered, render

_PCM = np.dtype("<i2")


class _About(msgspec.Struct, frozen=True):
    """What is kept of a rendering beside its samples."""

    start: int
    end: int
    obtained: Obtained


@dataclass(frozen=True, slots=True, eq=False)
class Renderings:
    """What a corpus sounds like with one profile, rate and seed."""

    corpus: Corpus
    profile: Profile
    rate_hz: int
    seed: int
    shelf: Shelf

    @classmethod
    def open(cls, corpus: Corpus, profile: Profile, rate_hz: int, seed: int, root: Path | None = None) -> Self:
        """The renderings that are on disk so far."""
        return cls(corpus, profile, rate_hz, seed, open_shelf(shelf_name(corpus, profile, rate_hz, seed), root))

    def get(self, utterance: Utterance) -> Rendered | None:
        """A rendering that is on disk, its samples mapped; None where there is none."""
        found = self.shelf.get(entry_key(utterance))
        if found is None:
            return None
        pack, piece = found
        about = msgspec.json.decode(piece.about, type=_About)
        pcm = np.frombuffer(pack.data, _PCM, piece.length // _PCM.itemsize, piece.offset).astype(np.int16, copy=False)
        return Rendered(pcm, self.rate_hz, about.start, about.end, self.profile, about.obtained, utterance)

    def make(self, utterance: Utterance, into: PackWriter) -> Rendered:
        """The rendering from disk if it is sound, or rendered now and put into a pack of the shelf.

        Raises CorpusError.
        """
        key = entry_key(utterance)
        self.shelf.check((key,))
        found = self.get(utterance)
        if found is not None:
            return found
        rendered = render(self.corpus, utterance, self.profile, self.rate_hz, self.seed)
        about = _About(rendered.speech_start_sample, rendered.speech_end_sample, rendered.obtained)
        into.add(key, about, rendered.pcm.astype(_PCM, copy=False).tobytes())
        return rendered
