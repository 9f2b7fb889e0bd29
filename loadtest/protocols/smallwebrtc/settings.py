"""What a scenario can set for Pipecat's SmallWebRTC."""

from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.pipecat.client_messages import VERSION
from loadtest.protocols.pipecat.settings import faults_of_the_bot
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

_SERVER: str = r"^(stun|stuns|turn|turns):[^\s]+$"


class SmallWebRtcSettings(WireSettings):
    """The `[protocol]` table of a scenario.

    `request_data` is what the bot's code gets as `runner_args.body`; `ice_servers` are STUN and TURN servers without
    credentials, none by default.
    """

    request_data: Mapping[str, Any] = pydantic.Field(default_factory=dict[str, Any])
    ice_servers: tuple[Annotated[str, pydantic.Field(pattern=_SERVER)], ...] = ()
    rtvi_version: Annotated[str, pydantic.Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$")] = VERSION


def checked_settings(options: CallerOptions, wire: str) -> SmallWebRtcSettings:
    """Return the validated settings. Raises UsageError, one line for each fault, also for options without effect."""
    faults = faults_of_the_bot(options, wire)
    settings = read_settings(SmallWebRtcSettings, options.settings, wire, known_faults=faults)
    refuse(faults)
    return settings
