"""The token with which a caller joins a room: who it is, what it may do, its trace, and the agent that is to come."""

import datetime as dt
from typing import Final

from livekit import api

from loadtest.protocols.room_items import JoinRoom

VALID: Final = dt.timedelta(hours=6)


def token_of(join: JoinRoom) -> str:
    """Return a signed token; the one that was given where no key signs one."""
    if join.api_key is None:
        return join.secret
    token = (
        api.AccessToken(join.api_key, join.secret)
        .with_identity(join.identity)
        .with_grants(api.VideoGrants(room_join=True, room=join.room))
        .with_attributes(join.attributes)
        .with_metadata(join.metadata)
        .with_ttl(VALID)
    )
    if join.agent_name is not None:
        dispatch = api.RoomAgentDispatch(agent_name=join.agent_name, metadata=join.agent_metadata)
        token = token.with_room_config(api.RoomConfiguration(agents=[dispatch]))
    return token.to_jwt()
