"""The console link and the room beyond the recorded sessions: settings, pauses, tools, joins, skipped messages."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from livekit.protocol.agent_pb import agent_session as official

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.livekit import messages
from loadtest.protocols.livekit.console import ConsoleCaller
from loadtest.protocols.livekit.room import RoomCaller
from loadtest.protocols.room_items import AgentLeft, AgentState, JoinRoom, RoomJoined, RoomTranscript
from loadtest.protocols.webrtc_items import PeerAudio

Official: Any = official.AgentSessionMessage
Event: Any = official.AgentSessionEvent
FINISHED = [messages.playback_finished()]
STATES = {"initializing": 0, "idle": 1, "listening": 2, "thinking": 3, "speaking": 4}
USERS = {"speaking": 0, "listening": 1, "away": 2}
TONE = b"\1\2" * 480


class Agent:
    """The other end of the link, by LiveKit's own classes."""

    def __init__(self, *, ready: bool = True) -> None:
        self.caller = ConsoleCaller(CallerOptions())
        if ready:
            self.state_is(STATES["listening"])

    def sends(self, **fields: Any) -> list[VoiceEvent]:
        events = self.caller.receive(Official(**fields).SerializeToString())
        return [event for event in events if event.kind is not EventKind.OTHER]

    def event(self, **fields: Any) -> list[VoiceEvent]:
        return self.sends(event=Event(**fields))

    def state_is(self, state: int) -> list[VoiceEvent]:
        answer = official.SessionResponse.GetSessionStateResponse(agent_state=state)
        return self.sends(response=official.SessionResponse(request_id="1", get_session_state=answer))

    def becomes(self, state: str) -> list[VoiceEvent]:
        return self.event(agent_state_changed=Event.AgentStateChanged(new_state=STATES[state]))

    def hears(self, state: str) -> list[VoiceEvent]:
        return self.event(user_state_changed=Event.UserStateChanged(new_state=USERS[state]))

    def recognizes(self, text: str, *, final: bool) -> list[VoiceEvent]:
        return self.event(user_input_transcribed=Event.UserInputTranscribed(transcript=text, is_final=final))

    def adds(self, role: str, *, interrupted: bool = False, **metrics: float) -> list[VoiceEvent]:
        report = official.MetricsReport(**metrics)
        message = official.ChatMessage(role=role.upper(), interrupted=interrupted, metrics=report)
        item = official.ChatContext.ChatItem(message=message)
        return self.event(conversation_item_added=Event.ConversationItemAdded(item=item))

    def says(self, pcm: bytes = TONE, rate_hz: int = 48_000) -> list[VoiceEvent]:
        count = len(pcm) // 2
        return self.sends(
            audio_output=Official.ConsoleIO.AudioFrame(
                data=pcm, sample_rate=rate_hz, num_channels=1, samples_per_channel=count
            )
        )

    def flushes(self) -> list[VoiceEvent]:
        return self.sends(audio_playback_flush={})

    def clears(self) -> list[VoiceEvent]:
        return self.sends(audio_playback_clear={})


def kinds(events: Sequence[VoiceEvent]) -> list[str]:
    return [event.kind.value for event in events]


def speaking() -> Agent:
    """An agent that speaks, and has flushed."""
    agent = Agent()
    agent.says()
    agent.becomes("speaking")
    assert kinds(agent.flushes()) == ["mark"]
    return agent


def test_listening_address_and_wait_follow_options() -> None:
    request = ConsoleCaller(CallerOptions()).upgrade("tcp-listen://127.0.0.1:7777", f"00-{1:032x}-{1:016x}-01")
    assert (request.url, request.wait_s, request.headers) == ("tcp-listen://127.0.0.1:7777", 60.0, ())
    patient = ConsoleCaller(CallerOptions(settings={"wait_s": 5}))
    assert patient.upgrade("tcp-listen://127.0.0.1:7777", None).wait_s == 5.0


def test_all_that_cannot_be_set_is_refused_at_once() -> None:
    options = CallerOptions(
        "manual",
        model="m",
        token="secret",
        headers=(("a", "b"),),
        settings={"wait_s": 0, "room": "r"},
    )
    with pytest.raises(UsageError) as refused:
        ConsoleCaller(options)
    lines = str(refused.value).splitlines()
    for named in ("'model'", "'token'", "'headers'", "manual", "'wait_s'", "'room'"):
        assert sum(named in line for line in lines) == 1, named
    assert "secret" not in str(refused.value)


def test_an_agent_that_is_not_initialized_is_ready_later() -> None:
    agent = Agent(ready=False)
    assert agent.becomes("listening") == [], "its state now may not be known"
    assert agent.state_is(STATES["initializing"]) == []
    assert kinds(agent.becomes("idle")) == ["ready"]
    assert agent.becomes("listening") == []
    assert agent.state_is(STATES["listening"]) == []


def test_flush_before_session_is_ready_is_answered_at_once() -> None:
    agent = Agent(ready=False)
    agent.says()
    assert agent.flushes() == []
    assert list(agent.caller.pending()) == FINISHED
    assert list(agent.caller.pending()) == []


def test_a_request_that_the_agent_refuses() -> None:
    for agent, fatal in ((Agent(ready=False), True), (Agent(), False)):
        (refused,) = agent.sends(response=official.SessionResponse(request_id="x", error="internal error"))
        assert (refused.kind, refused.fatal) == (EventKind.ERROR, fatal)
        assert refused.message == "the agent refused the request 'x': internal error"


def test_flush_with_audio_is_answered_once_and_empty_one_never() -> None:
    agent = Agent()
    assert agent.flushes() == []
    agent.says()
    (first,) = agent.flushes()
    assert agent.flushes() == []
    agent.says()
    (second,) = agent.flushes()
    assert first.text != second.text
    assert list(agent.caller.played(first.text or "")) == FINISHED
    assert list(agent.caller.played(first.text or "")) == []
    assert list(agent.caller.played(second.text or "")) == FINISHED
    assert list(agent.caller.played("of another wire")) == []


def test_audio_cleared_before_its_flush_is_still_answered() -> None:
    """The agent waits for an answer to its flush also where it cleared before it."""
    agent = Agent()
    agent.says()
    assert kinds(agent.clears()) == ["clear"]
    assert agent.clears() == []
    assert kinds(agent.flushes()) == ["mark"]


def test_an_agent_that_pauses_goes_on() -> None:
    """Speech that it hears makes it listen at once; without words it speaks on, and nothing of that is on the link."""
    agent = speaking()
    assert agent.hears("speaking") == []
    assert agent.becomes("listening") == []
    assert agent.hears("listening") == []
    assert agent.event(agent_false_interruption=Event.AgentFalseInterruption(resumed=True)) == []
    assert agent.becomes("speaking") == []
    agent.caller.played("flush-1")
    assert agent.adds("assistant") == []
    (done,) = agent.becomes("listening")
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "completed")


def test_a_reply_that_ends_while_the_agent_has_paused() -> None:
    agent = speaking()
    agent.becomes("listening")
    agent.caller.played("flush-1")
    (done,) = agent.adds("assistant")
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "completed")


def test_a_backchannel_that_the_agent_answers_closes_a_turn() -> None:
    agent = speaking()
    agent.hears("speaking")
    agent.hears("listening")
    assert kinds(agent.adds("user", transcription_delay=0.1)) == ["speech_stopped", "service_report"]


def test_reply_without_conversation_item_ends_with_agent_state() -> None:
    agent = speaking()
    agent.caller.played("flush-1")
    (done,) = agent.becomes("listening")
    assert (done.kind, done.status, done.carried) == (EventKind.RESPONSE_DONE, "completed", frozenset({"audio"}))


def test_a_reply_that_is_cleared_and_not_added_was_cancelled() -> None:
    agent = speaking()
    assert kinds(agent.clears()) == ["clear"]
    (done,) = agent.becomes("listening")
    assert (done.kind, done.status, done.message) == (EventKind.RESPONSE_DONE, "cancelled", "interrupted")
    assert agent.clears() == []


def test_a_synthesizer_that_failed_leaves_the_reply_incomplete() -> None:
    agent = speaking()
    (done,) = agent.adds("assistant", interrupted=True)
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "incomplete")


def test_an_answer_in_text_alone() -> None:
    agent = Agent()
    assert kinds(agent.becomes("speaking")) == ["response_started", "speech_synthesis_started"]
    assert agent.adds("assistant") == []
    (done,) = agent.becomes("listening")
    assert done.carried == {"text"}


def test_a_reply_that_begins_before_the_one_before_has_ended() -> None:
    agent = speaking()
    assert agent.adds("assistant") == []
    assert kinds(agent.says()) == ["response_done", "response_started", "audio"]


def test_transcript_after_answer_of_realtime_model_is_kept() -> None:
    agent = Agent()
    assert kinds(agent.hears("speaking")) == ["speech_started"]
    assert kinds(agent.hears("listening")) == ["speech_stopped"]
    assert kinds(agent.says()) == ["response_started", "audio"]
    assert kinds(agent.recognizes("turn it on", final=True)) == ["asr_final"]
    assert agent.adds("user") == [], "the turn was closed before the reply began"


def test_noise_that_makes_no_turn_leaves_none_open() -> None:
    agent = Agent()
    assert kinds(agent.hears("speaking") + agent.hears("listening")) == ["speech_started", "speech_stopped"]
    assert agent.hears("away") == []


def test_partial_transcripts_are_what_each_adds() -> None:
    agent = Agent()
    events = agent.recognizes("turn", final=False) + agent.recognizes("turn it", final=False)
    events += agent.recognizes("turn it", final=False) + agent.recognizes("turn it on", final=True)
    events += agent.recognizes("please", final=False)
    assert [(event.kind.value, event.text, event.item_id) for event in events] == [
        ("asr_partial", "turn", "segment-1"),
        ("asr_partial", " it", "segment-1"),
        ("asr_final", "turn it on", "segment-1"),
        ("asr_partial", "please", "segment-2"),
    ]


def test_how_long_the_agent_took_to_see_an_interruption() -> None:
    agent = speaking()
    overlap = Event.OverlappingSpeech(is_interruption=True, detection_delay=0.25)
    (report,) = agent.event(overlapping_speech=overlap)
    assert report.service_ns == {"overlapping_speech_detection_delay": 250_000_000}
    assert agent.event(overlapping_speech=Event.OverlappingSpeech(detection_delay=0.25)) == []


def test_usage_counts_from_the_turns_beginning() -> None:
    agent = Agent()

    def updated(tokens: int) -> list[VoiceEvent]:
        llm = official.ModelUsage(llm=official.LLMModelUsage(output_tokens=tokens))
        usage = official.AgentSessionUsage(model_usage=[llm])
        return agent.event(session_usage_updated=Event.SessionUsageUpdated(usage=usage))

    assert [event.usage for event in updated(5)] == [{"output_tokens": 5}]
    assert updated(5) == []
    agent.caller.begin_turn(SpokenText("hello"))
    assert [event.usage for event in updated(12)] == [{"output_tokens": 7}]


def test_caller_messages_and_non_message_items_are_ignored() -> None:
    agent = Agent()
    assert agent.sends(audio_playback_finished={}) == []
    assert agent.sends(audio_input={}) == []
    call = official.ChatContext.ChatItem(function_call=official.FunctionCall(name="look_up"))
    assert agent.event(conversation_item_added=Event.ConversationItemAdded(item=call)) == []
    assert agent.adds("system") == []
    assert agent.says(b"") == []


TRACE = f"00-{7:032x}-{9:016x}-01"
LOUD, SILENT = PeerAudio(b"\0\x40" * 480, 48_000), PeerAudio(b"\1\0" * 480, 48_000)


def joined(traceparent: str | None = TRACE, **settings: Any) -> JoinRoom:
    """Return a caller's request to join."""
    options = CallerOptions(token="secret", settings=settings)
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
        events = [event for message in messages for event in self.caller.receive(message)]
        return [event for event in events if event.kind is not EventKind.OTHER]

    def kinds(self, *messages: Any) -> list[str]:
        return [event.kind.value for event in self.gets(*messages)]


def session(**event: Any) -> bytes:
    return official.AgentSessionMessage(event=Event(**event)).SerializeToString()


def added(role: str, *, interrupted: bool = False) -> bytes:
    message = official.ChatMessage(role=role, interrupted=interrupted)
    item = official.ChatContext.ChatItem(message=message)
    return session(conversation_item_added=Event.ConversationItemAdded(item=item))


def test_each_call_has_own_room_identity_and_trace() -> None:
    join = joined(api_key="key", agent_name="helper")
    assert (join.secret, join.api_key, join.agent_name) == ("secret", "key", "helper")
    assert (join.room, join.identity) == (f"voiceprobe-{7:032x}", f"caller-{7:032x}")
    assert join.attributes == {"traceparent": TRACE}
    assert json.loads(join.metadata) == json.loads(join.agent_metadata) == {"traceparent": TRACE}


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
    event_kinds = [event.kind for item in (RoomJoined(), AgentState("initializing")) for event in caller.receive(item)]
    assert EventKind.READY not in event_kinds
    assert [event.kind for event in caller.receive(AgentState("listening"))] == [EventKind.READY]


def test_room_attributes_and_text_streams_alone_give_a_turn() -> None:
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


def test_states_reported_by_room_and_session_count_once() -> None:
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
