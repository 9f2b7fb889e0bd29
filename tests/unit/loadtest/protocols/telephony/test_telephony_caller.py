"""Messages of a streamed telephone call, beyond what its peers can show."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText
from loadtest.protocols.telephony.caller import NOT_OBSERVABLE, TelephonyCaller
from loadtest.protocols.telephony.wires import PLIVO, TELNYX, TWILIO, VONAGE, WIRES
from telemetry.model.metrics import METRIC_NAMES
from tests.unit.loadtest.protocols.telephony.calls import TRACE_ID, TRACEPARENT, make

STREAM = {
    "twilio": ("streamSid", f"MZ{TRACE_ID}"),
    "telnyx": ("stream_id", "0af76519-16cd-43dd-8448-eb211c80319c"),
    "plivo": ("streamId", "0af76519-16cd-43dd-8448-eb211c80319c"),
    "exotel": ("stream_sid", TRACE_ID),
}
TWILIO_MEDIA = {"event": "media", "streamSid": f"MZ{TRACE_ID}", "media": {"payload": "/////w=="}}
TWILIO_CLEAR = {"event": "clear", "streamSid": f"MZ{TRACE_ID}"}


def mark(wire: str, name: str) -> str:
    """A provider's mark, as its reference has it."""
    if wire == "vonage":
        return json.dumps({"action": "notify", "payload": {"name": name}})
    if wire == "plivo":
        return json.dumps({"event": "checkpoint", "streamId": STREAM[wire][1], "name": name})
    return json.dumps({"event": "mark", "mark": {"name": name}})


def clear(wire: str) -> str:
    return {"plivo": '{"event":"clearAudio"}', "vonage": '{"action":"clear"}'}.get(wire, '{"event":"clear"}')


def pressed(caller: TelephonyCaller) -> list[dict[str, Any]]:
    return [json.loads(message) for message in caller.begin_turn(SpokenText("x"))]


def number(message: dict[str, Any]) -> object:
    return message.get("sequenceNumber", message.get("sequence_number"))


def head_and_rest(caller: TelephonyCaller) -> dict[str, Any]:
    capabilities = caller.capabilities
    frame = np.zeros(capabilities.input_rate_hz * capabilities.frame_ms // 1000, np.int16)
    head = caller.audio_head()
    assert head is not None
    return json.loads(head + caller.audio_message(frame))


@pytest.mark.parametrize("wire", [name for name in WIRES if name != "vonage"])
def test_messages_are_numbered_and_frames_have_their_place(wire: str) -> None:
    caller = make(wire, dtmf="12")
    sent = [json.loads(message) for message in caller.opened()][-1:]
    places: list[tuple[int, int]] = []
    for turn in range(1000):
        sent += pressed(caller)
        for _ in range(3):
            frame = head_and_rest(caller)
            places.append((int(frame["media"]["chunk"]), int(frame["media"]["timestamp"])))
            sent.append(frame)
        caller.receive(mark(wire, f"m{turn}"))
        sent += [json.loads(message) for message in caller.played(f"m{turn}")]
    sent += [json.loads(message) for message in caller.goodbye()]
    numbers = [number(message) for message in sent]
    kind = int if wire == "plivo" else str
    assert numbers == [kind(place) for place in range(1, len(sent) + 1)]
    step_ms = caller.capabilities.frame_ms
    assert places == [(place + 1, place * step_ms) for place in range(3000)]
    key, stream_id = STREAM[wire]
    assert all(message[key] == stream_id for message in sent[1:])


def test_chunks_and_times_are_text_except_at_plivo() -> None:
    twilio = head_and_rest(make("twilio"))
    assert (twilio["sequenceNumber"], twilio["media"]["chunk"], twilio["media"]["timestamp"]) == ("1", "1", "0")
    plivo = head_and_rest(make("plivo"))
    assert (plivo["sequenceNumber"], plivo["media"]["chunk"], plivo["media"]["timestamp"]) == (1, 1, "0")


def test_silence_is_the_laws_own() -> None:
    assert base64.b64decode(head_and_rest(make("twilio"))["media"]["payload"]) == b"\xff" * 160
    assert base64.b64decode(head_and_rest(make("telnyx-alaw"))["media"]["payload"]) == b"\xd5" * 160


@pytest.mark.parametrize("wire", WIRES)
def test_keys_are_pressed_once_before_the_first_turn(wire: str) -> None:
    caller = make(wire, dtmf="1#")
    first = pressed(caller)
    digits = [message.get("digit") or message["dtmf"]["digit"] for message in first]
    assert digits == ["1", "#"]
    assert pressed(caller) == []


@pytest.mark.parametrize("wire", WIRES)
def test_a_mark_is_answered_when_its_audio_has_been_played(wire: str) -> None:
    caller = make(wire)
    (event,) = caller.receive(mark(wire, "one"))
    assert event.kind is EventKind.MARK
    assert event.text is not None
    (answer,) = [json.loads(message) for message in caller.played(event.text)]
    if wire == "vonage":
        assert answer == {"event": "websocket:notify", "payload": {"name": "one"}}
    elif wire == "plivo":
        assert (answer["event"], answer["name"]) == ("playedStream", "one")
    else:
        assert (answer["event"], answer["mark"]) == ("mark", {"name": "one"})


@pytest.mark.parametrize("payload", [{"name": "one"}, {"name": "{"}, {"reply": 1, "name": "one"}, {}, {"name": None}])
def test_vonage_repeats_what_it_was_given_to_notify(payload: dict[str, Any]) -> None:
    caller = make("vonage")
    (event,) = caller.receive(json.dumps({"action": "notify", "payload": payload}))
    assert event.text is not None
    assert [json.loads(message)["payload"] for message in caller.played(event.text)] == [payload]


@pytest.mark.parametrize("wire", WIRES)
def test_a_cleared_mark_is_answered_only_where_the_provider_does(wire: str) -> None:
    caller = make(wire)
    names = [caller.receive(mark(wire, name))[0].text or "" for name in ("same", "same", "other")]
    assert [event.kind for event in caller.receive(clear(wire))] == [EventKind.CLEAR]
    answered = [message for name in names for message in caller.played(name)]
    assert len(answered) == (0 if wire in ("plivo", "vonage") else 3)
    later = caller.receive(mark(wire, "same"))[0].text or ""
    assert len(caller.played(later)) == 1, "a mark after the clear is a new one"


@pytest.mark.parametrize(
    ("wire", "expected"), [("plivo", {"event": "clearedAudio"}), ("vonage", {"event": "websocket:cleared"})]
)
def test_a_clear_is_confirmed_where_the_provider_does(wire: str, expected: dict[str, str]) -> None:
    caller = make(wire)
    caller.receive(clear(wire))
    (answer,) = [json.loads(message) for message in caller.pending()]
    assert expected.items() <= answer.items()
    assert caller.pending() == ()
    other = make("twilio")
    other.receive(clear("twilio"))
    assert other.pending() == ()


@pytest.mark.parametrize("wire", STREAM)
def test_message_for_another_stream_is_fault_and_is_not_played(wire: str) -> None:
    caller = make(wire)
    message = json.dumps({"event": "clearAudio" if wire == "plivo" else "clear", STREAM[wire][0]: "someone else's"})
    (event,) = caller.receive(message)
    assert (event.kind, event.failure and event.failure.code) == (EventKind.ERROR, "wrong_stream")
    assert not event.fatal


@pytest.mark.parametrize(
    "message",
    [
        '{"event":"media"}',
        '{"event":"media","media":{}}',
        '{"event":"media","media":{"payload":"not base64!"}}',
        '{"event":"media","media":[]}',
        '{"event":"mark"}',
        '{"event":"mark","mark":{"name":7}}',
        '{"event":"clear","streamSid":7}',
        '{"event":7}',
        "{}",
        "[]",
        "hello",
        b"{",
    ],
)
def test_a_malformed_message_is_an_error_that_ends_nothing(message: str | bytes) -> None:
    (event,) = make("twilio").receive(message)
    assert (event.kind, event.failure and event.failure.code) == (EventKind.ERROR, "malformed_message")
    assert not event.fatal


def test_binary_messages_are_audio_at_vonage_alone() -> None:
    (event,) = make("twilio").receive(b"\xff" * 160)
    assert (event.kind, event.failure and event.failure.code) == (EventKind.ERROR, "stray_binary")
    (event,) = make("vonage").receive(b"{ \x00\x01")
    assert (event.kind, event.audio, event.rate_hz) == (EventKind.AUDIO, b"{ \x00\x01", 16_000)


def test_a_sample_cut_in_two_is_joined() -> None:
    caller = make("vonage")
    events = [event for piece in (b"\x01", b"\x02\x03", b"\x04") for event in caller.receive(piece)]
    assert [event.audio for event in events] == [None, b"\x01\x02", b"\x03\x04"]
    caller.receive(b"\x05")
    caller.receive('{"action":"clear"}')
    (event,) = caller.receive(b"\x06\x07")
    assert event.audio == b"\x06\x07", "half a sample from before a clear belongs to what is gone"


@pytest.mark.parametrize("header", [b"RIFF", b"ID3\x04", b"OggS"])
def test_audio_with_a_files_header_is_a_fault(header: bytes) -> None:
    payload = base64.b64encode(header + bytes(60)).decode()
    events = make("twilio").receive(json.dumps({"event": "media", "media": {"payload": payload}}))
    assert [event.kind for event in events] == [EventKind.ERROR, EventKind.AUDIO]
    assert events[0].failure is not None
    assert events[0].failure.code == "audio_header"


def test_event_that_no_provider_defines_is_unknown() -> None:
    (event,) = make("twilio").receive('{"event":"dtmf","dtmf":{"digit":"1"}}')
    assert (event.kind, event.raw_type) == (EventKind.UNKNOWN, "dtmf")
    (event,) = make("plivo").receive('{"event":"sendDTMF","dtmf":"1"}')
    assert event.kind is EventKind.OTHER


@pytest.mark.parametrize(
    ("media", "rate_hz", "samples"),
    [
        ({"contentType": "audio/x-mulaw", "sampleRate": 8000}, 8000, 4),
        ({"contentType": "audio/x-l16", "sampleRate": 8000}, 8000, 2),
        ({"contentType": "audio/x-l16", "sampleRate": "16000"}, 16000, 2),
        ({"contentType": "audio/x-l16", "sampleRate": 24000}, None, 0),
        ({"contentType": "audio/x-mulaw", "sampleRate": 16000}, None, 0),
        ({"contentType": ["audio/x-l16"], "sampleRate": {}}, None, 0),
        ({}, None, 0),
    ],
)
def test_plivo_audio_is_decoded_as_each_message_states(media: Any, rate_hz: int | None, samples: int) -> None:
    message = json.dumps({"event": "playAudio", "media": {**media, "payload": "AAAAAA=="}})
    (event,) = make("plivo").receive(message)
    if rate_hz is None:
        assert (event.kind, event.failure and event.failure.code) == (EventKind.ERROR, "malformed_message")
    else:
        assert (event.rate_hz, len(event.audio or b"")) == (rate_hz, 2 * samples)


def test_reply_ends_by_silence_unless_marks_end_it() -> None:
    caller = make("twilio")
    assert caller.capabilities.reply_end == "silence"
    for message in (TWILIO_MEDIA, json.loads(mark("twilio", "end")), TWILIO_CLEAR):
        assert EventKind.RESPONSE_DONE not in [event.kind for event in caller.receive(json.dumps(message))]


def test_marks_of_the_given_name_end_a_reply() -> None:
    caller = make("twilio", reply_end_mark="end-*")
    assert caller.capabilities.reply_end == "event"

    def statuses(message: dict[str, Any]) -> list[str | None]:
        events = caller.receive(json.dumps(message))
        done = [event for event in events if event.kind is EventKind.RESPONSE_DONE]
        assert all(event.carried == {"audio"} for event in done)
        return [event.status for event in done]

    assert statuses(json.loads(mark("twilio", "end-0"))) == [], "no audio came before it"
    assert statuses(TWILIO_MEDIA) == []
    assert statuses(json.loads(mark("twilio", "part-1"))) == []
    assert statuses(json.loads(mark("twilio", "end-1"))) == ["completed"]
    assert statuses(json.loads(mark("twilio", "end-2"))) == []
    assert statuses(TWILIO_CLEAR) == [], "the reply was complete"
    assert statuses(TWILIO_MEDIA) == []
    assert statuses(TWILIO_CLEAR) == ["cancelled"]


def test_only_metrics_that_exist_are_declared_as_not_observable() -> None:
    assert NOT_OBSERVABLE.keys() <= set(METRIC_NAMES)
    observable = set(METRIC_NAMES) - NOT_OBSERVABLE.keys()
    assert {
        "voice_to_voice",
        "leading_silence",
        "barge_in_stop",
        "talk_over",
        "connect",
        "underrun_total",
    } <= observable


@pytest.mark.parametrize(
    ("wire", "names"),
    [
        (TWILIO, {"X-Twilio-Signature"}),
        (TELNYX, {"x-telnyx-streaming-auth-token"}),
        (PLIVO, {"X-Plivo-Signature-V3", "X-Plivo-Signature-V3-Nonce"}),
        (VONAGE, {"Authorization"}),
    ],
)
def test_token_authenticates_caller_to_agent(wire: Any, names: set[str]) -> None:
    opening = TelephonyCaller(wire, CallerOptions(token="s3cret")).upgrade("wss://agent.example/ws", TRACEPARENT)
    assert {name for name, _ in opening.headers} == names | {"traceparent"}
    signed = wire in (TWILIO, PLIVO)
    assert any("s3cret" in value for _, value in opening.headers) is not signed, "a token that signs is not sent"
    bare = TelephonyCaller(wire, CallerOptions()).upgrade("wss://agent.example/ws", None)
    assert bare.headers == ()


def test_calls_without_a_trace_have_ids_of_their_own() -> None:
    def stream_id() -> str:
        caller = TelephonyCaller(TWILIO, CallerOptions())
        caller.upgrade("wss://agent.example/ws", None)
        start = json.loads(caller.opened()[-1])
        assert "traceparent" not in start["start"]["customParameters"]
        return start["streamSid"]

    assert len({stream_id() for _ in range(20)}) == 20


def test_parameters_and_the_trace_are_sent() -> None:
    caller = TelephonyCaller(TWILIO, CallerOptions(settings={"parameters": {"tier": "gold"}}))
    caller.upgrade("wss://agent.example/ws", TRACEPARENT)
    parameters = json.loads(caller.opened()[-1])["start"]["customParameters"]
    assert parameters == {"tier": "gold", "traceparent": TRACEPARENT}


@pytest.mark.parametrize(
    ("wire", "settings", "expected"),
    [
        ("twilio", {"encoding": "PCMU"}, "known: audio/x-mulaw"),
        ("twilio", {"rate_hz": 16000}, "known: 8000"),
        ("exotel", {"rate_hz": 44100}, "known: 8000, 16000, 24000"),
        ("twilio", {"from_number": "555"}, "give a telephone number"),
        ("twilio", {"dtmf": "12a"}, "keys of a telephone"),
        ("twilio", {"parameters": {"traceparent": "x"}}, "leave it out"),
        ("twilio", {"parameters": {"": "x"}}, "has no name"),
        ("plivo", {"parameters": {"a": "b;c"}}, "separates parameters"),
        ("vonage", {"parameters": {"a": "x" * 450}}, "at most 512 bytes"),
        ("twilio", {"nonsense": 1}, "there is no setting 'nonsense'"),
    ],
)
def test_settings_that_cannot_be_used_are_reported(wire: str, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as raised:
        TelephonyCaller(WIRES[wire], CallerOptions(settings=settings))
    assert expected in str(raised.value)
    assert str(raised.value).startswith(f"{wire}: ")


def test_all_faults_are_reported_at_once() -> None:
    settings = {"encoding": "opus", "parameters": {"traceparent": "x"}}
    with pytest.raises(UsageError) as raised:
        TelephonyCaller(TWILIO, CallerOptions("manual", model="m", transcription_model="t", settings=settings))
    assert len(str(raised.value).splitlines()) == 5
