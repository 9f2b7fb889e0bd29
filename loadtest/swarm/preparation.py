"""Utterances made ready for the wire once, before the swarm starts, and shared by all callers of the process."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from corpora.library import Corpus, open_corpus
from corpora.manifest import Utterance
from corpora.render import background, render
from loadtest.caller.line import PreparedClip, prepare_positions
from loadtest.protocols.base import CallerProtocol, Pcm16
from loadtest.protocols.websocket import FramePreparer
from loadtest.swarm.settings import SwarmSettings

BACKGROUND_S = 10.0


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """What the callers can say."""

    corpus: Corpus
    clips: tuple[PreparedClip, ...]
    background: tuple[bytes, ...]


def choose(settings: SwarmSettings) -> tuple[Corpus, tuple[Utterance, ...]]:
    """Open the corpus and choose its utterances: all that fit, or a seeded sample of `settings.clips` of them.

    Raises CorpusError.
    """
    corpus = open_corpus(settings.corpus)
    fitting = corpus.select(length=settings.length)
    if len(fitting) > settings.clips:
        chosen = set(random.Random(settings.seed).sample(range(len(fitting)), settings.clips))  # noqa: S311 - a choice of clips
        fitting = tuple(utterance for position, utterance in enumerate(fitting) if position in chosen)
    return corpus, fitting


def prepare(
    settings: SwarmSettings, protocol: CallerProtocol, progress: Callable[[int, int], None] | None = None
) -> PreparedCorpus:
    """Render and encode every chosen utterance. `progress(done, total)` is called after each. Raises CorpusError."""
    corpus, utterances = choose(settings)
    capabilities = protocol.capabilities
    rate_hz, frame_samples = capabilities.input_rate_hz, capabilities.input_rate_hz * capabilities.frame_ms // 1000
    framer = FramePreparer()

    def frames(pcm: Pcm16) -> tuple[bytes, ...]:
        return tuple(
            framer.frame(protocol.audio_message(pcm[start : start + frame_samples]), text=capabilities.audio_is_text)
            for start in range(0, len(pcm), frame_samples)
        )

    noise = background(corpus, settings.profile, rate_hz, BACKGROUND_S, settings.seed)
    noise = noise[: len(noise) // frame_samples * frame_samples]
    clips: list[PreparedClip] = []
    for utterance in utterances:
        rendered = render(corpus, utterance, settings.profile, rate_hz, settings.seed)
        # The last frame is filled up with what the line carries anyway.
        missing = -len(rendered.pcm) % frame_samples
        whole = np.concatenate([rendered.pcm, noise[:missing]])
        first, last = prepare_positions(rendered, frame_samples)
        clips.append(PreparedClip(rendered, frames(whole), frame_samples, first, last))
        if progress is not None:
            progress(len(clips), len(utterances))
    return PreparedCorpus(corpus, tuple(clips), frames(noise))
