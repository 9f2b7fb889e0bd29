"""Utterances made ready for the wire before the swarm starts, and shared by all callers of all its processes."""

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from corpora.cache import cache_root, entry_key
from corpora.conversations import CONVERSATIONS_NAME
from corpora.errors import CorpusError
from corpora.library import Corpus, open_corpus
from corpora.manifest import Utterance
from corpora.mix import deal, mix_from_text
from corpora.profiles.profile import Profile
from loadtest.caller.line import PreparedClip
from loadtest.protocols.base import CallerProtocol
from loadtest.swarm.frames import BACKGROUND_KEY, FrameShelf, Wire
from loadtest.swarm.rendering import Progress, fill
from loadtest.swarm.settings import SwarmSettings


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """What the callers with one profile can say, and what their line carries in between."""

    profile: Profile
    share: float
    clips: tuple[PreparedClip, ...]
    background: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """What the callers can say, over each kind of line."""

    corpus: Corpus
    lines: tuple[PreparedLine, ...]

    @property
    def clips(self) -> tuple[PreparedClip, ...]:
        """What can be said over the first line; the others carry the same utterances."""
        return self.lines[0].clips

    @property
    def background(self) -> tuple[bytes, ...]:
        """What the first line carries between utterances."""
        return self.lines[0].background


def choose(settings: SwarmSettings) -> tuple[Corpus, tuple[Utterance, ...]]:
    """Open the corpus and choose its utterances: all that fit, or a seeded sample of `settings.clips` of them, or as
    many in the shares of a mix; then one may come several times. Where conversations are replayed: all that they are
    made of.

    Clips are checked when they are rendered. Raises CorpusError.
    """
    corpus = open_corpus(settings.corpus, check_clips=False)
    if settings.conversations:
        said = {turn.utterance for conversation in corpus.conversations for turn in conversation.turns}
        if not said:
            raise CorpusError(
                f"The corpus {corpus.name} has no conversations; put a {CONVERSATIONS_NAME} into its folder, or leave "
                "--conversations out."
            )
        return corpus, tuple(utterance for utterance in corpus.utterances if utterance.id in said)
    fitting = corpus.select(length=settings.length)
    if settings.mix is not None:
        return corpus, deal(fitting, mix_from_text(settings.mix), settings.clips, settings.seed)
    if len(fitting) > settings.clips:
        chosen = set(random.Random(settings.seed).sample(range(len(fitting)), settings.clips))  # noqa: S311 - a choice of clips
        fitting = tuple(utterance for position, utterance in enumerate(fitting) if position in chosen)
    return corpus, fitting


def prepare(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> PreparedCorpus:
    """Every chosen utterance as the wire carries it: from the cache, or rendered and kept there.

    `progress(done, total)` is called now and then. Raises CorpusError.
    """
    corpus, utterances = choose(settings)
    wire = Wire.of(protocol, settings.mask)
    lines = tuple(
        PreparedLine(profile, share, *_line(settings, corpus, utterances, profile, wire, progress))
        for profile, share in settings.profiles
    )
    return PreparedCorpus(corpus, lines)


def render_ahead(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> None:
    """Fill the cache, so that the processes of a swarm find there what they need. Raises CorpusError."""
    corpus, utterances = choose(settings)
    wire = Wire.of(protocol, settings.mask)
    for profile, _ in settings.profiles:
        try:
            fill(FrameShelf.open(corpus, profile, settings.seed, wire), utterances, settings.protocol, progress)
        except OSError:
            return  # a cache that cannot be written: each worker then renders for itself


def _line(
    settings: SwarmSettings,
    corpus: Corpus,
    utterances: tuple[Utterance, ...],
    profile: Profile,
    wire: Wire,
    progress: Progress | None,
) -> tuple[tuple[PreparedClip, ...], tuple[bytes, ...]]:
    try:
        return _from(FrameShelf.open(corpus, profile, settings.seed, wire), utterances, settings.protocol, progress)
    except OSError:
        # No cache can be kept here. What is mapped stays when its folder goes.
        with tempfile.TemporaryDirectory(prefix="voiceprobe-", ignore_cleanup_errors=True) as scratch:
            shelf = FrameShelf.open(corpus, profile, settings.seed, wire, Path(scratch))
            try:
                return _from(shelf, utterances, settings.protocol, progress)
            except OSError as error:
                raise CorpusError(
                    f"{cache_root()} and {scratch} cannot be written ({error.strerror}); rendered speech needs room: "
                    "free some, or set VOICEPROBE_CACHE to a folder that has it."
                ) from error


def _from(
    shelf: FrameShelf, utterances: tuple[Utterance, ...], protocol: str, progress: Progress | None
) -> tuple[tuple[PreparedClip, ...], tuple[bytes, ...]]:
    """From a shelf, whose entries are read and checked first: a page that is not in memory would be late audio."""
    keys = [BACKGROUND_KEY, *map(entry_key, utterances)]
    shelf.shelf.check(keys, lambda: None if progress is None else progress(0, len(utterances)))
    if shelf.missing(utterances) or shelf.background() is None:
        fill(shelf, utterances, protocol, progress)
    clips = {utterance.id: shelf.clip(utterance) for utterance in utterances}
    noise = shelf.background()
    ready = [clip for utterance in utterances if (clip := clips[utterance.id]) is not None]
    if noise is None or len(ready) != len(utterances):
        raise CorpusError(
            f"{shelf.shelf.folder}: does not keep what is written to it; set VOICEPROBE_CACHE to another folder."
        )
    return tuple(ready), noise
