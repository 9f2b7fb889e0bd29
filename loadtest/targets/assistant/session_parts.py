"""What a session is made of: the parts that the sessions of one variant share, and those of its call alone."""

from collections.abc import Callable
from dataclasses import dataclass

from loadtest.distributions import Delay
from loadtest.protocols.openai_realtime.service import ServiceSession
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.asr.recognition import PartialTiming
from loadtest.targets.assistant.faults import FaultySender
from loadtest.targets.assistant.spans import CallReport
from loadtest.targets.assistant.turn import TurnParts


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The engines and settings that all sessions of one variant share."""

    turn: TurnParts
    asr: AsrEngine
    partials: PartialTiming
    endpoint_delay: Delay
    llm_stream: bool


@dataclass(frozen=True, slots=True)
class CallParts:
    """The parts of one call. `on_fault` is called with an internal error of its session."""

    call_id: str
    service: ServiceSession
    sender: FaultySender
    report: CallReport
    on_fault: Callable[[BaseException], None]
    cohort: str | None = None
