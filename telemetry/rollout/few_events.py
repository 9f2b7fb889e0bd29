"""Bounds for events that are rare, exact at any number of them and at every look. Pure.

A normal approximation needs many bad turns before it can be trusted, and until then it has to be so wide that it sees
nothing. What is exact from the first one on is which cohort the bad turns fall to: where the cohorts do not differ,
each call that has a bad turn belongs to the candidate with the probability of the candidate's part of all calls,
whatever the rate is, and whether or not it changes with the hour. Four such calls, all of a candidate with a tenth of
the callers, have a probability of one in ten thousand.

The bounds are those of a test martingale: the likelihood ratio against a uniform mixture of all larger probabilities
(Robbins, *Statistical Methods Related to the Law of the Iterated Logarithm*, Ann. Math. Stat. 41, 1970; Ville's
inequality makes it hold at every look together). It reads counts alone, so that the order of the turns is nothing to
it. Turns of one call are not independent, so calls are counted and not turns.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

Counts = NDArray[np.int64]
_BISECTIONS: Final = 60
# As many turns with an event that all the turns of their call share are assumed beside those that were seen.
_ASSUMED_EVENTS: Final = 2.0


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Of candidate and control: clusters (calls, or users) with an event, clusters, and turns. `design_effect` is by
    how much clusters multiply the variance of the candidate's share of turns."""

    with_event: tuple[int, int]
    clusters: tuple[int, int]
    turns: tuple[int, int]
    design_effect: float = 1.0

    @property
    def candidate_part(self) -> float:
        """The candidate's part of all clusters or of all turns, whichever is larger: a longer call has more occasions
        for an event, but never more than in proportion to its turns."""
        return max(each[0] / (each[0] + each[1]) for each in (self.clusters, self.turns))


def log_evidence(successes: int, failures: int, probability: float) -> float:
    """The logarithm of the likelihood ratio of `successes` and `failures`: a uniform mixture of probabilities above
    `probability`, against it. Ever exceeds log(1 / level) with probability `level` at most where the true one is
    `probability` or less.

    Raises ValueError unless the probability lies between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability between 0 and 1 is needed, not {probability}")
    beyond = float(scipy.special.betaincc(successes + 1, failures + 1, probability))
    if beyond <= 0:
        return -math.inf
    mixture = float(scipy.special.betaln(successes + 1, failures + 1)) + math.log(beyond) - math.log1p(-probability)
    return mixture - successes * math.log(probability) - failures * math.log1p(-probability)


def probability_lower_bound(successes: int, failures: int, level: float) -> float:
    """A lower bound of a probability that exceeds the true one at any look with probability `level` at most."""
    if not successes:
        return 0.0
    low, high = 0.0, successes / (successes + failures)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_refuted = log_evidence(successes, failures, middle) >= -math.log(level)
        low, high = (middle, high) if is_refuted else (low, middle)
    return low


def difference_p_value(events: EventCounts) -> float:
    """The smallest level at which the candidate has more of the events than its part; may be looked at all the time."""
    return min(1.0, math.exp(-log_evidence(*events.with_event, events.candidate_part)))


def difference_lower_bound(events: EventCounts, level: float) -> float | None:
    """A lower bound of the candidate's share of bad turns minus the control's, above zero or None.

    Half of `level` bounds the ratio of both shares, which alone decides whether there is a bound; the other half the
    candidate's share. With a ratio of at least r the difference is at least share x (1 - 1 / r).
    """
    part = events.candidate_part
    of_events = probability_lower_bound(*events.with_event, level / 2)
    if of_events <= part:
        return None
    ratio = of_events / (1 - of_events) * (1 - part) / part
    bad, clusters = events.with_event[0], events.clusters[0]
    of_clusters = probability_lower_bound(bad, clusters - bad, level / 2)
    # A call with a bad turn has at least one.
    share = of_clusters * clusters / events.turns[0]
    return share * (1 - 1 / ratio)


def design_effect(events: Counts, sizes: Counts) -> float:
    """By how much clusters multiply the variance of a share of turns: squared deviations of the events of each cluster,
    over what independent turns would have. `events` and `sizes` are turns by cluster. Where few events were seen it is
    close to that of clusters which have an event in every turn or in none."""
    turns = float(sizes.sum())
    share = float(events.sum()) / turns
    together = float(((events - share * sizes) ** 2).sum())
    largest = float((sizes**2).sum()) / turns
    return max(1.0, (together + _ASSUMED_EVENTS * largest) / (turns * share * (1 - share) + _ASSUMED_EVENTS))


def variance_at_margin(events: EventCounts, share: float) -> float:
    """The variance of the candidate's share of bad turns where the true one is `share`: what a candidate at its margin
    has, of which too few bad turns were seen by chance (Farrington & Manning, Stat. Med. 9, 1990)."""
    share = min(share, 0.5)
    return events.design_effect * share * (1 - share) / events.turns[0]
