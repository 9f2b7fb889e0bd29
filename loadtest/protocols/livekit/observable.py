"""Metrics that the console link and a room of LiveKit cannot show, each with the reason."""

from collections.abc import Mapping
from typing import Final

from loadtest.protocols.stage_metrics import OF_TEXT

_TEXT_COMES_LATE: Final = (
    "the agent sends the words of its answer after it has spoken them; its own llm_node_ttft is kept as reported"
)
_AGENT_CONNECTS: Final = "the agent connects to the caller, when it is started"

_SILENCE: Final = "RTP carries silence all the time, so the silence of a reply looks like that of the line"

NOT_IN_A_ROOM: Final[Mapping[str, str]] = {**dict.fromkeys(OF_TEXT, _TEXT_COMES_LATE), "leading_silence": _SILENCE}
NOT_ON_THE_CONSOLE_LINK: Final[Mapping[str, str]] = {
    **dict.fromkeys(OF_TEXT, _TEXT_COMES_LATE),
    "connect": _AGENT_CONNECTS,
}
