"""The OpenAI Realtime caller, event by event: what each message of a session makes, in a table."""

import base64
import json
from typing import Any, Final

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.dialects import BETA, GA, Dialect
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.line import lines

PCM: Final = bytes([1, 0, 2, 0])
ASR: Final = "conversation.item.input_audio_transcription"
CREATED: Final = json.dumps({"type": "session.created", "session": {"id": "s"}})


def ev(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind} | fields)


def delta(data: bytes, response: str = "r", item: str = "i", kind: str = "response.output_audio.delta") -> str:
    encoded = base64.b64encode(data).decode()
    return ev(kind, response_id=response, item_id=item, content_index=0, delta=encoded)


def created(response: str = "r", **fields: Any) -> str:
    return ev("response.created", response={"id": response} | fields)


def done(response: str = "r", status: str = "completed", **fields: Any) -> str:
    return ev("response.done", response={"id": response, "status": status} | fields)


def session(**fields: Any) -> str:
    return ev("session.updated", session=fields)


def heard(caller: OpenAIRealtimeCaller, *messages: str | bytes) -> list[VoiceEvent]:
    return [event for message in messages for event in caller.receive(message)]


def new(dialect: Dialect = GA, **options: Any) -> OpenAIRealtimeCaller:
    return OpenAIRealtimeCaller(CallerOptions(**options), dialect)


def ready(dialect: Dialect = GA, **options: Any) -> OpenAIRealtimeCaller:
    caller = new(dialect, **options)
    assert lines(heard(caller, CREATED, session(id="s"))) == ["ready"]
    caller.pending()
    return caller


def sent(messages: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


@pytest.mark.parametrize(
    ("options", "given", "url", "headers"),
    [
        (
            CallerOptions(model="gpt x", token="secret", headers=(("api-key", "k"),)),
            "wss://h:1/v1/realtime?a=",
            "wss://h:1/v1/realtime?a=&model=gpt+x",
            (("Authorization", "Bearer secret"), ("traceparent", "00-aa-bb-01"), ("api-key", "k")),
        ),
        (CallerOptions(model="other"), "ws://h/v1/realtime?model=mine", "ws://h/v1/realtime?model=mine", None),
        (CallerOptions(), "ws://h/v1/realtime", "ws://h/v1/realtime", ()),
    ],
)
def test_the_address_and_the_headers(options: CallerOptions, given: str, url: str, headers: Any) -> None:
    request = OpenAIRealtimeCaller(options).upgrade(given, None if headers == () else "00-aa-bb-01")
    assert request.url == url
    assert headers is None or request.headers == headers


def test_update_is_sent_once_after_session_and_makes_it_ready() -> None:
    caller = new()
    assert (list(caller.opened()), list(caller.pending())) == ([], [])
    assert lines(heard(caller, CREATED, CREATED)) == []
    assert [event["type"] for event in sent(caller.pending())] == ["session.update"]
    assert list(caller.pending()) == []
    (event,) = heard(caller, session(id="sess_1", model="m"))
    assert event.metadata == {"session.id": "sess_1", "session.model": "m"}
    assert (event.kind, lines(heard(caller, session(id="sess_1")))) == (EventKind.READY, [])


def test_the_session_that_is_asked_for() -> None:
    manual = new(turn_control="manual")
    flat = new(BETA, settings={"session": {"voice": "v", "instructions": "x"}}, silence_duration_ms=200)
    heard(manual, CREATED)
    (update,) = sent(manual.pending())
    assert update["session"]["audio"]["input"]["turn_detection"] is None
    assert flat.upgrade("ws://h/", None).headers == (("OpenAI-Beta", "realtime=v1"),)
    heard(flat, CREATED)
    (update,) = sent(flat.pending())
    assert update["session"] == {
        "modalities": ["text", "audio"],
        "input_audio_format": "pcm16",
        "output_audio_format": "pcm16",
        "input_audio_transcription": {"model": "gpt-4o-mini-transcribe"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
        "voice": "v",
        "instructions": "x",
    }


REFUSED: Final = {"type": "invalid_request_error", "message": "no such model"}
UNSAID: Final = "an error that does not say what is wrong"


@pytest.mark.parametrize(
    ("is_ready", "error", "fatal", "message"),
    [
        (False, REFUSED, True, "the session was refused: no such model (invalid_request_error)"),
        (
            False,
            REFUSED | {"event_id": "voiceprobe-session-update"},
            True,
            "the session was refused: no such model (invalid_request_error)",
        ),
        (False, {"message": "m", "event_id": "another"}, False, "m"),
        (True, {"message": "m"}, False, "m"),
        (
            True,
            {"type": "invalid_request_error", "code": "session_expired", "message": "m"},
            True,
            "m (session_expired)",
        ),
        (True, "just words", False, "just words"),
        (True, {"code": "c"}, False, "c"),
        (True, {"message": ""}, False, f'{UNSAID}: \'{{"message":""}}\'; its own log may say it'),
        (True, None, False, f"{UNSAID}; its own log may say it"),
        (True, [1], None, None),
    ],
)
def test_errors_in_all_their_forms(is_ready: bool, error: Any, fatal: bool | None, message: str | None) -> None:
    caller = ready() if is_ready else new()
    if not is_ready:
        heard(caller, CREATED)
    (event,) = heard(caller, ev("error", error=error))
    assert event.kind is EventKind.ERROR
    assert fatal is None or event.fatal is fatal
    assert message is None or event.message == message


def test_a_cancel_that_came_too_late_is_not_an_error() -> None:
    error = {"type": "invalid_request_error", "code": "response_cancel_not_active", "message": "m"}
    assert lines(heard(ready(), ev("error", error=error))) == []


def declared(side: str, **declaration: Any) -> dict[str, Any]:
    return {"audio": {side: {"format": declaration}}}


def test_a_declared_format_that_differs_is_reported_and_used() -> None:
    caller = new()
    first, second = heard(caller, session(**declared("output", type="audio/pcm", rate=16_000)))
    assert (first.kind, second.kind, second.fatal) == (EventKind.READY, EventKind.ERROR, False)
    assert "audio/pcm at 16000 Hz, not audio/pcm at 24000 Hz as requested" in (second.message or "")
    assert lines(heard(caller, delta(PCM))) == ["audio 4@16000"]
    _, event = heard(new(), session(**declared("input", type="audio/pcmu")))
    assert event.message == (
        "the session declares audio/pcmu at 8000 Hz for the caller's audio, not audio/pcm at 24000 Hz"
    )


@pytest.mark.parametrize(
    "declaration", ["x", {"type": "audio/mp3"}, {"type": "audio/pcm", "rate": 1}, {"type": "audio/pcmu", "rate": 9000}]
)
def test_an_invalid_format_is_reported_and_changes_nothing(declaration: Any) -> None:
    caller = ready()
    assert lines(heard(caller, session(audio={"output": {"format": declaration}}))) == ["error malformed_message"]
    assert lines(heard(caller, session(output_audio_format="mp3"), delta(PCM)))[1:] == ["audio 4@24000"]


def test_a_response_that_declares_its_own_format() -> None:
    caller = ready()
    started, report = heard(caller, created(**declared("output", type="audio/pcmu")))
    assert started.kind is EventKind.RESPONSE_STARTED
    assert "the response declares audio/pcmu at 8000 Hz" in (report.message or "")
    assert lines(heard(caller, delta(b"\xff\x80"), delta(PCM, "another"))) == ["audio 4@8000", "audio 4@24000"]


@pytest.mark.parametrize(("name", "decode"), [("pcmu", g711.ulaw_decode), ("pcma", g711.alaw_decode)])
def test_g711_replies_become_pcm(name: Any, decode: Any) -> None:
    caller = ready()
    heard(caller, session(**declared("output", type=f"audio/{name}")))
    (event,) = heard(caller, delta(bytes(range(256))))
    assert (event.rate_hz, event.audio) == (8000, decode(bytes(range(256))).astype("<i2").tobytes())


def test_a_frame_is_base64_of_the_samples() -> None:
    message = json.loads(new().audio_message(np.array([1, -2], np.int16)))
    assert message["type"] == "input_audio_buffer.append"
    assert base64.b64decode(message["audio"]) == b"\x01\x00\xfe\xff"
    assert new().capabilities.input_rate_hz == 24_000


def failed(status: str, **details: Any) -> str:
    return done(status=status, status_details={"type": status} | details)


BROKEN: Final = {"type": "server_error", "code": "x", "message": "broken"}
AUDIO_DONE: Final = ev("response.output_audio.done", response_id="r", item_id="i")


@pytest.mark.parametrize(
    ("messages", "events"),
    [
        (
            (delta(b"a"), delta(b"bcd"), delta(b"efghi"), delta(b"j")),
            ["audio 4@24000", "audio 4@24000", "audio 2@24000"],
        ),
        (
            (delta(b"abc"), AUDIO_DONE, delta(b"de", item="next")),
            ["audio 2@24000", "audio_done", "error odd_audio", "audio 2@24000"],
        ),
        ((delta(b""),), []),
        ((failed("failed", error=BROKEN),), ["response_done failed: broken (x) [x]"]),
        ((failed("cancelled", reason="turn_detected"),), ["response_done cancelled: turn_detected"]),
        ((ev("response.output_text.delta", response_id="r", delta=""),), []),
        ((ev("response.output_text.delta", response_id="r", delta="a"),), ["llm_text 'a'"]),
        ((ev("response.reasoning_text.delta", response_id="r", delta="hm"),), ["reasoning_text 'hm'"]),
        # The same audio under two names counts once in a response.
        ((delta(PCM, kind="response.audio.delta"), delta(PCM)), ["audio 4@24000"]),
        ((delta(PCM, kind="response.audio.delta"), delta(PCM, "r2")), ["audio 4@24000", "audio 4@24000"]),
        # Binary messages are audio inside a response only, and JSON in them is JSON.
        ((PCM, created(), PCM, b"{{{{"), ["error stray_binary", "response_started", "audio 4@24000", "audio 4@24000"]),
        ((b'{"type":"input_audio_buffer.speech_started","audio_start_ms":5}',), ["speech_started"]),
    ],
)
def test_messages_of_reply_give_their_events(messages: tuple[str | bytes, ...], events: list[str]) -> None:
    assert lines(heard(ready(), *messages)) == events


@pytest.mark.parametrize(
    ("messages", "pieces"),
    [
        ((delta(b"a"), delta(b"bcd"), delta(b"efghi"), delta(b"j")), [b"abcd", b"efgh", b"ij"]),
        ((delta(b"abc"), AUDIO_DONE, delta(b"de", item="next")), [b"ab", b"de"]),
        ((created(), PCM, b"{{{{"), [PCM, b"{{{{"]),
    ],
)
def test_the_audio_of_a_reply_is_what_was_sent_in_whole_samples(
    messages: tuple[str | bytes, ...], pieces: list[bytes]
) -> None:
    audible = [event for event in heard(ready(), *messages) if event.kind is EventKind.AUDIO]
    assert [(event.audio, event.response_id) for event in audible] == [(piece, "r") for piece in pieces]


def test_a_failed_transcription_names_its_item() -> None:
    (event,) = heard(ready(), ev(f"{ASR}.failed", item_id="i", error={"message": "too short"}))
    assert (event.kind, event.message, event.item_id) == (EventKind.ASR_FAILED, "too short", "i")


def test_late_pieces_keep_the_id_of_their_own_response() -> None:
    caller = ready()
    heard(caller, created("old"), done("old", "cancelled"), created("new"))
    (late, *_) = heard(caller, delta(PCM, "old"), delta(PCM, "new", "of new"), delta(PCM, "old", "of old"))
    assert late.response_id == "old"
    cancel, truncate = sent(caller.interrupt(0))
    assert (cancel["type"], cancel["response_id"]) == ("response.cancel", "new")
    assert truncate["item_id"] == "of new"


def test_usage_in_seconds() -> None:
    (event,) = heard(ready(), ev(f"{ASR}.completed", transcript="a", usage={"type": "duration", "seconds": 1.25}))
    assert (event.text, event.usage) == ("a", {"duration_ms": 1250})


def test_partials_that_carry_all_so_far() -> None:
    caller = ready()
    partials = [ev(f"{ASR}.updated", item_id="i", transcript=text) for text in ("a", "a b", "a b")]
    assert lines(heard(caller, *partials)) == ["asr_partial 'a'", "asr_partial ' b'"]


def test_the_end_of_a_turn_is_sent_only_where_it_is_the_callers() -> None:
    assert list(ready().end_turn()) == []
    assert sent(ready(turn_control="manual").end_turn()) == [
        {"type": "input_audio_buffer.commit"},
        {"type": "response.create", "response": {}},
    ]


def cut(item: str, end_ms: int) -> dict[str, Any]:
    return {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": end_ms}


CANCEL: Final = {"type": "response.cancel", "response_id": "r"}
SECOND: Final = bytes(2 * 24_000)


@pytest.mark.parametrize(
    ("messages", "played_ms", "commands"),
    [
        ((), 500, []),
        ((created(), delta(SECOND)), 300, [CANCEL, cut("i", 300)]),
        ((created(), delta(SECOND), done()), 999, [cut("i", 999)]),
        ((created(), delta(SECOND), done()), 1000, []),
        ((created(), delta(SECOND), done()), 5000, []),
        ((delta(SECOND[:24_000], item="one"), delta(SECOND[:24_000], item="two")), 600, [CANCEL, cut("two", 100)]),
        (
            (delta(SECOND[:24_000], item="one"), delta(SECOND[:24_000], item="two")),
            100,
            [CANCEL, cut("one", 100), cut("two", 0)],
        ),
    ],
)
def test_interruption_cancels_generation_and_cuts_unplayed_audio(
    messages: tuple[str, ...], played_ms: int, commands: list[dict[str, Any]]
) -> None:
    caller = ready()
    heard(caller, *messages)
    assert sent(caller.interrupt(played_ms)) == commands


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "does not say what it is in 'type'"),
        ('{"type": 7}', "does not say what it is in 'type'"),
        ('{"type":"response.output_audio.delta"}', "'delta' is missing"),
        ('{"type":"response.output_audio.delta","delta":"a"}', "not base64"),
        ('{"type":"response.output_audio.delta","delta":"\u00e9\u00e9\u00e9\u00e9"}', "not base64"),
        ('{"type":"response.output_audio.delta","delta":[]}', "should be a string"),
        ('{"type":"response.output_text.delta","delta":"a","response_id":5}', "should be a string"),
        ('{"type":"response.done","response":[]}', "should be an object"),
        ('{"type":"input_audio_buffer.speech_started","audio_start_ms":"1"}', "should be a whole number"),
        ('{"type":"input_audio_buffer.speech_started","audio_start_ms":1e300}', "should be a whole number"),
        ('{"type":"session.updated","session":"x"}', "should be an object"),
        ("[" * 5000, "not JSON"),
        ("\ud800", "not JSON"),
    ],
)
def test_a_malformed_message_is_an_error_with_a_sentence(message: str, reason: str) -> None:
    (event,) = new().receive(message)
    assert (event.kind, event.fatal) == (EventKind.ERROR, False)
    assert reason in (event.message or "")


def test_the_beta_has_a_name_of_its_own() -> None:
    for name in ("openai-realtime", "openai-realtime-beta"):
        headers = make_caller(name, CallerOptions()).upgrade("ws://h/", None).headers
        assert (("OpenAI-Beta", "realtime=v1") in headers) is name.endswith("-beta")
