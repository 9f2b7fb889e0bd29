"""The choice of the clips to label: a stratified draw by a seed, its split into halves, and the labelers' batches."""

import csv
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import soundfile

from tests.benchmarks.boundary_labels import sources
from tests.benchmarks.boundary_labels.crude_level import level_db
from tests.benchmarks.boundary_labels.phones import FinalPhones
from tests.benchmarks.boundary_labels.sources import Candidate

_WEIGHTS: Final = {"nasal": 0.30, "stop": 0.25, "fricative": 0.20, "vowel": 0.15, "approximant": 0.10}
_LEVEL_MEASURED: Final = 200  # prompts whose level is measured to find noisy and breathy ones
_SHORTEST_S, _LONGEST_S = 0.3, 12.0
_COLUMNS: Final = ("id", "source", "package", "file", "sha256", "rate_hz", "samples", "text", "final_class", "split")


@dataclass(frozen=True, slots=True)
class Excluded:
    """The ids and texts of clips that must not be drawn again."""

    ids: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    def match(self, clips: Iterable[Candidate]) -> bool:
        """Whether any of these versions of a prompt, or a clip with the same text, is excluded."""
        return any(clip.id in self.ids or clip.text.casefold() in self.texts for clip in clips)


_NONE_EXCLUDED: Final = Excluded()


def read_excluded(earlier: Iterable[Path]) -> Excluded:
    """Read the clips of earlier draws from their `clips.csv`."""
    rows: list[dict[str, str]] = []
    for clips_csv in earlier:
        with clips_csv.open(encoding="utf-8", newline="") as opened:
            rows += csv.DictReader(opened)
    return Excluded(frozenset(row["id"] for row in rows), frozenset(row["text"].casefold() for row in rows))


@dataclass(frozen=True, slots=True)
class Draw:
    """The numbers of clips in one draw.

    `pairs` and `singles` are the prompts by language that are drawn at both rates, and at one (half of them at each).
    """

    seed: int
    pairs: Mapping[str, int]
    singles: Mapping[str, int]
    bundled: int
    alsa: int
    common: int  # clips that every labeler labels
    flite: slice  # of the texts in `sources`
    espeak: slice
    batches: int = 3  # one per labeler
    pocketsphinx: bool = False
    noisy: int = 0  # English prompts with the loudest pauses, by a crude level
    breaths: int = 0  # English prompts with the longest soft sound after the last loud part, by a crude level
    named_pairs: tuple[str, ...] = ()
    named_bundled: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("choose", "report")


FIRST: Final = Draw(
    seed=20_261_122,
    pairs={"en": 13, "fr": 3, "es": 1, "it": 1, "ru": 2},
    singles={"en": 46, "fr": 14, "es": 8, "it": 8, "ru": 12},
    bundled=16,
    alsa=4,
    common=24,
    flite=slice(5),
    espeak=slice(6),
    pocketsphinx=True,
    noisy=3,
    breaths=5,
    named_pairs=("en.extension", "en.invalid", "en.vm-deleted", "fr.digits/8"),
    named_bundled=("health-appointment", "travel-next-train", "banking-block", "smalltalk-hello"),
)
# Drawn after the results of both splits of the first draw had been seen, without any prompt or text of it.
FRESH: Final = Draw(
    seed=20_270_305,
    pairs={},
    singles={"en": 56, "fr": 14, "es": 8, "it": 8, "ru": 12},
    bundled=10,
    alsa=4,
    common=15,
    flite=slice(5, 9),
    espeak=slice(6, 10),
    splits=("fresh",),
)
# Drawn after the results of the second draw had been seen too.
THIRD: Final = Draw(
    seed=20_280_517,
    pairs={},
    singles={"en": 48, "fr": 14, "es": 6, "it": 6, "ru": 10},
    bundled=0,
    alsa=0,
    common=10,
    flite=slice(9, 12),
    espeak=slice(10, 13),
    batches=2,
    splits=("third",),
)
DRAWS: Final[Mapping[str, Draw]] = {"first": FIRST, "fresh": FRESH, "third": THIRD}  # in their order


@dataclass(frozen=True, slots=True)
class Chosen:
    """A clip and the strata that it is drawn by."""

    clip: Candidate
    final_class: str
    stratum: str  # the source without its rate


def choose(downloads: Path, draw: Draw = FIRST, excluded: Excluded = _NONE_EXCLUDED) -> list[Chosen]:
    """Draw the clips, none of which shares a prompt or a text with `excluded`.

    The same packages and draw give the same clips in the same order.
    """
    rng = random.Random(draw.seed)
    phones = FinalPhones()
    by_prompt = {
        prompt: pair
        for prompt, pair in _prompts(downloads, phones).items()
        if not excluded.match(each.clip for each in pair)
    }
    clips: list[Chosen] = []
    for language in sources.LANGUAGES:
        own = {prompt: pair for prompt, pair in by_prompt.items() if prompt.startswith(f"{language}.")}
        named = [prompt for prompt in draw.named_pairs if prompt in own]
        pairs = named + _stratified(rng, own, draw.pairs.get(language, 0) - len(named), exclude=named)
        clips += [chosen for prompt in pairs for chosen in own[prompt]]
        singles = _stratified(rng, own, draw.singles[language], exclude=pairs)
        clips += [own[prompt][number % 2] for number, prompt in enumerate(singles)]
        if language == "en" and draw.noisy + draw.breaths:
            clips += _quiet_parts(rng, own, draw, exclude={*pairs, *singles})
    generated = [clip for clip in sources.bundled() if not excluded.match([clip])]
    texts = {clip.id: clip for clip in generated}
    named = [f"gen.{name}" for name in draw.named_bundled]
    others = {clip.id: [_classified(clip, phones)] for clip in generated if clip.id not in named}
    drawn = named + _stratified(rng, others, draw.bundled - len(named), exclude=())
    clips += [_classified(texts[name], phones) for name in drawn]
    channels = [clip for clip in sources.alsa(downloads) if not excluded.match([clip])]
    rest = sources.pocketsphinx(downloads) if draw.pocketsphinx else []
    rest += sorted(rng.sample(channels, draw.alsa), key=lambda clip: clip.id)
    rest += [*sources.flite()[draw.flite], *sources.espeak()[draw.espeak]]
    return clips + [_classified(clip, phones) for clip in rest]


def split(chosen: Sequence[Chosen], draw: Draw = FIRST) -> dict[str, str]:
    """The split of each id: random and even within each stratum, with both rates of a prompt in the same split."""
    rng = random.Random(draw.seed + 1)
    strata: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for each in chosen:
        sizes[each.clip.prompt] += 1
    for prompt in dict.fromkeys(each.clip.prompt for each in chosen):
        first = next(each for each in chosen if each.clip.prompt == prompt)
        strata[first.stratum, first.final_class, sizes[prompt] > 1].append(prompt)
    split_by_prompt: dict[str, str] = {}
    count = dict.fromkeys(draw.splits, 0)
    for key in sorted(strata):
        prompts = strata[key]
        rng.shuffle(prompts)
        for prompt in prompts:
            # Use the split with fewer clips so far; within a stratum the splits alternate.
            fewer = min(count, key=lambda name: (count[name], rng.random()))
            split_by_prompt[prompt] = fewer
            count[fewer] += sizes[prompt]
    return {each.clip.id: split_by_prompt[each.clip.prompt] for each in chosen}


def batches(chosen: Sequence[Chosen], draw: Draw = FIRST) -> list[list[Chosen]]:
    """One list per labeler: the common clips and an equal part of the others, with a prompt's rates in two lists."""
    rng = random.Random(draw.seed + 2)
    sizes: dict[str, int] = defaultdict(int)
    for each in chosen:
        sizes[each.clip.prompt] += 1
    single = {each.clip.id: [each] for each in chosen if sizes[each.clip.prompt] == 1}
    common = set(_stratified(rng, single, draw.common, exclude=(), by_source=True))
    lists: list[list[Chosen]] = [[each for each in chosen if each.clip.id in common] for _ in range(draw.batches)]
    others = [each for each in chosen if each.clip.id not in common]
    rng.shuffle(others)
    # Assign paired prompts first, while no list is full; then by class, so that the strata are spread evenly.
    others.sort(key=lambda each: (sizes[each.clip.prompt] == 1, each.final_class, each.stratum))
    for each in others:
        free = [part for part in lists if all(other.clip.prompt != each.clip.prompt for other in part)]
        same = (each.stratum, each.final_class)
        min(free, key=lambda part: (len(part), sum((o.stratum, o.final_class) == same for o in part))).append(each)
    for part in lists:
        rng.shuffle(part)
    return lists


def write(folder: Path, chosen: Sequence[Chosen], draw: Draw = FIRST) -> None:
    """Write clips.csv, the audio and the batches to a folder."""
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    split_by_id = split(chosen, draw)
    with (folder / "clips.csv").open("w", encoding="utf-8", newline="") as opened:
        table = csv.writer(opened, lineterminator="\n")
        table.writerow(_COLUMNS)
        for each, pcm in zip(chosen, sources.decode_all([each.clip for each in chosen]), strict=True):
            clip, digest = each.clip, hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()
            row = (clip.id, clip.source, clip.package, clip.file, digest, clip.rate_hz, len(pcm), clip.text)
            table.writerow((*row, each.final_class, split_by_id[clip.id]))
            soundfile.write(folder / "audio" / f"{clip.id}.wav", pcm, clip.rate_hz, subtype="PCM_16")
    for number, part in enumerate(batches(chosen, draw), 1):
        with (folder / f"batch-{number}.csv").open("w", encoding="utf-8", newline="") as opened:
            table = csv.writer(opened, lineterminator="\n")
            table.writerow(("id", "text"))
            table.writerows((each.clip.id, each.clip.text) for each in part)


def _prompts(downloads: Path, phones: FinalPhones) -> dict[str, list[Chosen]]:
    """The prompts that exist at both rates, as [8 kHz, 16 kHz]."""
    grouped: dict[str, list[Candidate]] = defaultdict(list)
    for language in sources.LANGUAGES:
        for clip in sources.asterisk(downloads, language):
            grouped[clip.prompt].append(clip)
    return {
        prompt: [Chosen(clip, name, clip.source.rsplit("-", 1)[0]) for clip in pair]
        for prompt, pair in sorted(grouped.items())
        if len(pair) == 2 and (name := phones.final_class(pair[0].text, pair[0].language))
    }


def _classified(clip: Candidate, phones: FinalPhones) -> Chosen:
    name = phones.final_class(clip.text, clip.language)
    if name is None:
        raise ValueError(f"{clip.id}: espeak-ng found no phone in {clip.text!r}")
    return Chosen(clip, name, clip.source.removesuffix("-8k"))


def _stratified(
    rng: random.Random, pool: dict[str, list[Chosen]], count: int, exclude: Iterable[str], by_source: bool = False
) -> list[str]:
    """Draw keys by the weights of the classes; when a class is exhausted, its share goes to the others."""
    keys_by_class: dict[str, list[str]] = defaultdict(list)
    excluded = set(exclude)
    for key in sorted(pool.keys() - excluded):
        keys_by_class[pool[key][0].final_class].append(key)
    for keys in keys_by_class.values():
        rng.shuffle(keys)
    drawn: list[str] = []
    class_counts = dict.fromkeys(_WEIGHTS, 0)
    stratum_counts: dict[str, int] = defaultdict(int)
    while len(drawn) < count:
        name = min(
            (name for name in _WEIGHTS if keys_by_class[name]),
            key=lambda name: (class_counts[name] + 0.5) / _WEIGHTS[name],
        )
        keys = keys_by_class[name]
        best = min(keys, key=lambda key: stratum_counts[pool[key][0].stratum]) if by_source else keys[-1]
        keys.remove(best)
        if not _usable(pool[best][0].clip):
            continue
        stratum_counts[pool[best][0].stratum] += 1
        class_counts[name] += 1
        drawn.append(best)
    return drawn


def _usable(clip: Candidate) -> bool:
    """Whether a caller could say a prompt of this length, which is the same at both rates."""
    samples = len(clip.load()) if clip.g722 is None else 2 * len(clip.g722)
    return _SHORTEST_S <= samples / clip.rate_hz <= _LONGEST_S


def _quiet_parts(rng: random.Random, pool: dict[str, list[Chosen]], draw: Draw, exclude: set[str]) -> list[Chosen]:
    """Prompts with the loudest pauses and with the most soft sound after the last loud part, at alternating rates."""
    keys = sorted(pool.keys() - exclude)
    rng.shuffle(keys)
    keys = [key for key in keys[:_LEVEL_MEASURED] if _usable(pool[key][0].clip)]
    levels = {key: level_db(pool[key][0].clip.load(), pool[key][0].clip.rate_hz, 20)[::10] for key in keys}
    noisy = sorted(keys, key=lambda key: -float(np.percentile(levels[key], 10)))[: draw.noisy]
    breathy = sorted((key for key in keys if key not in noisy), key=lambda key: -_soft_after(levels[key]))[
        : draw.breaths
    ]
    return [pool[key][number % 2] for number, key in enumerate(noisy + breathy)]


def _soft_after(levels: np.ndarray) -> int:
    """The number of 10 ms steps after the last loud one that are 25 to 50 dB below the loud ones."""
    loud = float(np.percentile(levels, 95))
    after = levels[int(np.flatnonzero(levels > loud - 15)[-1]) + 1 :]
    return int(np.count_nonzero((after < loud - 25) & (after > loud - 50)))
