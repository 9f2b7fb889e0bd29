"""The simulated scenarios and their expected results, one a row. Pure data.

The margin of the rows is 200 ms of the p95 of voice to voice, which is about 1.25 s; the checks are those that a plan
has whose file names no guardrail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from tests.benchmarks.rollout.generator import SAME, Change, Service

MARGIN_MS: Final = 200.0
MOST_TURNS: Final = 5000
SHARES: Final = (0.05, 0.25, 0.5)
# What a limit is about: shares of rollouts, turns of the candidate at the median (after the onset, where there is one),
# and forecasts / turns that the promotion took, at the median.
Figure = Literal[
    "rolled back",
    "promoted",
    "promoted by the primary check",
    "rolled back by cache misses",
    "aware of the gap",
    "turns to roll back",
    "forecast at 25 %",
    "forecast at 50 %",
]
Looks = Literal["every 50 to 100 turns", "every turn", "every stage"]


@dataclass(frozen=True)
class Limit:
    """A limit of a figure."""

    figure: Figure
    least: float = -np.inf
    most: float = np.inf


@dataclass(frozen=True)
class Scenario:
    """A row. `services` are taken in turn, one a rollout. `plan` are tables of the plan's file in addition to its
    cohorts and stages; `rollouts` multiplies the number that is asked for."""

    name: str
    services: tuple[Service, ...]
    change: Change
    share: float
    limits: tuple[Limit, ...] = ()
    plan: str = ""
    is_paired: bool = False
    looks: Looks = "every 50 to 100 turns"
    most_turns: int = MOST_TURNS
    rollouts: float = 1.0


BIMODAL: Final = Service()
SMOOTH: Final = Service(hits=None)
LONG: Final = Service(calls="to 200", correlation=0.5)
# Each kind of latencies by itself.
KINDS: Final = {
    "smooth": SMOOTH,
    "bimodal": BIMODAL,
    "rounded to 250 ms": replace(BIMODAL, rounded_ms=250),
    "rounded to 100 ms": replace(BIMODAL, rounded_ms=100),
    "calls to 200 turns": replace(BIMODAL, calls="to 200"),
    "correlation 0.5": replace(BIMODAL, correlation=0.5),
    "correlation 0.5, calls to 200 turns": LONG,
    "correlation 0.5, calls to 200 turns, smooth": replace(LONG, hits=None),
    "users who call often": replace(BIMODAL, are_users=True),
    "no drift": replace(BIMODAL, is_drifting=False),
    "3 % of turns lost": replace(BIMODAL, lost=0.03),
    "30 % of the values over the p90 missing": replace(BIMODAL, missing=0.3),
}
ATOMS: Final = {
    "3.6 % at 1.8 s": ((0.036, 1800.0),),
    "8 % at 1.5 s": ((0.08, 1500.0),),
    "1 % at 3 s": ((0.01, 3000.0),),
}
# The candidate's share beyond the p95 and the margin is 4.5 %: between them lies hardly a turn.
_IN_A_GAP: Final = {"3.6 % at 2.5 s": ((0.036, 2500.0),)}
_FORECASTS: Final = (Limit("forecast at 25 %", 1 / 1.5, 1.5), Limit("forecast at 50 %", 1 / 1.5, 1.5))
_NO_ALARM: Final = Limit("rolled back", most=0.02)
_NOT_PROMOTED: Final = Limit("promoted", most=0.05)


def scenarios() -> tuple[Scenario, ...]:
    """Every row, in the order of the table."""
    return (
        *_identical(),
        *_at_the_margin(),
        *_beyond_the_margin(),
        *_tails(),
        *_ratios(),
        *_missing(),
        *_onsets(),
        *_every_turn(),
        *_stages(),
        *_paired(),
    )


def _one(name: str, service: Service, change: Change, share: float, *limits: Limit, **others: object) -> Scenario:
    """A row of one service; the cohorts' share is part of its name."""
    return Scenario(f"{name}; {_percent(share)}", (service,), change, share, limits, **others)  # type: ignore[arg-type]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _identical() -> Iterator[Scenario]:
    for name, service in KINDS.items():
        must: tuple[Limit, ...] = ()
        if name in ("smooth", "bimodal", "rounded to 250 ms"):
            must = (Limit("promoted by the primary check", least=0.9), *_FORECASTS)
        for share in SHARES if must or service in (LONG, replace(LONG, hits=None)) else (0.25,):
            yield _one(f"identical: {name}", service, SAME, share, _NO_ALARM, *must, *_all_checks(service, share))
    for name, atoms in {**ATOMS, **_IN_A_GAP}.items():
        warned = (Limit("aware of the gap", least=0.95),) if name in _IN_A_GAP else ()
        for share in (0.05, 0.25):
            yield _one(f"identical: time-outs, {name}", replace(BIMODAL, atoms=atoms), SAME, share, _NO_ALARM, *warned)
    at_p50 = '[primary]\nmetric = "voice_to_voice"\nstatistic = "p50"\nmargin = "100ms"'
    half_hits = replace(BIMODAL, hits=0.53)
    yield _one("identical: p50 between the humps of 53 % cache hits", half_hits, SAME, 0.25, _NO_ALARM, plan=at_p50)
    for share in SHARES:
        several = tuple(combination for at, combination in combinations() if at == share)
        name = f"identical: {len(several)} of 20 random combinations; {_percent(share)}"
        yield Scenario(name, several, SAME, share, (_NO_ALARM,), rollouts=len(several) / 4)


def _all_checks(service: Service, share: float) -> tuple[Limit, ...]:
    """Return the limits on promotions by all checks. Where hits are alike within calls, as latencies are, it takes
    thousands of turns of both cohorts to show cache misses within 5 points, and no promotion comes before. With equal
    cohorts, and with long calls, that is reported, so that a candidate at that margin is promoted in at most 5 %."""
    if service == LONG or (service.hits is not None and share == 0.5):
        return ()
    if service.calls == "to 200" and service.correlation == 0.5:
        return (Limit("promoted", least=0.6),)
    return (Limit("promoted", least=0.8),) if service in (SMOOTH, BIMODAL, replace(BIMODAL, rounded_ms=250)) else ()


def combinations() -> tuple[tuple[float, Service], ...]:
    """The candidate's shares and the services of 20 random combinations, the same ones always."""
    rng = np.random.default_rng(2035)
    stages: list[tuple[float, Service]] = []
    for number in range(20):
        atoms = [(), (), *ATOMS.values()]
        service = Service(
            hits=[None, 0.15, 0.3, 0.53, 0.7][rng.integers(5)],
            atoms=atoms[rng.integers(len(atoms))],
            rounded_ms=[0.0, 0.0, 100.0, 250.0][rng.integers(4)],
            calls="to 200" if rng.random() < 0.5 else "to 20",
            correlation=0.5 if rng.random() < 0.5 else 0.25,
            are_users=bool(rng.random() < 0.3),
            is_drifting=bool(rng.random() < 0.7),
            lost=[0.0, 0.03][rng.integers(2)],
            missing=[0.0, 0.3][rng.integers(2)],
        )
        stages.append((SHARES[number % len(SHARES)], service))
    return tuple(stages)


def _at_the_margin() -> Iterator[Scenario]:
    at, half = Change(shift_ms=MARGIN_MS), Change(shift_ms=MARGIN_MS / 2)
    for share in SHARES:
        yield _one("p95 at the margin: bimodal", BIMODAL, at, share, _NOT_PROMOTED)
    others = ("smooth", "correlation 0.5, calls to 200 turns", "users who call often", "no drift", "3 % of turns lost")
    for name in others:
        yield _one(f"p95 at the margin: {name}", KINDS[name], at, 0.25, _NOT_PROMOTED)
    for name in ("bimodal", "smooth"):
        for share in SHARES:
            yield _one(f"half the margin: {name}", KINDS[name], half, share, Limit("rolled back", most=0.1))


def _beyond_the_margin() -> Iterator[Scenario]:
    for times in (2, 5):
        for name in ("bimodal", "smooth"):
            for share in SHARES:
                soon = 150 if times == 5 else 300 if share == 0.05 else 450
                must = (Limit("rolled back", least=0.99), Limit("turns to roll back", most=soon))
                yield _one(f"{times} x the margin: {name}", KINDS[name], Change(times * MARGIN_MS), share, *must)


def _tails() -> Iterator[Scenario]:
    for share in SHARES:
        for part, limit in ((1, _NOT_PROMOTED), (2, Limit("rolled back", least=0.95))):
            slowest = Change(slowest=0.02 * part, later_ms=1500)
            at_random = Change(at_random=0.01 * part, later_ms=6000)
            most = MOST_TURNS if part == 1 else 3000
            yield _one(f"slowest {2 * part} % + 1.5 s", BIMODAL, slowest, share, limit, most_turns=most)
            yield _one(f"random {part} % + 6 s", BIMODAL, at_random, share, limit, most_turns=most)


def _ratios() -> Iterator[Scenario]:
    no_reply = '[[guardrails]]\ncheck = "no_reply"\nmargin = 0.01'
    for share in SHARES:
        soon = (Limit("rolled back by cache misses", least=0.95), Limit("turns to roll back", most=1000))
        yield _one("cache hits 30 -> 15 %", BIMODAL, Change(hits=0.15), share, *soon)
        fewer = Change(hits=0.25)
        yield _one("cache hits 30 -> 25 %, at the margin", BIMODAL, fewer, share, _NOT_PROMOTED)
        at = Change(no_reply=0.01)
        yield _one("no reply to 1 % more, at the margin", BIMODAL, at, share, _NOT_PROMOTED, plan=no_reply)


def _missing() -> Iterator[Scenario]:
    for times in (1.5, 5):
        for missing in (0.3, 0.6, 1.0):
            name = f"{times:g} x the margin, {_percent(missing)} of the values over the control's p90 missing"
            change = Change(times * MARGIN_MS, missing=missing)
            for share in (0.05, 0.5):
                yield _one(name, BIMODAL, change, share, Limit("promoted", most=0))


def _onsets() -> Iterator[Scenario]:
    """Yield onsets in a last stage that is long enough, so that nothing is promoted before."""
    for share in SHARES:
        unanswered = Change(onset=1500, unanswered=0.5)
        creeping = Change(onset=1500, creep_ms=1)
        soon, later = Limit("turns to roll back", most=150), Limit("turns to roll back", most=500)
        yield _one("half the turns unanswered from turn 1,500 on", BIMODAL, unanswered, share, soon, most_turns=3000)
        yield _one("+1 ms a turn from turn 1,500 on", BIMODAL, creeping, share, later, most_turns=3000)


def _every_turn() -> Iterator[Scenario]:
    """Levels hold however often anyone looks."""
    for name, change, limit in (
        ("identical", SAME, _NO_ALARM),
        ("p95 at the margin", Change(MARGIN_MS), _NOT_PROMOTED),
        ("half the margin", Change(MARGIN_MS / 2), Limit("rolled back", most=0.1)),
    ):
        named = f"{name}, a look after every turn"
        yield _one(named, BIMODAL, change, 0.5, limit, looks="every turn", most_turns=2500, rollouts=0.25)


def _stages() -> Iterator[Scenario]:
    """Over all stages together, 5, 25 and 50 %, with a pause after each."""
    for name, change, limit in (
        ("identical", SAME, Limit("rolled back", most=0.05)),
        ("p95 at the margin", Change(MARGIN_MS), _NOT_PROMOTED),
        ("2 x the margin", Change(2 * MARGIN_MS), Limit("rolled back", least=0.99)),
        ("slowest 2 % + 1.5 s", Change(slowest=0.02, later_ms=1500), _NOT_PROMOTED),
        ("cache hits 30 -> 25 %", Change(hits=0.25), _NOT_PROMOTED),
    ):
        yield Scenario(f"{name}, through every stage", (BIMODAL,), change, 0.05, (limit,), looks="every stage")


def _paired() -> Iterator[Scenario]:
    """Nine tenths of the variance come from the clip."""
    heard = replace(BIMODAL, utterances=250)
    for name, is_paired in (("paired by utterance", True), ("not paired", False)):
        yield _one(f"identical: 250 clips, {name}", heard, SAME, 0.5, _NO_ALARM, is_paired=is_paired)
