"""What all sessions of one assistant have in common."""

from dataclasses import dataclass

from loadtest.distributions import Delay
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.asr.hearing import PartialTiming
from loadtest.targets.assistant.cohorts import CohortSplit
from loadtest.targets.assistant.turn import TurnParts


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What every session shares."""

    turn: TurnParts
    asr: AsrEngine
    partials: PartialTiming
    endpoint_delay: Delay
    split: CohortSplit | None
    llm_stream: bool
