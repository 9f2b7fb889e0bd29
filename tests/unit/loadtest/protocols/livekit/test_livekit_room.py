"""A caller in a room: what joins it, and what the room's items mean. No server was there to record a session."""

import json
from typing import Any

import pytest
from livekit.protocol.agent_pb import agent_session as official

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.livekit.room import RoomCaller
from loadtest.protocols.room_items import AgentLeft, AgentState, JoinRoom, RoomJoined, RoomTranscript
from loadtest.protocols.webrtc_items import PeerAudio

TRACE = f"00-{7:032x}-{9:016x}-01"
LOUD, SILENT = PeerAudio(b"\0\x40" * 480, 48_000), PeerAudio(b"\1\0" * 480, 48_000)
Event: Any = official.AgentSessionEvent


def joined(traceparent: str | None = TRACE, **settings: Any) -> JoinRoom:
    """What a caller asks for."""
    options = CallerOptions(token="secret", metadata=(("tier", "gold"),), settings=settings)
    caller = RoomCaller(options)
    assert caller.upgrade("wss://project.livekit.cloud", traceparent).url == "wss://project.livekit.cloud"
    (join,) = caller.opened()
    assert isinstance(join, JoinRoom)
    return join


class Room:
    """A caller in a room whose agent listens."""

    def __init__(self) -> None:
        self.caller = RoomCaller(CallerOptions(token="secret"))
        self.caller.receive(RoomJoined())
        self.caller.receive(AgentState("listening"))

    def gets(self, *messages: Any) -> list[VoiceEvent]:
        found = [event for message in messages for event in self.caller.receive(message)]
        return [event for event in found if event.kind is not EventKind.OTHER]

    def kinds(self, *messages: Any) -> list[str]:
        return [event.kind.value for event in self.gets(*messages)]


def session(**event: Any) -> bytes:
    return official.AgentSessionMessage(event=Event(**event)).SerializeToString()


def added(role: str, *, interrupted: bool = False) -> bytes:
    message = official.ChatMessage(role=role, interrupted=interrupted)
    item = official.ChatContext.ChatItem(message=message)
    return session(conversation_item_added=Event.ConversationItemAdded(item=item))


def test_each_call_has_a_room_and_an_identity_of_its_own_and_its_trace() -> None:
    join = joined(api_key="key", agent_name="helper")
    assert (join.secret, join.api_key, join.agent_name) == ("secret", "key", "helper")
    assert (join.room, join.identity) == (f"voiceprobe-{7:032x}", f"caller-{7:032x}")
    assert join.attributes == {"traceparent": TRACE}
    assert json.loads(join.metadata) == json.loads(join.agent_metadata) == {"tier": "gold", "traceparent": TRACE}


def test_a_call_without_a_trace_has_a_room_of_its_own_too() -> None:
    assert joined(None).room != joined(None).room
    assert joined(None).attributes == {}


def test_the_room_and_the_identity_can_be_given() -> None:
    join = joined(room="lobby", identity="me")
    assert (join.room, join.identity, join.api_key) == ("lobby", "me", None)


def test_without_a_secret_nothing_is_joined() -> None:
    with pytest.raises(UsageError, match="set VOICEPROBE_TOKEN to the secret of the API key"):
        RoomCaller(CallerOptions()).upgrade("ws://h", None)


def test_the_session_is_ready_when_an_agent_is() -> None:
    caller = RoomCaller(CallerOptions(token="secret"))
    found = [event.kind for item in (RoomJoined(), AgentState("initializing")) for event in caller.receive(item)]
    assert EventKind.READY not in found
    assert [event.kind for event in caller.receive(AgentState("listening"))] == [EventKind.READY]


def test_a_turn_by_the_attributes_and_text_streams_of_a_room_alone() -> None:
    room = Room()
    assert room.kinds(RoomTranscript("1", "turn", False), RoomTranscript("1", "turn it on", True)) == [
        "asr_partial",
        "asr_final",
    ]
    assert room.kinds(AgentState("thinking"), SILENT, AgentState("speaking")) == [
        "response_started",
        "speech_synthesis_started",
    ]
    assert room.kinds(SILENT, LOUD, SILENT) == ["audio", "audio"]
    (done,) = room.gets(AgentState("listening"))
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "completed")
    assert room.kinds(SILENT, LOUD) == []


def test_audio_that_overtakes_the_agents_state_begins_the_reply() -> None:
    room = Room()
    assert room.kinds(AgentState("thinking"), SILENT, LOUD, AgentState("speaking")) == [
        "response_started",
        "audio",
        "speech_synthesis_started",
    ]


def test_states_that_both_the_room_and_the_session_tell_count_once() -> None:
    room = Room()
    changed = session(agent_state_changed=Event.AgentStateChanged(old_state="AS_LISTENING", new_state="AS_SPEAKING"))
    assert room.kinds(changed, AgentState("speaking"), LOUD) == [
        "response_started",
        "speech_synthesis_started",
        "audio",
    ]


def test_transcripts_that_come_under_two_names_count_once() -> None:
    room = Room()
    heard = session(user_input_transcribed=Event.UserInputTranscribed(transcript="turn it on", is_final=True))
    assert room.kinds(heard, RoomTranscript("1", "turn it on", True)) == ["asr_final"]
    assert Room().kinds(RoomTranscript("1", "turn it on", True), heard) == ["asr_final"]


def test_an_interruption_that_the_session_tells() -> None:
    room = Room()
    room.gets(added("USER"), AgentState("speaking"), LOUD)
    assert room.kinds(AgentState("listening")) == [], "it may only pause"
    (done,) = room.gets(added("ASSISTANT", interrupted=True))
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "cancelled")


def test_an_agent_that_leaves_ends_the_call() -> None:
    (error,) = Room().gets(AgentLeft())
    assert (error.kind, error.fatal, error.message) == (EventKind.ERROR, True, "the agent has left the room")
