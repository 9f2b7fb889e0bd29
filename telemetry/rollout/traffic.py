"""How fast a rollout's turns arrive, and when those that its verdict waits for will be there. Pure."""

from dataclasses import dataclass
from typing import Final

from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.history import RolloutHistory

# Traffic of the present: what arrived since the oldest look that is at most this old.
WINDOW_NS: Final = 3600 * NS_PER_S
# A rate of fewer turns than this is chance.
FEWEST_TURNS: Final = 5


@dataclass(frozen=True, slots=True)
class TrafficForecast:
    """Turns of the candidate a second at present, and when the needed ones will have arrived at this rate."""

    turns_per_s: float
    due_unix_ns: int


def forecast(history: RolloutHistory, turns_needed: int | None) -> TrafficForecast | None:
    """From the looks at the present stage; None without a rate, and where it is not known how many are needed."""
    last = history.last_look
    if last is None or turns_needed is None:
        return None
    looks = [
        look
        for look in history.looks
        if look.stage == last.stage and 0 <= last.at_unix_ns - look.at_unix_ns <= WINDOW_NS
    ]
    lasted_ns = last.at_unix_ns - looks[0].at_unix_ns
    arrived = last.candidate_turns - looks[0].candidate_turns
    if lasted_ns <= 0 or arrived < FEWEST_TURNS:
        return None
    turns_per_s = arrived * NS_PER_S / lasted_ns
    return TrafficForecast(turns_per_s, last.at_unix_ns + round(turns_needed / turns_per_s * NS_PER_S))
