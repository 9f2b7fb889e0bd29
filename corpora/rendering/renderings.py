"""Renderings by way of the cache: the same as `render` gives, kept on disk and mapped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from corpora.manifest.library import Corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache import CacheEntry, cache_entry_name, entry_key, open_cache_entry
from corpora.rendering.cache_archive import PackWriter
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import Obtained, Rendered, render

_PCM = np.dtype("<i2")


class _About(msgspec.Struct, frozen=True):
    """The data of a rendering that is kept with its samples."""

    start: int
    end: int
    end_is_exact: bool
    obtained: Obtained


@dataclass(frozen=True, slots=True, eq=False)
class Renderings:
    """The renderings of a corpus with one profile, rate and seed."""

    corpus: Corpus
    profile: Profile
    rate_hz: int
    seed: int
    cache_entry: CacheEntry

    @classmethod
    def open(cls, corpus: Corpus, profile: Profile, rate_hz: int, seed: int, root: Path | None = None) -> Self:
        """The renderings that are on disk so far."""
        return cls(
            corpus, profile, rate_hz, seed, open_cache_entry(cache_entry_name(corpus, profile, rate_hz, seed), root)
        )

    def get(self, utterance: Utterance, variant: int = 0) -> Rendered | None:
        """A rendering that is on disk, its samples mapped; None if it is not there."""
        stored = self.cache_entry.get(entry_key(utterance, variant))
        if stored is None:
            return None
        archive, chunk = stored
        about = msgspec.json.decode(chunk.about, type=_About)
        pcm = np.frombuffer(archive.data, _PCM, chunk.length // _PCM.itemsize, chunk.offset).astype(
            np.int16, copy=False
        )
        return Rendered(
            pcm,
            self.rate_hz,
            about.start,
            about.end,
            self.profile,
            about.obtained,
            utterance,
            variant,
            end_is_exact=about.end_is_exact,
        )

    def make(self, utterance: Utterance, into: PackWriter, variant: int = 0) -> Rendered:
        """The rendering from disk if it is sound, or rendered now and put into an archive of the entry.

        Raises CorpusError.
        """
        key = entry_key(utterance, variant)
        self.cache_entry.check((key,))
        stored = self.get(utterance, variant)
        if stored is not None:
            return stored
        rendered = render(self.corpus, utterance, self.profile, self.rate_hz, self.seed, variant=variant)
        about = _About(
            rendered.speech_start_sample, rendered.speech_end_sample, rendered.end_is_exact, rendered.obtained
        )
        into.add(key, about, rendered.pcm.astype(_PCM, copy=False).tobytes())
        return rendered
