"""The token with which a room is joined, read without LiveKit's packages: RFC 7519 and RFC 7515 by hand."""

import base64
import hashlib
import hmac
import json
from typing import Any

from loadtest.engine.livekit_room.call import token_of
from loadtest.protocols.room_items import JoinRoom

SECRET = "a secret of thirty-two characters"


def join(**changed: Any) -> JoinRoom:
    fields: dict[str, Any] = {
        "url": "ws://127.0.0.1:1",
        "secret": SECRET,
        "api_key": "key",
        "room": "room-1",
        "identity": "caller-1",
        "attributes": {"traceparent": "00-a-b-01"},
        "metadata": '{"tier":"gold"}',
        "agent_name": "helper",
        "agent_metadata": '{"traceparent":"00-a-b-01"}',
    }
    return JoinRoom(**{**fields, **changed})


def decoded(token: str) -> dict[str, Any]:
    """The claims of a token whose signature is right."""
    head, body, signature = token.split(".")

    def part(text: str) -> bytes:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    assert json.loads(part(head))["alg"] == "HS256"
    assert part(signature) == hmac.new(SECRET.encode(), f"{head}.{body}".encode(), hashlib.sha256).digest()
    return json.loads(part(body))


def test_room_token_names_caller_room_trace_and_agent() -> None:
    claims = decoded(token_of(join()))
    assert (claims["iss"], claims["sub"]) == ("key", "caller-1")
    assert (claims["video"]["roomJoin"], claims["video"]["room"]) == (True, "room-1")
    assert claims["attributes"] == {"traceparent": "00-a-b-01"}
    assert claims["metadata"] == '{"tier":"gold"}'
    assert claims["roomConfig"]["agents"] == [{"agentName": "helper", "metadata": '{"traceparent":"00-a-b-01"}'}]
    assert claims["exp"] - claims["nbf"] == 6 * 3600


def test_no_agent_is_requested_where_none_is_named() -> None:
    assert "roomConfig" not in decoded(token_of(join(agent_name=None)))


def test_a_voice_call_is_no_simulation() -> None:
    """An agent ignores audio if the attribute lk.simulator is set."""
    assert "lk.simulator" not in json.dumps(decoded(token_of(join())))


def test_a_token_that_was_given_is_used_as_it_is() -> None:
    assert token_of(join(api_key=None, secret="given")) == "given"


def test_no_secret_is_shown() -> None:
    assert SECRET not in repr(join())
