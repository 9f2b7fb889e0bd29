"""The OpenAI Realtime caller, event by event."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.dialects import BETA, Dialect
from loadtest.protocols.registry import make_caller, names

PCM = bytes([1, 0, 2, 0])


def receive(caller: OpenAIRealtimeCaller, kind: str, **fields: Any) -> list[VoiceEvent]:
    return list(caller.receive(json.dumps({"type": kind} | fields)))


def one(caller: OpenAIRealtimeCaller, kind: str, **fields: Any) -> VoiceEvent:
    (event,) = receive(caller, kind, **fields)
    return event


def ready(options: CallerOptions | None = None, dialect: Dialect | None = None) -> OpenAIRealtimeCaller:
    options = options or CallerOptions()
    caller = OpenAIRealtimeCaller(options) if dialect is None else OpenAIRealtimeCaller(options, dialect)
    receive(caller, "session.created", session={"id": "s"})
    caller.pending()
    assert one(caller, "session.updated", session={"id": "s"}).kind is EventKind.READY
    return caller


def audio(caller: OpenAIRealtimeCaller, data: bytes, response: str = "r", item: str = "i") -> list[VoiceEvent]:
    delta = base64.b64encode(data).decode()
    return receive(
        caller, "response.output_audio.delta", response_id=response, item_id=item, content_index=0, delta=delta
    )


def sent(messages: Any) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


class TestOpening:
    def test_model_token_and_trace(self) -> None:
        options = CallerOptions(model="gpt x", token="secret", headers=(("api-key", "k"),))
        request = OpenAIRealtimeCaller(options).upgrade("wss://h:1/v1/realtime?a=", "00-aa-bb-01")
        assert request.url == "wss://h:1/v1/realtime?a=&model=gpt+x"
        assert request.headers == (
            ("Authorization", "Bearer secret"),
            ("traceparent", "00-aa-bb-01"),
            ("api-key", "k"),
        )

    def test_a_model_in_the_url_takes_precedence_and_nothing_else_is_added(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions(model="other"))
        assert caller.upgrade("ws://h/v1/realtime?model=mine", None).url == "ws://h/v1/realtime?model=mine"
        plain = OpenAIRealtimeCaller(CallerOptions()).upgrade("ws://h/v1/realtime", None)
        assert plain.url == "ws://h/v1/realtime"
        assert plain.headers == ()

    def test_the_update_is_sent_once_and_only_after_the_session_exists(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        assert list(caller.opened()) == []
        assert list(caller.pending()) == []
        receive(caller, "session.created", session={})
        receive(caller, "session.created", session={})
        assert [event["type"] for event in sent(caller.pending())] == ["session.update"]
        assert list(caller.pending()) == []

    def test_ready_once_and_only_after_the_update(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        assert one(caller, "session.created", session={}).kind is EventKind.OTHER
        session = {"id": "sess_1", "model": "m"}
        event = one(caller, "session.updated", session=session)
        assert event.kind is EventKind.READY
        assert event.metadata == {"session.id": "sess_1", "session.model": "m"}
        assert one(caller, "session.updated", session=session).kind is EventKind.OTHER

    def test_manual_control_turns_detection_off(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions(turn_control="manual"))
        receive(caller, "session.created")
        (update,) = sent(caller.pending())
        assert update["session"]["audio"]["input"]["turn_detection"] is None

    def test_the_beta_dialect_sends_a_flat_session(self) -> None:
        options = CallerOptions(input_format="pcmu", voice="v", instructions="x", silence_duration_ms=200)
        caller = OpenAIRealtimeCaller(options, BETA)
        assert caller.upgrade("ws://h/", None).headers == (("OpenAI-Beta", "realtime=v1"),)
        receive(caller, "session.created")
        (update,) = sent(caller.pending())
        assert update["session"] == {
            "modalities": ["text", "audio"],
            "input_audio_format": "g711_ulaw",
            "output_audio_format": "pcm16",
            "input_audio_transcription": {"model": "gpt-4o-mini-transcribe"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
            "voice": "v",
            "instructions": "x",
        }


class TestRefusal:
    @pytest.mark.parametrize("event_id", [None, "voiceprobe-session-update"])
    def test_a_refused_update_is_fatal_and_keeps_the_endpoints_message(self, event_id: str | None) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        receive(caller, "session.created")
        error = {"type": "invalid_request_error", "message": "no such model", "event_id": event_id}
        event = one(caller, "error", error=error)
        assert event.kind is EventKind.ERROR
        assert event.fatal
        assert event.message == "the session was refused: no such model (invalid_request_error)"

    def test_another_error_is_not_fatal(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        assert not one(caller, "error", error={"message": "m", "event_id": "another"}).fatal
        assert not one(ready(), "error", error={"message": "m"}).fatal

    def test_the_end_of_the_session_is_fatal_at_any_time(self) -> None:
        event = one(
            ready(), "error", error={"type": "invalid_request_error", "code": "session_expired", "message": "m"}
        )
        assert event.fatal

    def test_errors_in_other_forms(self) -> None:
        caller = ready()
        assert one(caller, "error", error="just words", code="c").message == "just words"
        assert one(caller, "error", error={"code": "c"}).message == "c"
        assert one(caller, "error", error={"message": ""}).message == (
            """an error that does not say what is wrong: '{"message":""}'; its own log may say it"""
        )
        assert one(caller, "error").message == "an error that does not say what is wrong; its own log may say it"
        assert one(caller, "error", error=[1]).kind is EventKind.ERROR

    def test_a_cancel_that_came_too_late_is_not_an_error(self) -> None:
        error = {"type": "invalid_request_error", "code": "response_cancel_not_active", "message": "m"}
        assert one(ready(), "error", error=error).kind is EventKind.OTHER


class TestDeclaredFormats:
    def test_another_output_rate_is_used_and_reported(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        declared = {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16_000}}}}
        first, second = receive(caller, "session.updated", session=declared)
        assert first.kind is EventKind.READY
        assert second.kind is EventKind.ERROR
        assert not second.fatal
        assert "audio/pcm at 16000 Hz, not audio/pcm at 24000 Hz as requested" in (second.message or "")
        assert audio(caller, PCM)[0].rate_hz == 16_000

    def test_another_input_format_is_reported(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        declared = {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}
        _, event = receive(caller, "session.updated", session=declared)
        expected = "the session declares audio/pcmu at 8000 Hz for the caller's audio, not audio/pcm at 24000 Hz"
        assert event.message == expected

    def test_invalid_formats_are_reported_and_change_nothing(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions())
        for declared in (
            "x",
            {"type": "audio/mp3"},
            {"type": "audio/pcm", "rate": 1},
            {"type": "audio/pcmu", "rate": 9000},
        ):
            events = receive(caller, "session.updated", session={"audio": {"output": {"format": declared}}})
            assert events[-1].kind is EventKind.ERROR
            assert audio(caller, PCM)[-1].rate_hz == 24_000
        assert receive(caller, "session.updated", session={"output_audio_format": "mp3"})[-1].kind is EventKind.ERROR

    def test_a_response_that_declares_its_own_format(self) -> None:
        caller = ready()
        response = {"id": "r", "audio": {"output": {"format": {"type": "audio/pcmu"}}}}
        started, report = receive(caller, "response.created", response=response)
        assert started.kind is EventKind.RESPONSE_STARTED
        assert "the response declares audio/pcmu at 8000 Hz" in (report.message or "")
        assert audio(caller, b"\xff\x80")[0].rate_hz == 8000
        assert audio(caller, PCM, response="another")[0].rate_hz == 24_000

    @pytest.mark.parametrize(("name", "decode"), [("pcmu", g711.ulaw_decode), ("pcma", g711.alaw_decode)])
    def test_g711_replies_become_pcm(self, name: Any, decode: Any) -> None:
        caller = ready(CallerOptions(output_format=name))
        (event,) = audio(caller, bytes(range(256)))
        assert event.rate_hz == 8000
        assert event.audio == decode(bytes(range(256))).astype("<i2").tobytes()


class TestAudioOut:
    def test_pcm(self) -> None:
        message = json.loads(OpenAIRealtimeCaller(CallerOptions()).audio_message(np.array([1, -2], np.int16)))
        assert message["type"] == "input_audio_buffer.append"
        assert base64.b64decode(message["audio"]) == b"\x01\x00\xfe\xff"

    def test_telephone(self) -> None:
        caller = OpenAIRealtimeCaller(CallerOptions(input_format="pcmu"))
        assert caller.capabilities.input_rate_hz == 8000
        message = json.loads(caller.audio_message(np.zeros(160, np.int16)))
        assert base64.b64decode(message["audio"]) == b"\xff" * 160

    def test_capabilities(self) -> None:
        capabilities = OpenAIRealtimeCaller(CallerOptions()).capabilities
        assert (capabilities.input_rate_hz, capabilities.frame_ms) == (24_000, 20)
        assert capabilities.audio_is_text


class TestReply:
    def test_samples_split_between_deltas_are_joined(self) -> None:
        caller = ready()
        whole = bytes(range(10))
        events = [audio(caller, piece)[0] for piece in (whole[:1], whole[1:4], whole[4:9], whole[9:])]
        assert [event.kind for event in events] == ["other", "audio", "audio", "audio"]
        assert b"".join(event.audio or b"" for event in events) == whole
        assert [e.kind for e in receive(caller, "response.output_audio.done", response_id="r", item_id="i")] == [
            "audio_done"
        ]

    def test_audio_that_ends_inside_a_sample_is_reported(self) -> None:
        caller = ready()
        audio(caller, b"abc")
        done, error = receive(caller, "response.output_audio.done", response_id="r", item_id="i")
        assert done.kind is EventKind.AUDIO_DONE
        assert "inside a sample" in (error.message or "")
        assert audio(caller, b"de", item="next")[0].audio == b"de"

    def test_late_pieces_keep_the_id_of_their_own_response(self) -> None:
        caller = ready()
        receive(caller, "response.created", response={"id": "old"})
        receive(caller, "response.done", response={"id": "old", "status": "cancelled"})
        receive(caller, "response.created", response={"id": "new"})
        assert audio(caller, PCM, response="old")[0].response_id == "old"
        audio(caller, PCM, response="new", item="of new")
        audio(caller, PCM, response="old", item="of old")
        cancel, truncate = sent(caller.interrupt(0))
        assert (cancel["type"], cancel["response_id"]) == ("response.cancel", "new")
        assert truncate["item_id"] == "of new"

    def test_failed_responses_have_a_reason(self) -> None:
        details = {"type": "failed", "error": {"type": "server_error", "code": "x", "message": "broken"}}
        event = one(ready(), "response.done", response={"id": "r", "status": "failed", "status_details": details})
        assert (event.status, event.message) == ("failed", "broken (x)")
        details = {"type": "cancelled", "reason": "turn_detected"}
        event = one(ready(), "response.done", response={"id": "r", "status": "cancelled", "status_details": details})
        assert (event.status, event.message) == ("cancelled", "turn_detected")

    def test_an_empty_delta_is_not_a_first_token(self) -> None:
        caller = ready()
        assert one(caller, "response.output_text.delta", response_id="r", delta="").kind is EventKind.OTHER
        assert one(caller, "response.output_text.delta", response_id="r", delta="a").kind is EventKind.LLM_TEXT
        assert audio(caller, b"")[0].kind is EventKind.OTHER

    def test_reasoning_is_kept_apart(self) -> None:
        event = one(ready(), "response.reasoning_text.delta", response_id="r", delta="hm")
        assert (event.kind, event.text) == (EventKind.REASONING_TEXT, "hm")

    def test_audio_sent_twice_under_two_names_counts_once(self) -> None:
        caller = ready()
        delta = base64.b64encode(PCM).decode()
        fields = {"response_id": "r", "item_id": "i", "content_index": 0, "delta": delta}
        assert one(caller, "response.audio.delta", **fields).kind is EventKind.AUDIO
        assert one(caller, "response.output_audio.delta", **fields).kind is EventKind.OTHER
        fields["response_id"] = "r2"
        assert one(caller, "response.output_audio.delta", **fields).kind is EventKind.AUDIO

    def test_binary_messages_are_audio_inside_a_response_only(self) -> None:
        caller = ready()
        (event,) = caller.receive(PCM)
        assert event.kind is EventKind.ERROR
        receive(caller, "response.created", response={"id": "r"})
        (event,) = caller.receive(PCM)
        assert (event.kind, event.audio, event.response_id) == (EventKind.AUDIO, PCM, "r")
        (event,) = caller.receive(b"{{{{")
        assert (event.kind, event.audio) == (EventKind.AUDIO, b"{{{{")

    def test_json_in_binary_messages_is_json(self) -> None:
        (event,) = ready().receive(b'{"type":"input_audio_buffer.speech_started","audio_start_ms":5}')
        assert event.kind is EventKind.SPEECH_STARTED

    def test_asr_failure_and_usage_in_seconds(self) -> None:
        caller = ready()
        name = "conversation.item.input_audio_transcription"
        event = one(caller, f"{name}.failed", item_id="i", error={"message": "too short"})
        assert (event.kind, event.message, event.item_id) == (EventKind.ASR_FAILED, "too short", "i")
        event = one(caller, f"{name}.completed", transcript="a", usage={"type": "duration", "seconds": 1.25})
        assert event.usage == {"duration_ms": 1250}

    def test_cumulative_partials_of_a_dialect(self) -> None:
        caller = ready(dialect=Dialect(name="cumulative", cumulative_partials=True))
        name = "conversation.item.input_audio_transcription.delta"
        events = [one(caller, name, item_id="i", delta=text) for text in ("a", "a b", "a b")]
        assert [(event.kind, event.text) for event in events] == [
            (EventKind.ASR_PARTIAL, "a"),
            (EventKind.ASR_PARTIAL, " b"),
            (EventKind.OTHER, None),
        ]


class TestTurnsAndInterruption:
    def test_server_control_sends_nothing_at_the_end(self) -> None:
        assert list(ready().end_turn()) == []

    def test_manual_control_commits_and_requests_a_response(self) -> None:
        caller = ready(CallerOptions(turn_control="manual", metadata=(("k", "v"),)))
        assert sent(caller.end_turn()) == [
            {"type": "input_audio_buffer.commit"},
            {"type": "response.create", "response": {"metadata": {"k": "v"}}},
        ]

    def test_nothing_to_interrupt(self) -> None:
        assert list(ready().interrupt(500)) == []

    def test_while_generating_cancel_and_truncate(self) -> None:
        caller = ready()
        receive(caller, "response.created", response={"id": "r"})
        audio(caller, bytes(2 * 24_000))
        assert sent(caller.interrupt(300)) == [
            {"type": "response.cancel", "response_id": "r"},
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 300},
        ]

    def test_after_generating_only_truncate_and_never_more_than_was_sent(self) -> None:
        caller = ready()
        receive(caller, "response.created", response={"id": "r"})
        audio(caller, bytes(2 * 24_000))
        receive(caller, "response.done", response={"id": "r", "status": "completed"})
        assert [event["type"] for event in sent(caller.interrupt(999))] == ["conversation.item.truncate"]
        assert list(caller.interrupt(1000)) == []
        assert list(caller.interrupt(5000)) == []

    def test_two_items_are_cut_where_the_caller_was(self) -> None:
        caller = ready()
        audio(caller, bytes(24_000), item="one")
        audio(caller, bytes(24_000), item="two")
        cuts = [(cut["item_id"], cut["audio_end_ms"]) for cut in sent(caller.interrupt(600)) if "item_id" in cut]
        assert cuts == [("two", 100)]
        cuts = [(cut["item_id"], cut["audio_end_ms"]) for cut in sent(caller.interrupt(100)) if "item_id" in cut]
        assert cuts == [("one", 100), ("two", 0)]


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
    caller = OpenAIRealtimeCaller(CallerOptions())
    (event,) = caller.receive(message)
    assert event.kind is EventKind.ERROR
    assert reason in (event.message or "")
    assert not event.fatal
    assert one(caller, "no.such.event", x=1) == VoiceEvent(EventKind.UNKNOWN, "no.such.event")


def test_metadata_that_the_wire_cannot_carry() -> None:
    with pytest.raises(UsageError, match="17 metadata pairs"):
        OpenAIRealtimeCaller(CallerOptions(metadata=tuple((f"k{n}", "v") for n in range(17))))
    with pytest.raises(UsageError, match="is too long"):
        OpenAIRealtimeCaller(CallerOptions(metadata=(("k", "v" * 513),)))


def test_registry() -> None:
    dialects = [name for name in names() if name.startswith("openai-realtime")]
    assert dialects == ["openai-realtime", "openai-realtime-beta"]
    for name in dialects:
        caller = make_caller(name, CallerOptions())
        beta = ("OpenAI-Beta", "realtime=v1") in caller.upgrade("ws://h/", None).headers
        assert beta is name.endswith("-beta")
    with pytest.raises(UsageError, match=r"unknown protocol 'sip'; known: .*openai-realtime, openai-realtime-beta"):
        make_caller("sip", CallerOptions())
