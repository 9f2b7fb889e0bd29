"""Simulated rollouts, looked at after every 100 turns: how often the gate is right, beside what teams do by hand.

`naive` rolls back as soon as the candidate's p95 exceeds the control's by the margin, at any look. `mann_whitney` is
that test over the raw turns at a nominal 5 %, one look at the end. Both are given an identical candidate.

python -m tests.benchmarks.rollout --rollouts 200
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from telemetry.rollout.checks import check_results
from telemetry.rollout.cohort_turns import CohortTurns
from telemetry.rollout.estimates import CheckSample, quantile_difference
from telemetry.rollout.history import Decision
from telemetry.rollout.plan import RolloutPlan
from tests.rollout_cohorts import SAME, Regression, cohort, first_turns, plan

MARGIN_MS: Final = 60.0
LOOK_EVERY: Final = 100
CONTROL_TURNS: Final = 3  # for each of the candidate
# The most turns of the candidate: more than the plan asks for, so that it is seen what happens beyond.
MOST_TURNS: Final = 6000
SCENARIOS: Final[dict[str, Regression]] = {
    "identical": SAME,
    "at the margin": Regression(shift_ms=MARGIN_MS),
    "twice the margin": Regression(shift_ms=2 * MARGIN_MS),
    "no reply to more turns, at the margin": Regression(no_reply=0.01),
    "slowest 2 % by 1.5 s": Regression(tail=0.02, tail_ms=1500),
    "1 turn in 20 by 2.5 s": Regression(at_random=0.05, tail_ms=2500),
}


@dataclass(frozen=True)
class Simulated:
    """One rollout: its first verdict that was not hold, after how many turns, and when the planned turns were there."""

    verdict: Decision
    turns: int
    by_plan: Decision


def looks(of: RolloutPlan, candidate: CohortTurns, control: CohortTurns) -> Iterator[tuple[int, Decision, bool]]:
    """Every look: the turns, the verdict by the gate's rules, and whether the planned turns are there."""
    for turns in range(LOOK_EVERY, candidate.turns + 1, LOOK_EVERY):
        results = check_results(of, first_turns(candidate, turns), first_turns(control, turns * CONTROL_TURNS))
        statuses = {result.status for result in results}
        decision: Decision = "roll_back" if "worse" in statuses else "promote" if statuses == {"within"} else "hold"
        yield turns, decision, all(result.information >= 1 for result in results)


def simulate(of: RolloutPlan, regression: Regression, seed: int, most_turns: int = MOST_TURNS) -> Simulated:
    """One rollout that ends with its first decision."""
    rng = np.random.default_rng(seed)
    candidate = cohort(of.candidate, most_turns, rng, regression)
    control = cohort(of.control, most_turns * CONTROL_TURNS, rng)
    by_plan: Decision | None = None
    for turns, decision, is_planned in looks(of, candidate, control):
        if decision != "hold":
            return Simulated(decision, turns, decision if by_plan is None else by_plan)
        if is_planned and by_plan is None:
            by_plan = decision
    return Simulated("hold", most_turns, "hold" if by_plan is None else by_plan)


def naive(seed: int, margin_ms: float = MARGIN_MS, most_turns: int = MOST_TURNS) -> bool:
    """Whether the rule by hand rolls an identical candidate back."""
    rng = np.random.default_rng(seed)
    both = [_values(cohort("any", turns, rng)) for turns in (most_turns, most_turns * CONTROL_TURNS)]
    return any(
        np.quantile(both[0][:turns], 0.95) > np.quantile(both[1][: turns * CONTROL_TURNS], 0.95) + margin_ms * 1e6
        for turns in range(LOOK_EVERY, most_turns + 1, LOOK_EVERY)
    )


def mann_whitney(seed: int, most_turns: int = MOST_TURNS) -> bool:
    """Whether the test over raw turns, at the end, calls an identical candidate different."""
    rng = np.random.default_rng(seed)
    both = [_values(cohort("any", turns, rng)) for turns in (most_turns, most_turns * CONTROL_TURNS)]
    return bool(stats.mannwhitneyu(*both).pvalue < 0.05)


def paired_saving(seed: int, turns: int = 2000, utterances: int = 250) -> float:
    """How many times fewer turns are needed for the same error when both cohorts heard the same clips, and a reply's
    latency depends on the clip (standard deviation 150 ms) beside everything else (50 ms)."""
    rng = np.random.default_rng(seed)
    clips = np.arange(turns) % utterances
    slow_ms = rng.normal(0, 150, utterances)[clips]
    errors: list[float] = []
    for pairs in (None, clips):
        both = [CheckSample(800 + slow_ms + rng.normal(0, 50, turns), np.arange(turns), None, pairs) for _ in range(2)]
        errors.append(quantile_difference(both[0], both[1], 0.95).standard_error)
    return (errors[0] / errors[1]) ** 2


def _values(of: CohortTurns) -> np.ndarray:
    values = of.number("voice_to_voice")
    assert values is not None
    return np.where(np.isnan(values), np.inf, values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate every scenario and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began_s = time.process_time()
    of = plan(MARGIN_MS)
    seeds = range(options.seed, options.seed + options.rollouts)
    found: dict[str, object] = {}
    for name, regression in SCENARIOS.items():
        ended = [simulate(of, regression, seed) for seed in seeds]
        found[name] = {
            "promoted": sum(each.verdict == "promote" for each in ended) / len(ended),
            "promoted when the planned turns were there": sum(e.by_plan == "promote" for e in ended) / len(ended),
            "rolled back": sum(each.verdict == "roll_back" for each in ended) / len(ended),
            "turns, median": float(np.median([each.turns for each in ended])),
        }
    found["identical, naive rule: rolled back"] = sum(map(naive, seeds)) / len(seeds)
    found["identical, Mann-Whitney: called different"] = sum(map(mann_whitney, seeds)) / len(seeds)
    found["paired by utterance: times fewer turns"] = round(float(np.median([*map(paired_saving, seeds)])), 1)
    found["rollouts of each"] = options.rollouts
    found["cpu_s"] = round(time.process_time() - began_s, 1)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
