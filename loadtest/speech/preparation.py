"""Prepares utterances for the wire before the swarm starts; all callers of all its processes share them."""

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
from loadtest.audio.pcm import Pcm16
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.protocols.base import CallerProtocol
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.frames import BACKGROUND_KEY, FrameCache, Wire
from loadtest.speech.rendering import Progress, ProtocolChoice, fill

# Half an hour is 90,000 packets. With 5 % independent loss, two standard deviations are 0.15 percentage points; with
# bursts of three, 0.3. More variants would cost disk space and time without improving that noticeably.
VARIED_S: Final = 1_800.0
MIN_VARIANTS: Final = 2
MAX_VARIANTS: Final = 32

# The clips of each variant, in the order of the utterances, and the background that is sent between them.
Prepared = tuple[tuple[tuple[PreparedClip, ...], ...], tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """The clips of the callers with one profile, and the background between them."""

    profile: Profile
    share: float
    clips: tuple[PreparedClip, ...]
    background: tuple[bytes, ...]
    redrawn: tuple[tuple[PreparedClip, ...], ...] = ()  # further variants: noise, losses and room drawn again
    background_pcm: Pcm16 | None = None  # where the audio of calls is kept

    @property
    def variants(self) -> tuple[tuple[PreparedClip, ...], ...]:
        """All variants of the clips: the first one and those drawn again."""
        return (self.clips, *self.redrawn)


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """The prepared clips, for each profile."""

    corpus: Corpus
    lines: tuple[PreparedLine, ...]

    @property
    def clips(self) -> tuple[PreparedClip, ...]:
        """The clips of the first profile; the others have the same utterances."""
        return self.lines[0].clips

    @property
    def recorded_ends(self) -> int:
        """The number of utterances whose speech ends where it does in the recording."""
        return len({clip.rendered.utterance.id for clip in self.clips if not clip.rendered.end_is_exact})

    @property
    def background(self) -> tuple[bytes, ...]:
        """The background of the first profile."""
        return self.lines[0].background


def choose(settings: SwarmSettings) -> tuple[Corpus, tuple[Utterance, ...]]:
    """Open the corpus and choose its utterances.

    Without a mix, these are all utterances that fit, or a seeded sample of `settings.clips` of them. With a mix, there
    are `settings.clips` in the mix's shares, and an utterance may occur several times. If conversations are replayed,
    these are all of their utterances. Clips are checked when they are rendered. Raises CorpusError.
    """
    corpus = open_corpus(settings.corpus, check_clips=False)
    if settings.conversations:
        used = {turn.utterance for conversation in corpus.conversations for turn in conversation.turns}
        if not used:
            raise CorpusError(
                f"The corpus {corpus.name} has no conversations; put a {CONVERSATIONS_NAME} into its folder, or leave "
                "out --conversations."
            )
        return corpus, tuple(utterance for utterance in corpus.utterances if utterance.id in used)
    fitting = corpus.select(length=settings.length)
    if settings.mix is not None:
        return corpus, deal(fitting, mix_from_text(settings.mix), settings.clips, settings.seed)
    if len(fitting) > settings.clips:
        chosen = set(random.Random(settings.seed).sample(range(len(fitting)), settings.clips))  # noqa: S311 - a choice of clips
        fitting = tuple(utterance for position, utterance in enumerate(fitting) if position in chosen)
    return corpus, fitting


def variants_of(settings: SwarmSettings, profile: Profile, utterances: Sequence[Utterance]) -> int:
    """Return how many variants of each utterance to render with a profile.

    This is the requested number or, within limits, as many as last half an hour together. A profile without random
    parts has one variant.
    """
    if not profile.varies:
        return 1
    if settings.variants is not None:
        return settings.variants
    seconds = sum(utterance.samples / utterance.sample_rate_hz for utterance in set(utterances))
    return min(max(math.ceil(VARIED_S / seconds), MIN_VARIANTS), MAX_VARIANTS)


def prepare(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> PreparedCorpus:
    """Prepare every chosen utterance for the wire: from the cache, or rendered and stored there.

    `progress(done, total)` is called from time to time. Raises CorpusError.
    """
    corpus, utterances = choose(settings)
    preparation = _Preparation(settings, corpus, utterances, Wire.of(protocol, settings.mask), progress)
    lines = tuple(
        PreparedLine(profile, share, drawn[0], noise, drawn[1:], preparation.background_pcm(profile))
        for profile, share in settings.profiles
        for drawn, noise in (preparation.prepared(profile),)
    )
    return PreparedCorpus(corpus, lines)


def render_ahead(settings: SwarmSettings, protocol: CallerProtocol, progress: Progress | None = None) -> None:
    """Fill the cache before the processes of a swarm need it. Raises CorpusError."""
    corpus, utterances = choose(settings)
    preparation = _Preparation(settings, corpus, utterances, Wire.of(protocol, settings.mask), progress)
    for profile, _ in settings.profiles:
        try:
            preparation.fill(preparation.open_cache(profile), preparation.variants(profile))
        except OSError:
            return  # the cache is not writable, so each worker renders for itself


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Settings of the preparation for the wire; the same for all profiles. `progress` is None if nothing shows it."""

    settings: SwarmSettings
    corpus: Corpus
    utterances: tuple[Utterance, ...]
    wire: Wire
    progress: Progress | None

    def prepared(self, profile: Profile) -> Prepared:
        """Prepare the utterances with one profile. Raises CorpusError."""
        variants = self.variants(profile)
        try:
            return self._take_from(self.open_cache(profile), variants)
        except OSError:
            # The cache is not writable. Mapped files stay accessible after their folder is deleted.
            with tempfile.TemporaryDirectory(prefix="voiceprobe-", ignore_cleanup_errors=True) as scratch:
                try:
                    return self._take_from(self.open_cache(profile, Path(scratch)), variants)
                except OSError as error:
                    raise CorpusError(
                        f"{cache_root()} and {scratch} are not writable ({error.strerror}); rendered speech needs disk "
                        "space: free some, or set VOICEPROBE_CACHE to another folder."
                    ) from error

    def background_pcm(self, profile: Profile) -> Pcm16 | None:
        """Return the samples of the background where calls are kept: their files are made of samples, not of frames."""
        return self.open_cache(profile).background_pcm() if self.settings.keep_audio else None

    def variants(self, profile: Profile) -> int:
        """Return how many variants of each utterance this profile gets."""
        return variants_of(self.settings, profile, self.utterances)

    def open_cache(self, profile: Profile, root: Path | None = None) -> FrameCache:
        """Open the cache of the frames with this profile; `root` None means the usual cache folder."""
        return FrameCache.open(self.corpus, profile, self.settings.seed, self.wire, root)

    def fill(self, frame_cache: FrameCache, variants: int) -> None:
        """Render what is missing in the cache."""
        protocol = ProtocolChoice(self.settings.protocol, self.settings.protocol_settings)
        fill(frame_cache, self.utterances, protocol, self.progress, variants)

    def _take_from(self, frame_cache: FrameCache, variants: int) -> Prepared:
        """Load from the cache, which is read and checked first: a page that is not in memory would delay audio."""
        utterances, progress = self.utterances, self.progress
        distinct = dict.fromkeys(utterances)  # a mix may contain one several times
        keys = [
            BACKGROUND_KEY,
            *(entry_key(utterance, variant) for utterance in distinct for variant in range(variants)),
        ]
        frame_cache.cache_entry.check(keys, lambda: None if progress is None else progress(0, len(keys) - 1))
        if frame_cache.missing(distinct, variants) or frame_cache.background() is None:
            self.fill(frame_cache, variants)
        if self.settings.keep_audio:
            # Their samples are handed on while callers speak: they are read into memory now.
            frame_cache.renderings.cache_entry.check(keys[1:])
        noise = frame_cache.background()
        drawn: list[tuple[PreparedClip, ...]] = []
        for variant in range(variants):
            clips = {utterance.id: frame_cache.clip(utterance, variant) for utterance in distinct}
            drawn.append(tuple(clip for utterance in utterances if (clip := clips[utterance.id]) is not None))
        if noise is None or any(len(clips) != len(utterances) for clips in drawn):
            raise CorpusError(
                f"{frame_cache.cache_entry.folder}: data written to this folder is lost; set VOICEPROBE_CACHE to "
                "another folder."
            )
        return tuple(drawn), noise
