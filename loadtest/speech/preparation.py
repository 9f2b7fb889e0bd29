"""Utterances made ready for the wire before the swarm starts, and shared by all callers of all its processes."""

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.manifest.conversations import CONVERSATIONS_NAME
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache import cache_root, entry_key
from corpora.rendering.mix import deal, mix_from_text
from corpora.rendering.profiles.profile import Profile
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.protocols.base import CallerProtocol
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.frames import BACKGROUND_KEY, FrameCache, Wire
from loadtest.speech.rendering import Progress, fill

# Half an hour is 90,000 packets: of 5 % independent loss, 0.15 points at two standard deviations; in bursts of three,
# 0.3. Beyond, more drawings cost disk and time, and tell nothing more.
VARIED_S: Final = 1_800.0
FEWEST_VARIANTS: Final = 2
MOST_VARIANTS: Final = 32

# The clips of each drawing, in the order of the utterances, and what the line carries in between.
Prepared = tuple[tuple[tuple[PreparedClip, ...], ...], tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """What the callers with one profile can say, and what their line carries in between."""

    profile: Profile
    share: float
    clips: tuple[PreparedClip, ...]
    background: tuple[bytes, ...]
    redrawn: tuple[tuple[PreparedClip, ...], ...] = ()  # the same utterances with noise, losses and room drawn anew

    @property
    def variants(self) -> tuple[tuple[PreparedClip, ...], ...]:
        """The utterances as they were drawn first, and each further drawing of all of them."""
        return (self.clips, *self.redrawn)


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


def variants_of(settings: SwarmSettings, profile: Profile, utterances: Sequence[Utterance]) -> int:
    """How often each utterance is drawn anew with a profile: as often as asked for, or so often that all of them
    together last half an hour, within limits. A profile that draws nothing has no variants."""
    if not profile.varies:
        return 1
    if settings.variants is not None:
        return settings.variants
    seconds = sum(utterance.samples / utterance.sample_rate_hz for utterance in set(utterances))
    return min(max(math.ceil(VARIED_S / seconds), FEWEST_VARIANTS), MOST_VARIANTS)


def prepare(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> PreparedCorpus:
    """Every chosen utterance as the wire carries it: from the cache, or rendered and kept there.

    `progress(done, total)` is called now and then. Raises CorpusError.
    """
    corpus, utterances = choose(settings)
    wire = Wire.of(protocol, settings.mask)
    lines = tuple(
        PreparedLine(profile, share, drawn[0], noise, drawn[1:])
        for profile, share in settings.profiles
        for drawn, noise in (_line(settings, corpus, utterances, profile, wire, progress),)
    )
    return PreparedCorpus(corpus, lines)


def render_ahead(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> None:
    """Fill the cache, so that the processes of a swarm find there what they need. Raises CorpusError."""
    corpus, utterances = choose(settings)
    wire = Wire.of(protocol, settings.mask)
    for profile, _ in settings.profiles:
        try:
            frame_cache = FrameCache.open(corpus, profile, settings.seed, wire)
            fill(frame_cache, utterances, settings.protocol, progress, variants_of(settings, profile, utterances))
        except OSError:
            return  # a cache that cannot be written: each worker then renders for itself


def _line(
    settings: SwarmSettings,
    corpus: Corpus,
    utterances: tuple[Utterance, ...],
    profile: Profile,
    wire: Wire,
    progress: Progress | None,
) -> Prepared:
    variants = variants_of(settings, profile, utterances)

    def take_from(frame_cache: FrameCache) -> Prepared:
        return _from(frame_cache, utterances, variants, settings.protocol, progress)

    try:
        return take_from(FrameCache.open(corpus, profile, settings.seed, wire))
    except OSError:
        # No cache can be kept here. What is mapped stays when its folder goes.
        with tempfile.TemporaryDirectory(prefix="voiceprobe-", ignore_cleanup_errors=True) as scratch:
            try:
                return take_from(FrameCache.open(corpus, profile, settings.seed, wire, Path(scratch)))
            except OSError as error:
                raise CorpusError(
                    f"{cache_root()} and {scratch} cannot be written ({error.strerror}); rendered speech needs room: "
                    "free some, or set VOICEPROBE_CACHE to a folder that has it."
                ) from error


def _from(
    frame_cache: FrameCache, utterances: tuple[Utterance, ...], variants: int, protocol: str, progress: Progress | None
) -> Prepared:
    """From the cache, which is read and checked first: a page that is not in memory would be late audio."""
    distinct = dict.fromkeys(utterances)  # a mix may hold one several times
    keys = [BACKGROUND_KEY, *(entry_key(each, variant) for each in distinct for variant in range(variants))]
    frame_cache.cache_entry.check(keys, lambda: None if progress is None else progress(0, len(keys) - 1))
    if frame_cache.missing(distinct, variants) or frame_cache.background() is None:
        fill(frame_cache, utterances, protocol, progress, variants)
    noise = frame_cache.background()
    drawn: list[tuple[PreparedClip, ...]] = []
    for variant in range(variants):
        clips = {utterance.id: frame_cache.clip(utterance, variant) for utterance in distinct}
        drawn.append(tuple(clip for utterance in utterances if (clip := clips[utterance.id]) is not None))
    if noise is None or any(len(clips) != len(utterances) for clips in drawn):
        raise CorpusError(
            f"{frame_cache.cache_entry.folder}: does not keep what is written to it; set VOICEPROBE_CACHE to another"
            " folder."
        )
    return tuple(drawn), noise
