"""Turns of both cohorts of a rollout, as services produce them: two humps where a cache answers, time-outs at one
value, rounded exporters, calls of very different lengths, users who call often, hours that are slower for everybody.
Seeded.

It shares nothing with `tests.rollout_cohorts`, by which the rules were developed. Turns of a call are alike through a
normal variable behind each (a Gaussian copula), so that any shape of latencies can have any correlation.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from telemetry.model.semconv import OUTCOMES
from telemetry.rollout.cohort_turns import AUDIO, CACHE_HIT, CALL, OUTCOME, CohortTurns, packed_codes, packed_numbers

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]

MS: Final = 1_000_000
# Milliseconds at the median, and the spread on a logarithmic scale.
SMOOTH: Final = (650.0, 0.35)
OF_A_HIT: Final = (320.0, 0.25)
OF_A_MISS: Final = (715.0, 0.33)
STALL: Final = (900.0, 0.6)
STALLS: Final = 0.02
NO_REPLY: Final = 0.005
DRIFT: Final = 0.12  # an hour is slower for everybody by so much, on a logarithmic scale
DRIFT_PERIOD_S: Final = 6 * 3600.0
SECONDS_A_TURN: Final = 8.0
# A turn of the candidate every six seconds: 5,000 take a working day.
CANDIDATE_INTERVAL_S: Final = 6.0
LONG_CALLS: Final = (6.0, 1.0)  # turns at the median, spread on a logarithmic scale; cut at 200
MOST_CALLS_OF_A_USER: Final = 50
AUDIO_PART: Final = 0.9  # of the variance, where an utterance decides how long its reply takes
_REFERENCE_TURNS: Final = 400_000


@dataclass(frozen=True)
class Service:
    """The distribution of turns, of both cohorts. `hits` None is a service without a cache and with one hump; `atoms`
    are pairs of a share of turns and the milliseconds that each of them takes; `missing` is how many of the values over
    the p90 are never reported; of `utterances` the callers say one each."""

    hits: float | None = 0.30
    atoms: tuple[tuple[float, float], ...] = ()
    rounded_ms: float = 0.0
    calls: Literal["to 20", "to 200"] = "to 20"
    correlation: float = 0.25
    are_users: bool = False
    is_drifting: bool = True
    lost: float = 0.0
    missing: float = 0.0
    utterances: int = 0


@dataclass(frozen=True)
class Change:
    """The candidate's difference. `slowest` turns, and `at_random` as well, are later by `later_ms`; of the values over
    the control's p90 `missing` are not reported; from turn `onset` on `unanswered` turns get no reply, and each turn
    takes `creep_ms` longer than the one before."""

    shift_ms: float = 0.0
    slowest: float = 0.0
    at_random: float = 0.0
    later_ms: float = 0.0
    hits: float | None = None
    no_reply: float = 0.0
    missing: float = 0.0
    onset: int = 0
    unanswered: float = 0.0
    creep_ms: float = 0.0


SAME: Final = Change()


@dataclass(frozen=True)
class BothCohorts:
    """The turns of a stage, in the order in which they came. `control_turns` says how many of the control had come with
    each turn of the candidate."""

    candidate: CohortTurns
    control: CohortTurns
    control_turns: Codes

    def first(self, turns: int) -> tuple[CohortTurns, CohortTurns]:
        """Return the turns of both cohorts by the time the candidate had so many."""
        return first_turns(self.candidate, turns), first_turns(self.control, int(self.control_turns[turns - 1]))


def first_turns(of: CohortTurns, turns: int) -> CohortTurns:
    """The first turns of a cohort."""
    return CohortTurns(
        of.cohort,
        min(turns, of.turns),
        {name: column[: 8 * turns] for name, column in of.numbers.items()},
        {name: column[: 4 * turns] for name, column in of.codes.items()},
        of.labels,
        of.first_unix_ns,
        of.newest_unix_ns,
        of.unnamed_turns,
    )


def both_cohorts(service: Service, change: Change, share: float, turns: int, rng: np.random.Generator) -> BothCohorts:
    """So many turns of the candidate, which has `share` of all calls, and what comes of the control meanwhile."""
    began_s = rng.uniform(0, DRIFT_PERIOD_S)
    candidate_s, candidate = _cohort("candidate", service, change, (turns, turns), (began_s, rng))
    control = round(turns * (1 - share) / share)
    control_s, others = _cohort("control", service, SAME, (turns, control), (began_s, rng))
    candidate = first_turns(candidate, turns)
    return BothCohorts(candidate, others, np.searchsorted(control_s, candidate_s[: candidate.turns]))


def _cohort(
    name: str,
    service: Service,
    change: Change,
    turns: tuple[int, int],
    at: tuple[float, np.random.Generator],
) -> tuple[Floats, CohortTurns]:
    """When each turn came, and the turns. `turns` are those of the candidate, which say how long it takes, and those of
    this cohort."""
    began_s, rng = at
    calls, of_turn, at_s = _calls(service, turns, rng)
    users = _users(calls, rng) if service.are_users else np.arange(calls)
    utterances = rng.integers(service.utterances, size=of_turn.size) if service.utterances else None
    undrifted, hit = _latencies(service, change, (of_turn, users[of_turn]), utterances, rng)
    values = undrifted * np.exp(DRIFT * np.sin(2 * np.pi * (began_s + at_s) / DRIFT_PERIOD_S) * service.is_drifting)
    values = _changed(service, change, values, undrifted, rng)
    for part, atom_ms in service.atoms:
        values[rng.random(values.size) < part] = atom_ms
    if service.rounded_ms:
        values = np.round(values / service.rounded_ms) * service.rounded_ms
    silent = rng.random(values.size) < NO_REPLY + change.no_reply
    silent |= (np.arange(values.size) >= change.onset) & (rng.random(values.size) < change.unanswered)
    lacking = 1 - (1 - service.missing) * (1 - change.missing)
    if lacking:
        slow = values > quantile_ms(service, 0.9)
        values[slow & (rng.random(values.size) < lacking)] = np.nan
    values[silent] = np.nan
    numbers = {"voice_to_voice": packed_numbers(values * MS)}
    if hit is not None:
        numbers[CACHE_HIT] = packed_numbers(hit)
    outcomes = np.where(silent, OUTCOMES.index("no_reply"), OUTCOMES.index("ok"))
    codes = {OUTCOME: packed_codes(outcomes), CALL: packed_codes(users[of_turn])}
    if utterances is not None:
        codes[AUDIO] = packed_codes(utterances)
    unnamed = 0 if service.are_users else None
    return at_s, CohortTurns(name, int(values.size), numbers, codes, {}, 0, 0, unnamed)


def _calls(service: Service, turns: tuple[int, int], rng: np.random.Generator) -> tuple[int, Codes, Floats]:
    """Draw the number of calls, the call of each turn, and when it came: calls begin at any moment and overlap. A fifth
    more than the candidate needs."""
    mean = _lengths(service, 100_000, np.random.default_rng(0)).mean()
    calls = int(1.2 * turns[1] / mean / (1 - service.lost)) + 1
    lengths = _lengths(service, calls, rng)
    of_turn = np.repeat(np.arange(calls), lengths)
    place = np.arange(of_turn.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    begin_s = rng.uniform(0, 1.2 * turns[0] * CANDIDATE_INTERVAL_S, calls)
    at_s = begin_s[of_turn] + SECONDS_A_TURN * (place + rng.random(place.size))
    order = np.argsort(at_s)
    order = order[rng.random(order.size) >= service.lost]
    return calls, of_turn[order], at_s[order]


def _lengths(service: Service, calls: int, rng: np.random.Generator) -> Codes:
    if service.calls == "to 20":
        return rng.integers(2, 21, calls)
    middle, spread = LONG_CALLS
    return np.clip(np.round(middle * np.exp(spread * rng.normal(size=calls))), 2, 200).astype(np.int64)


def _users(calls: int, rng: np.random.Generator) -> Codes:
    """The user of each call: how many calls a user makes follows Zipf's law."""
    numbers = np.arange(1, MOST_CALLS_OF_A_USER + 1)
    weights = 1 / numbers**2
    of_user = rng.choice(numbers, size=calls, p=weights / weights.sum())
    return rng.permutation(np.repeat(np.arange(calls), of_user)[:calls])


def _latencies(
    service: Service,
    change: Change,
    groups: tuple[Codes, Codes],
    utterances: Codes | None,
    rng: np.random.Generator,
) -> tuple[Floats, Mask | None]:
    """Milliseconds without the hour, and whether a cache answered (None: there is none)."""
    normal = _alike(service, groups, rng)
    if utterances is not None:
        # The same in both cohorts: which clip it is decides.
        clips = np.random.default_rng(service.utterances).normal(size=service.utterances)[utterances]
        normal = np.sqrt(AUDIO_PART) * clips + np.sqrt(1 - AUDIO_PART) * normal
    hits = service.hits if change.hits is None else change.hits
    if hits is None:
        hit, values = None, _lognormal(SMOOTH, normal)
    else:
        hit = np.asarray(_alike(service, groups, rng) < ndtri(hits))
        values = np.where(hit, _lognormal(OF_A_HIT, normal), _lognormal(OF_A_MISS, normal))
    stalls = rng.random(values.size) < STALLS
    values[stalls] += _lognormal(STALL, rng.normal(size=int(stalls.sum())))
    return values, hit


def _alike(service: Service, groups: tuple[Codes, Codes], rng: np.random.Generator) -> Floats:
    """A standard normal of each turn, correlated within its call; half of that through the user, where users call more
    than once."""
    of_call, of_user = groups
    by_user = service.correlation / 2 if service.are_users else 0.0
    correlated = np.sqrt(1 - service.correlation) * rng.normal(size=of_call.size)
    correlated += np.sqrt(service.correlation - by_user) * rng.normal(size=int(of_call.max()) + 1)[of_call]
    if by_user:
        correlated += np.sqrt(by_user) * rng.normal(size=int(of_user.max()) + 1)[of_user]
    return correlated


def _lognormal(of: tuple[float, float], normal: Floats) -> Floats:
    return of[0] * np.exp(of[1] * normal)


def _changed(service: Service, change: Change, values: Floats, undrifted: Floats, rng: np.random.Generator) -> Floats:
    values = values + change.shift_ms
    if change.slowest:
        values[undrifted > _undrifted_ms(service, 1 - change.slowest)] += change.later_ms
    if change.at_random:
        values[rng.random(values.size) < change.at_random] += change.later_ms
    if change.creep_ms:
        values += change.creep_ms * np.maximum(0, np.arange(values.size) - change.onset)
    return values


@cache
def _reference(service: Service, *, is_drifting: bool) -> Floats:
    """Sorted latencies of a service at every hour, in milliseconds: what its quantiles truly are."""
    rng = np.random.default_rng(35)
    alone = np.arange(_REFERENCE_TURNS)
    utterances = rng.integers(service.utterances, size=alone.size) if service.utterances else None
    values, _ = _latencies(service, SAME, (alone, alone), utterances, rng)
    if is_drifting:
        values *= np.exp(DRIFT * np.sin(rng.uniform(0, 2 * np.pi, values.size)))
    for part, atom_ms in service.atoms:
        values[rng.random(values.size) < part] = atom_ms
    if service.rounded_ms:
        values = np.round(values / service.rounded_ms) * service.rounded_ms
    return np.sort(values)


def quantile_ms(service: Service, fraction: float) -> float:
    """The control's true quantile over all hours, in milliseconds."""
    return float(np.quantile(_reference(service, is_drifting=service.is_drifting), fraction))


def _undrifted_ms(service: Service, fraction: float) -> float:
    """Without the hours, so that as many turns are beyond it at each of them."""
    return float(np.quantile(_reference(service, is_drifting=False), fraction))
