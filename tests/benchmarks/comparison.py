"""Simulated comparisons of two runs: how often any figure is marked where the runs do not differ, and how often the one
figure that is worse by a fifth is.

The turns come in calls of 2 to 20, and those of a call are alike (correlation 0.25 of what makes a turn slow). They are
not smooth: a cache answers three of ten turns at once, an end of turn is found on a grid of 20 ms, a silence of 10 ms,
one turn in fifty stalls, one is not answered. Stages add up to voice to voice. Each kind of run is one of these by
itself, all together, and all with the same clips in both runs, of which some are slow.

python -m tests.benchmarks.comparison --pairs 400
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, RunComparison, compare_runs
from telemetry.model.semconv import OUTCOMES
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.cohort_turns import (
    AUDIO,
    CACHE_HIT,
    CALL,
    FALLBACK,
    OUTCOME,
    WER_ERRORS,
    WER_WORDS,
    CohortTurns,
    missed_column,
    packed_codes,
    packed_numbers,
)
from tests.benchmarks.rollout.figures import Share

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
MS: Final = 1e6
TURNS: Final = 500
WORSE_BY: Final = 1.2
GOOD_WITHIN_MS: Final = 1500.0
_CLIPS: Final = 60


@dataclass(frozen=True)
class Kind:
    """The distribution of the turns of both runs."""

    correlation: float = 0.25  # of the turns of a call
    spread: float = 0.25  # of the logarithm of what a stage takes
    cache_hits: float = 0.0
    grid_ms: float = 0.0  # what an end of turn is rounded up to; half of it a silence
    stalls: float = 0.0
    no_reply: float = 0.0
    of_clip: float = 0.0  # the part of the variance that a clip has in both runs
    longest_call: int = 20


KINDS: Final[dict[str, Kind]] = {
    "smooth": Kind(),
    "two humps": Kind(cache_hits=0.3),
    "rounded": Kind(grid_ms=20),
    "stalls and no replies": Kind(stalls=0.02, no_reply=0.02),
    "all of these": Kind(cache_hits=0.3, grid_ms=20, stalls=0.02, no_reply=0.02),
    "all, the same clips": Kind(cache_hits=0.3, grid_ms=20, stalls=0.02, no_reply=0.02, of_clip=0.3),
    "all, wider": Kind(spread=0.35, cache_hits=0.3, grid_ms=20, stalls=0.02, no_reply=0.02),
}
# The figures that can be worse, each by every percentile or by its share.
LATENCIES: Final = (
    "voice_to_voice",
    "endpointing",
    "asr_final_latency",
    "llm_first_token_latency",
    "tts_first_chunk_latency",
    "leading_silence",
)
SHARES: Final[dict[str, float]] = {"no_reply": 0.02, "fallbacks": 0.04, "wer": 0.08}


@dataclass(frozen=True)
class Worse:
    """The figure of the candidate that is worse, and by which factor."""

    figure: str = ""
    factor: float = 1.0

    def times(self, figure: str) -> float:
        """Return the factor by which this figure is larger."""
        return self.factor if figure == self.figure else 1.0


NOT_WORSE: Final = Worse()


class _Turns:
    """Draws that are alike within a call, and where clips are slow, within a clip."""

    def __init__(self, rng: np.random.Generator, kind: Kind, of_clip: Floats, turns: int) -> None:
        self._rng, self._kind, self._of_clip = rng, kind, of_clip
        self.calls = np.repeat(np.arange(turns), rng.integers(2, kind.longest_call + 1, turns))[:turns]
        self.clips = rng.permutation(np.arange(turns) % _CLIPS)

    def normal(self, place: int) -> Floats:
        """Standard normal; `place` is whose clips are slow: each stage has its own."""
        size, of_clip, of_call = self.calls.size, self._kind.of_clip, self._kind.correlation
        alone = 1 - of_clip - of_call * (1 - of_clip)
        by_call = self._rng.normal(size=self.calls[-1] + 1)[self.calls]
        by_clip = self._of_clip[place][self.clips]
        return (
            np.sqrt(of_clip) * by_clip
            + np.sqrt(of_call * (1 - of_clip)) * by_call
            + np.sqrt(alone) * self._rng.normal(size=size)
        )

    def happens(self, share: float) -> NDArray[np.bool_]:
        """Whether something does in a turn that has this share of turns; in some calls it does more often."""
        return np.asarray(stats.norm.cdf(self.normal(-1)) < share)


def run(name: str, rng: np.random.Generator, kind: Kind, of_clip: Floats, worse: Worse) -> ComparedRun:
    """The turns of a run."""
    turns = _Turns(rng, kind, of_clip, TURNS)

    def stage(place: int, median_ms: float) -> Floats:
        return median_ms * np.exp(kind.spread * turns.normal(place))

    def rounded(values: Floats, grid_ms: float) -> Floats:
        return np.ceil(values / grid_ms) * grid_ms if grid_ms else values

    is_hit = turns.happens(kind.cache_hits)
    endpointing = rounded(stage(0, 300), kind.grid_ms)
    asr_final = endpointing + stage(1, 120)
    first_token = asr_final + np.where(is_hit, stage(2, 30), stage(3, 350))
    first_token = first_token + turns.happens(kind.stalls) * (1500 + 1000 * rng.exponential(size=TURNS))
    tts, silence = stage(4, 180), rounded(stage(5, 60), kind.grid_ms / 2)
    whole = first_token + tts + silence
    latencies = dict(zip(LATENCIES, (whole, endpointing, asr_final, first_token, tts, silence), strict=True))
    is_silent = turns.happens(kind.no_reply * worse.times("no_reply"))
    values = {name: MS * worse.times(name) * ms for name, ms in latencies.items()}
    values = {name: np.where(is_silent, np.nan, ns) for name, ns in values.items()}
    words = rng.integers(3, 16, TURNS)
    wrong = np.clip(worse.times("wer") * SHARES["wer"] * np.exp(0.5 * turns.normal(6) - 0.125), 0, 1)
    counted = {
        CACHE_HIT: is_hit,
        FALLBACK: turns.happens(worse.times("fallbacks") * SHARES["fallbacks"]),
        WER_ERRORS: rng.binomial(words, wrong),
        WER_WORDS: words,
    }
    is_missed = is_silent | (whole * worse.times("voice_to_voice") > GOOD_WITHIN_MS)
    missed = {missed_column(objective.name): is_missed for objective in _OBJECTIVES}
    codes = {
        OUTCOME: packed_codes(np.where(is_silent, OUTCOMES.index("no_reply"), OUTCOMES.index("ok"))),
        CALL: packed_codes(turns.calls),
    }
    if kind.of_clip:
        codes[AUDIO] = packed_codes(turns.clips)
    numbers = {name: packed_numbers(column) for name, column in {**values, **counted, **missed}.items()}
    return ComparedRun(name, CohortTurns(name, TURNS, numbers, codes, first_unix_ns=0, newest_unix_ns=0))


_OBJECTIVES: Final = tuple(objective for objective in default_objectives() if objective.counts == "turns")


def compared(kind: Kind, seed: int, worse: Worse = NOT_WORSE) -> RunComparison:
    """A baseline and a candidate that differ in one figure or in none."""
    rng = np.random.default_rng(seed)
    of_clip = rng.normal(size=(8, _CLIPS))
    baseline = run("baseline", rng, kind, of_clip, NOT_WORSE)
    candidate = run("candidate", rng, kind, of_clip, worse)
    return compare_runs(baseline, candidate, RegressionMargin(), _OBJECTIVES)


def false_marks(kind: Kind, seeds: Sequence[int]) -> tuple[Share, Share, int]:
    """Count among pairs that do not differ: those with a marked figure, those with an interval that leaves out 0; and
    how many figures have one."""
    pairs = [compared(kind, seed) for seed in seeds]
    return (
        Share.count(any(difference.is_shown for difference in pair.differences) for pair in pairs),
        Share.count(any(difference.leaves_out_zero for difference in pair.differences) for pair in pairs),
        max(pair.marked_over for pair in pairs),
    )


def true_marks(kind: Kind, figure: str, seeds: Sequence[int], factor: float = WORSE_BY) -> dict[str, Share]:
    """Count among pairs in which a figure is worse: those marked so, by any percentile and by each, and those in which
    another figure is marked that does not differ."""
    marks: list[dict[str, bool]] = []
    for seed in seeds:
        pair = compared(kind, seed, Worse(figure, factor))
        own = [difference for difference in pair.differences if difference.figure.name.startswith(figure)]
        same = [
            difference
            for difference in pair.differences
            if difference not in own and difference.figure.group != "turns"
        ]
        marks.append(
            {
                "marked": any(difference.is_worse for difference in own),
                **{difference.figure.name: bool(difference.is_worse) for difference in own},
                "another": any(difference.is_shown for difference in same),
            }
        )
    return {name: Share.count(mark[name] for mark in marks) for name in marks[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every kind of run and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, action="append", help="one of the kinds; may be repeated")
    options = parser.parse_args(arguments)
    began_s = time.process_time()
    seeds = range(options.seed, options.seed + options.pairs)
    rows: dict[str, object] = {}
    for name in options.kind or KINDS:
        kind = KINDS[name]
        marked, left_out, figures = false_marks(kind, seeds)
        row: dict[str, object] = {
            "figures": figures,
            "identical: any marked": str(marked),
            "identical: any interval leaves out 0": str(left_out),
        }
        for figure in (*LATENCIES, *SHARES):
            if figure == "no_reply" and not kind.no_reply:
                continue
            row[f"{figure} worse by 20 %"] = {key: str(share) for key, share in true_marks(kind, figure, seeds).items()}
        rows[name] = row
        print(json.dumps({name: row}, indent=1), flush=True)
    print(json.dumps({"pairs of each": options.pairs, "cpu_s": round(time.process_time() - began_s, 1)}))


if __name__ == "__main__":
    main()
