"""The parts that all sessions of one assistant share."""

from dataclasses import dataclass

from loadtest.distributions import Delay
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.asr.recognition import PartialTiming
from loadtest.targets.assistant.cohorts import CohortSplit
from loadtest.targets.assistant.turn import TurnParts


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The engines and settings that all sessions share."""

    turn: TurnParts
    asr: AsrEngine
    partials: PartialTiming
    endpoint_delay: Delay
    split: CohortSplit | None
    llm_stream: bool
