"""The contents of a report on a corpus: counts over all utterances, and some clips, clean and rendered."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from corpora.annotation.exact_end import FADE_S
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import Rendered, render

CLEAN = Profile()
SEED = 1


@dataclass(frozen=True, slots=True, eq=False)
class ShownClip:
    """One utterance, rendered with the clean profile and then with each requested profile."""

    utterance: Utterance
    versions: tuple[Rendered, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The contents of a report on a corpus."""

    corpus: Corpus
    by_domain: tuple[tuple[str, int], ...]
    by_speaker: tuple[tuple[str, int], ...]
    by_length: tuple[tuple[str, int], ...]
    by_license: tuple[tuple[str, int], ...]
    speech_s: float
    clips: tuple[ShownClip, ...]
    profiles: tuple[Profile, ...]

    @property
    def bounds_sentence(self) -> str:
        """A sentence on the uncertainty of the end of speech, from which latencies are measured."""
        if self.corpus.edges == "exact":
            return f"exact edges: speech ends where its fade of {FADE_S * 1000:g} ms begins"
        stated = [utterance.speech_end_uncertainty_ms for utterance in self.corpus.utterances]
        known_ms = [value for value in stated if value is not None]
        if not known_ms:
            return "recorded edges: the uncertainty of its speech ends is unknown"
        sentence = (
            f"recorded edges: speech ends known to ±{median(known_ms):g} ms (median), ±{max(known_ms):g} ms (worst)"
        )
        unknown = len(stated) - len(known_ms)
        return f"{sentence}, unknown for {unknown} of {len(stated)}" if unknown else sentence


def choose(corpus: Corpus, ids: Sequence[str], count: int) -> list[Utterance]:
    """Choose the utterances whose clips are shown: those with `ids`, or `count` spread evenly over the lengths.

    Raises CorpusError for ids that are not in the corpus.
    """
    if ids:
        known = {utterance.id: utterance for utterance in corpus.utterances}
        unknown = [name for name in ids if name not in known]
        if unknown:
            raise CorpusError(
                f"The corpus {corpus.name} has no utterance {', '.join(unknown)}; use ids from its manifest."
            )
        return [known[name] for name in ids]
    ordered = sorted(corpus.utterances, key=lambda utterance: (utterance.speech_s, utterance.id))
    count = min(count, len(ordered))
    positions = np.linspace(0, len(ordered) - 1, count).round().astype(int) if count else []
    return [ordered[position] for position in positions]


def gather(
    corpus: Corpus,
    chosen: Sequence[Utterance],
    profiles: Sequence[Profile],
    progress: Callable[[int, int], None] | None = None,
) -> Shown:
    """Render the chosen clips and count all utterances. Raises CorpusError if a clip cannot be rendered."""
    clips: list[ShownClip] = []
    for done, utterance in enumerate(chosen, start=1):
        versions = [
            render(corpus, utterance, profile, utterance.sample_rate_hz, SEED) for profile in (CLEAN, *profiles)
        ]
        clips.append(ShownClip(utterance, tuple(versions)))
        if progress is not None:
            progress(done, len(chosen))
    return Shown(
        corpus=corpus,
        by_domain=_counted(utterance.domain for utterance in corpus.utterances),
        by_speaker=_counted(utterance.speaker for utterance in corpus.utterances),
        by_length=_counted(utterance.length for utterance in corpus.utterances),
        by_license=_counted(utterance.license for utterance in corpus.utterances),
        speech_s=sum(utterance.speech_s for utterance in corpus.utterances),
        clips=tuple(clips),
        profiles=tuple(profiles),
    )


def _counted(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(names).most_common())
