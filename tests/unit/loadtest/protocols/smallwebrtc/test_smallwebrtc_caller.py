"""The caller of SmallWebRTC: how it negotiates, what it says over the data channel, and when a reply is over."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, Outgoing, SpokenText, VoiceEvent
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpRequest
from loadtest.protocols.smallwebrtc.caller import PING, SmallWebRtcCaller
from loadtest.protocols.webrtc_items import (
    ChannelOpen,
    IceServer,
    LocalOffer,
    MakeOffer,
    PeerAudio,
    PeerQuiet,
    PeerReport,
    RemoteAnswer,
)

URL = "http://127.0.0.1:7860/api/offer"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECOND_NS = 1_000_000_000
LOUD = PeerAudio(b"\x00\x20" * 960, 48_000)
SILENT = PeerAudio(b"\x01\x00" * 960, 48_000)


def rtvi(kind: str, data: object = None) -> str:
    return json.dumps({"label": "rtvi-ai", "type": kind, "data": data})


class Call:
    """A caller, what it sends and what it makes of what it gets."""

    def __init__(self, url: str = URL, trace: str | None = TRACE, **options: Any) -> None:
        self.caller = SmallWebRtcCaller(CallerOptions(**options))
        self.request = self.caller.upgrade(url, trace)
        self.sent: list[Outgoing] = [*self.caller.opened()]

    def get(self, *messages: Any) -> list[VoiceEvent]:
        events: list[VoiceEvent] = []
        for message in messages:
            events += self.caller.receive(message)
            self.sent += self.caller.pending()
        return [event for event in events if event.kind is not EventKind.OTHER]

    def respond(self, body: object, status: int = 200, *headers: tuple[str, str]) -> list[VoiceEvent]:
        """Answer the request that was sent last."""
        (*_, request) = [message for message in self.sent if isinstance(message, HttpRequest)]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        name = request.request_id
        return self.get(
            HttpHead(name, status, headers), HttpData(name, data[:7]), HttpData(name, data[7:]), HttpEnd(name)
        )

    def connect(self) -> "Call":
        """Negotiate, up to the bot that is ready."""
        self.get(LocalOffer("v=0 offer"))
        self.respond({"sdp": "v=0 answer", "type": "answer", "pc_id": "1"})
        self.get(ChannelOpen())
        assert [event.kind for event in self.get(rtvi("bot-ready", {"version": "2.2.0"}))] == [EventKind.READY]
        return self

    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        return [(message.url, json.loads(message.body)) for message in self.sent if isinstance(message, HttpRequest)]


def kinds(events: list[VoiceEvent]) -> list[EventKind]:
    return [event.kind for event in events]


def test_an_offer_is_posted_and_its_answer_taken() -> None:
    call = Call(token="secret", settings={"request_data": {"who": "me"}})
    assert call.sent == [MakeOffer()]
    call.connect()
    ((url, body),) = call.requests()
    assert url == URL
    data = {"who": "me", "traceparent": TRACE}
    assert body == {"sdp": "v=0 offer", "type": "offer", "request_data": data}
    request = call.sent[1]
    assert isinstance(request, HttpRequest)
    assert request.method == "POST"
    assert dict(request.headers) == {
        "Content-Type": "application/json",
        "Authorization": "Bearer secret",
        "traceparent": TRACE,
    }
    assert call.sent[2:4] == [RemoteAnswer("v=0 answer"), PING]
    message_sent = json.loads(str(call.sent[4]))
    assert (message_sent["type"], message_sent["data"]["version"]) == ("client-ready", "2.2.0")


@pytest.mark.parametrize(
    ("url", "offered"),
    [
        ("http://127.0.0.1:7860/start", "http://127.0.0.1:7860/sessions/a%2Fb/api/offer"),
        ("https://h/v1/public/agent/start?k=1", "https://h/v1/public/agent/sessions/a%2Fb/api/offer?k=1"),
    ],
)
def test_a_session_is_started_first_where_the_address_says_so(url: str, offered: str) -> None:
    call = Call(url, settings={"ice_servers": ["stun:one:3478"]})
    assert call.requests() == [(url, {"transport": "webrtc", "body": {"traceparent": TRACE}})]
    servers = [{"urls": "stun:two:3478"}, {"urls": ["turn:three", 4], "username": "u", "credential": "c"}, {}, 5]
    assert not call.respond({"sessionId": "a/b", "iceConfig": {"iceServers": servers}})
    wanted = (IceServer(("stun:one:3478",)), IceServer(("stun:two:3478",)), IceServer(("turn:three",), "u", "c"))
    assert call.sent[-1] == MakeOffer(wanted)
    call.connect()
    assert call.requests()[1] == (offered, {"sdp": "v=0 offer", "type": "offer"})


def test_request_without_trace_has_no_trace() -> None:
    call = Call(trace=None)
    call.get(LocalOffer("v=0"))
    assert call.requests() == [(URL, {"sdp": "v=0", "type": "offer", "request_data": {}})]
    assert call.caller.begin_turn(SpokenText("")) == ()


def test_the_trace_is_repeated_before_each_turn() -> None:
    call = Call().connect()
    call.caller.begin_turn(SpokenText(""))
    (message,) = call.caller.begin_turn(SpokenText(""))
    message_sent = json.loads(str(message))
    assert (message_sent["type"], message_sent["data"]) == (
        "client-message",
        {"t": "trace", "d": {"turn": 2, "traceparent": TRACE}},
    )


def failure(events: list[VoiceEvent]) -> Failure | None:
    (event,) = events
    assert event.kind is EventKind.ERROR
    assert event.fatal
    assert event.message
    return event.failure


def test_a_refused_offer_is_fatal_with_its_status_and_wait() -> None:
    def refused(status: int, *headers: tuple[str, str]) -> Failure | None:
        call = Call()
        call.get(LocalOffer("v=0"))
        return failure(call.respond({"detail": "no"}, status, *headers))

    assert refused(500) == Failure("http_status", "500")
    assert refused(429, ("retry-after", "3")) == Failure("http_status", "429", 3 * SECOND_NS)
    dated = (("retry-after", "Sun, 22 Nov 2026 10:00:05 GMT"), ("date", "Sun, 22 Nov 2026 10:00:00 GMT"))
    assert refused(503, *dated) == Failure("http_status", "503", 5 * SECOND_NS)
    assert refused(503, dated[0]) == Failure("http_status", "503"), "a date says nothing without the endpoint's clock"
    assert refused(307) == Failure("http_status", "307")


def test_a_request_that_fails_is_fatal_with_its_cause() -> None:
    call = Call()
    call.get(LocalOffer("v=0"))
    cause = Failure("tcp", "ECONNREFUSED")
    assert failure(call.get(HttpFailed("offer", "cannot connect", cause))) == cause


@pytest.mark.parametrize(
    "body", [b"", b"no JSON", [], {}, {"sdp": 1, "type": "answer"}, {"sdp": "v=0", "type": "offer"}, {"sdp": "v=0"}]
)
def test_invalid_answer_is_fatal(body: object) -> None:
    call = Call()
    call.get(LocalOffer("v=0"))
    assert failure(call.respond(body)) == Failure("protocol_violation", "malformed_message")
    assert not any(isinstance(message, RemoteAnswer) for message in call.sent)


def test_a_session_without_a_name_is_fatal() -> None:
    assert failure(Call("http://h/start").respond({})) == Failure("protocol_violation", "malformed_message")


def test_unrequested_response_is_ignored() -> None:
    call = Call().connect()
    assert not call.get(HttpHead("offer", 500), HttpEnd("offer"), HttpHead("other", 500), HttpEnd("other"))


def test_the_channel_opens_once() -> None:
    call = Call().connect()
    before = len(call.sent)
    call.get(ChannelOpen())
    assert len(call.sent) == before


def signal(message: object) -> str:
    return json.dumps({"type": "signalling", "message": message})


def test_messages_about_the_connection() -> None:
    call = Call().connect()
    (asked,) = call.get(signal({"type": "renegotiate"}))
    assert (asked.kind, asked.fatal, asked.failure) == (EventKind.ERROR, False, Failure("other", "renegotiation"))
    assert kinds(call.get(signal({"type": "somethingNew"}))) == [EventKind.UNKNOWN]
    assert kinds(call.get(signal(None))) == [EventKind.UNKNOWN]
    assert failure(call.get(signal({"type": "peerLeft"}))) == Failure("close_code", "peerLeft")


def test_bot_text_about_signalling_is_no_signal() -> None:
    call = Call().connect()
    message_sent = rtvi("user-input", {"text": '"signalling"', "input_type": "transcription", "final": True})
    assert kinds(call.get(message_sent)) == [EventKind.ASR_FINAL]


@given(message=st.text() | st.binary())
def test_nothing_on_the_data_channel_makes_it_raise(message: str | bytes) -> None:
    call = Call().connect()
    for text in (message, signal(message) if isinstance(message, str) else message):
        for event in call.caller.receive(text):
            assert event.kind in (EventKind.ERROR, EventKind.UNKNOWN)


# Replies.


def speaking() -> Call:
    """A call in which the bot has begun to speak, and its first audible packet has come."""
    call = Call().connect()
    assert kinds(call.get(SILENT, rtvi("bot-llm-started"))) == [EventKind.RESPONSE_STARTED]
    assert kinds(call.get(rtvi("bot-llm-stopped"), rtvi("bot-tts-started"), rtvi("bot-tts-stopped"))) == []
    assert kinds(call.get(rtvi("bot-started-speaking"))) == [EventKind.SPEECH_SYNTHESIS_STARTED]
    assert kinds(call.get(SILENT, SILENT, LOUD)) == [EventKind.AUDIO], "silence is the line's"
    return call


def test_silence_within_a_reply_is_part_of_it() -> None:
    assert kinds(speaking().get(SILENT, LOUD)) == [EventKind.AUDIO, EventKind.AUDIO]


def test_reply_ends_when_bot_stopped_and_line_is_silent() -> None:
    call = speaking()
    assert kinds(call.get(rtvi("bot-stopped-speaking"))) == []
    assert kinds(call.get(LOUD, LOUD)) == [EventKind.AUDIO, EventKind.AUDIO], "what is still to be heard of it"
    (done,) = call.get(SILENT)
    assert (done.kind, done.status, done.carried) == (EventKind.RESPONSE_DONE, "completed", frozenset({"audio"}))
    assert kinds(call.get(SILENT, LOUD)) == [], "the bot has said nothing of another reply"


def test_reply_with_audio_already_ended_is_over_at_once() -> None:
    call = speaking()
    assert kinds(call.get(SILENT, rtvi("bot-stopped-speaking"))) == [EventKind.AUDIO, EventKind.RESPONSE_DONE]


@pytest.mark.parametrize("ends_with", [SILENT, PeerQuiet()])
def test_an_interrupted_reply_is_heard_until_the_line_is_silent(ends_with: object) -> None:
    call = speaking()
    assert kinds(call.get(rtvi("bot-interrupted"), rtvi("bot-stopped-speaking"), LOUD)) == [EventKind.AUDIO]
    assert kinds(call.get(rtvi("bot-llm-text", {"text": "late"}))) == []
    clear, done = call.get(ends_with)
    assert clear.kind is EventKind.CLEAR
    assert (done.kind, done.status) == (EventKind.RESPONSE_DONE, "cancelled")
    assert kinds(call.get(ends_with)) == []


def test_the_next_reply_ends_what_is_left_of_the_one_before() -> None:
    call = speaking()
    call.get(rtvi("bot-stopped-speaking"))
    assert kinds(call.get(rtvi("bot-llm-started"))) == [EventKind.RESPONSE_DONE, EventKind.RESPONSE_STARTED]


def test_background_sound_does_not_keep_a_reply_open() -> None:
    call = speaking()
    call.get(rtvi("bot-stopped-speaking"))
    heard = kinds(call.get(*[LOUD] * 40))
    assert heard == [EventKind.AUDIO] * 25 + [EventKind.RESPONSE_DONE], "half a second of packets of 20 ms"


def test_reports_and_an_idle_line_are_no_events() -> None:
    assert Call().connect().get(PeerReport(1, 2), PeerQuiet(), SILENT, LOUD) == []


def test_goodbye_is_sent_where_it_can_be() -> None:
    call = Call()
    assert call.caller.goodbye() == ()
    (message,) = call.connect().caller.goodbye()
    assert json.loads(str(message))["type"] == "disconnect-bot"


def test_a_frame_is_its_samples() -> None:
    assert Call().caller.audio_message(np.array([1, -2], np.int16)) == b"\x01\x00\xfe\xff"


def test_faults_of_settings_are_listed_all_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        SmallWebRtcCaller(
            CallerOptions("manual", model="m", settings={"ice_servers": ["http://h"], "flavor": 1, "rtvi_version": "2"})
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    for word in ("'model'", "'manual'", "ice_servers", "flavor", "rtvi_version"):
        assert any(word in line for line in lines), word
