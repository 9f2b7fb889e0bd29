"""The caller of an ElevenLabs agent: its settings, its first message, the traps of the wire and its answers."""

import base64
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.audio.pcm import from_bytes
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, CallerProtocol, EventKind, VoiceEvent
from loadtest.protocols.registry import guess, make_caller
from tests.g711_reference import ULAW
from tests.unit.loadtest.protocols.contract.line import kinds
from tests.unit.loadtest.protocols.contract.scripts.elevenlabs import (
    EVERY_EVENT,
    audio,
    complete,
    error,
    interruption,
    message,
    metadata,
    part,
    ping,
    response,
    tentative,
    tool_call,
    transcript,
    usage,
)

TRACE = f"00-{1:032x}-{2:016x}-01"
PCM = b"\x00\x40\x00\x20" * 20
EVENTFUL = {"client_events": EVERY_EVENT}


def opened(settings: dict[str, Any] | None = None, **described: Any) -> CallerProtocol:
    """A caller whose conversation has begun, with these formats."""
    caller = make_caller("elevenlabs", CallerOptions(settings=settings or {}))
    caller.upgrade("wss://h/v1/convai/conversation", TRACE)
    caller.opened()
    assert kinds(caller.receive(metadata(**described))) == [EventKind.READY]
    return caller


def received(caller: CallerProtocol, *messages: str) -> list[VoiceEvent]:
    return [event for message in messages for event in caller.receive(message)]


def spoken(events: list[VoiceEvent]) -> bytes:
    return b"".join(event.audio or b"" for event in events if event.kind is EventKind.AUDIO)


def sent(caller: CallerProtocol) -> list[dict[str, Any]]:
    return [json.loads(text) for text in caller.pending()]  # type: ignore[arg-type]  # every message is text


# Formats.


@pytest.mark.parametrize("rate_hz", [8000, 16000, 22050, 24000, 44100, 48000])
def test_the_agents_declared_rate_is_obeyed(rate_hz: int) -> None:
    (event,) = received(opened(output=f"pcm_{rate_hz}"), audio(PCM, 1))
    assert (event.kind, event.audio, event.rate_hz) == (EventKind.AUDIO, PCM, rate_hz)


def test_g711_is_decoded() -> None:
    every_byte = bytes(range(256))
    (event,) = received(opened(output="ulaw_8000"), audio(every_byte, 1))
    assert event.rate_hz == 8000
    assert from_bytes(event.audio or b"").tolist() == [ULAW.decode(byte) for byte in every_byte]


def test_missing_format_is_that_of_vendor_client() -> None:
    (event,) = received(opened(output=None, taken=None), audio(PCM, 1))
    assert event.rate_hz == 16_000


@pytest.mark.parametrize("described", [{"output": "mp3_44100"}, {"taken": "ulaw_8000"}, {"taken": "opus_48000"}])
def test_unsupported_agent_format_ends_call_with_remedy(described: dict[str, Any]) -> None:
    caller = make_caller("elevenlabs", CallerOptions())
    (event,) = received(caller, metadata(**described))
    assert (event.kind, event.fatal) == (EventKind.ERROR, True)
    assert event.failure is not None
    assert (event.failure.kind, event.failure.code) == ("protocol_violation", "audio_format")
    assert repr(next(iter(described.values()))) in (event.message or "")


def test_a_sample_that_is_cut_in_two_is_joined() -> None:
    caller = opened()
    assert spoken(received(caller, audio(PCM[:3], 1), audio(PCM[3:], 2))) == PCM
    # Half a sample of what was interrupted is no part of the next answer.
    received(caller, audio(PCM[:3], 3), interruption(3))
    assert spoken(received(caller, audio(PCM, 4))) == PCM


@given(cuts=st.lists(st.integers(0, len(PCM)), max_size=6))
def test_any_cut_of_the_audio_gives_the_same_samples(cuts: list[int]) -> None:
    caller = opened()
    edges = [0, *sorted(cuts), len(PCM)]
    pieces = [PCM[begin:end] for begin, end in pairwise(edges)]
    assert spoken(received(caller, *(audio(piece, 10 + at) for at, piece in enumerate(pieces)))) == PCM


def test_audio_before_its_format_is_a_violation() -> None:
    caller = make_caller("elevenlabs", CallerOptions())
    (event,) = received(caller, audio(PCM, 1))
    assert (event.kind, event.fatal) == (EventKind.ERROR, False)


# Interruptions.


@pytest.mark.parametrize("settings", [{}, EVENTFUL])
def test_late_audio_of_what_was_interrupted_is_not_heard(settings: dict[str, Any]) -> None:
    caller = opened(settings)
    received(caller, audio(PCM, 5))
    (clear, *_) = received(caller, interruption(7))
    assert clear.kind is EventKind.CLEAR
    late = received(caller, audio(PCM, 6), audio(PCM, 7), part("delta", "late", 6), response("late", 7), complete(7))
    assert kinds(late) == []
    assert kinds(received(caller, audio(PCM, 8))) == [EventKind.AUDIO]


def test_an_interrupted_reply_is_cancelled_once() -> None:
    caller = opened(EVENTFUL)
    received(caller, audio(PCM, 5))
    events = received(caller, interruption(5), complete(5), interruption(5))
    assert kinds(events) == [EventKind.CLEAR, EventKind.RESPONSE_DONE, EventKind.DUPLICATE]
    assert events[1].status == "cancelled"


def test_a_reply_that_was_sent_whole_is_still_stopped() -> None:
    caller = opened(EVENTFUL)
    received(caller, audio(PCM, 5), complete(6))
    assert kinds(received(caller, interruption(6))) == [EventKind.CLEAR]


def test_interruption_of_one_answer_leaves_texts_of_the_next() -> None:
    caller = opened()
    received(caller, part("delta", "The sun ", 5), interruption(6))
    events = received(caller, response("It rains.", 7))
    assert [(event.kind, event.text) for event in events] == [(EventKind.SPOKEN_TEXT, "It rains.")]


# Text.


MODELS, SPOKEN = EventKind.LLM_TEXT, EventKind.SPOKEN_TEXT


def texts(events: list[VoiceEvent]) -> list[tuple[EventKind, str | None]]:
    return [(event.kind, event.text) for event in events if event.kind in (MODELS, SPOKEN)]


def test_text_that_comes_in_parts_and_whole_counts_once() -> None:
    caller = opened(EVENTFUL)
    parts = [part("start", "", 1), part("delta", "It ", 2), part("delta", "is on.", 3), part("stop", "", 4)]
    assert texts(received(caller, *parts, response("It is on.", 5))) == [(MODELS, "It "), (MODELS, "is on.")]
    # The greeting and other fixed sentences come whole only.
    assert texts(received(caller, response("Still there?", 6))) == [(SPOKEN, "Still there?")]


def test_parts_of_what_came_whole_before_count_once() -> None:
    caller = opened(EVENTFUL)
    assert texts(received(caller, response("It is on.", 1), part("delta", "It is on.", 1))) == [(SPOKEN, "It is on.")]
    assert texts(received(caller, part("delta", "Next.", 2))) == [(MODELS, "Next.")]


def test_growing_transcripts_give_increments_until_the_final_one() -> None:
    caller = opened(EVENTFUL)
    events = received(caller, tentative("turn", 1), tentative("turn", 1), tentative("turn the", 1))
    assert [event.text for event in events if event.kind is EventKind.ASR_PARTIAL] == ["turn", " the"]
    events = received(caller, transcript(" turn the ", 2), tentative("turn", 3))
    assert [(event.kind, event.text) for event in events] == [
        (EventKind.ASR_FINAL, "turn the"),
        (EventKind.ASR_PARTIAL, "turn"),
    ]


# The end of a reply.


def test_a_reply_is_complete_when_the_agent_says_so() -> None:
    caller = opened(EVENTFUL)
    assert kinds(received(caller, complete(1))) == [], "nothing has begun"
    received(caller, part("delta", "Yes.", 2), audio(PCM, 3))
    (done,) = received(caller, message("agent_response_complete"))
    assert (done.kind, done.status, done.carried) == (
        EventKind.RESPONSE_DONE,
        "completed",
        frozenset({"text", "audio"}),
    )


def test_without_the_event_in_the_settings_silence_ends_a_reply() -> None:
    caller = opened()
    received(caller, audio(PCM, 1))
    assert kinds(received(caller, complete(2))) == []


def test_after_the_call_of_a_tool_an_answer_is_owed() -> None:
    caller = opened({**EVENTFUL, "tools": {"*": "x"}})
    received(caller, part("delta", "Let me see. ", 1), audio(PCM, 2), tool_call("weather", "call_1"))
    (waiting,) = received(caller, complete(3))
    assert (waiting.owes_response, waiting.carried) == (True, frozenset({"text", "audio", "tool_call"}))
    received(caller, part("delta", "Sunny.", 4), audio(PCM, 5))
    assert not received(caller, complete(6))[0].owes_response


# Tools, pings, reports and errors.


def test_tools_are_answered_from_the_settings() -> None:
    caller = opened({"tools": {"weather": {"sky": "clear"}, "time": "noon"}})
    assert kinds(received(caller, tool_call("weather", "c1"), tool_call("time", "c2"))) == []
    answer = {"type": "client_tool_result", "is_error": False}
    assert sent(caller) == [
        {**answer, "tool_call_id": "c1", "result": '{"sky":"clear"}'},
        {**answer, "tool_call_id": "c2", "result": "noon"},
    ]
    assert sent(caller) == []


def test_a_tool_without_a_result_is_refused_and_named() -> None:
    caller = opened()
    (event,) = received(caller, tool_call("weather", "c1"))
    assert (event.kind, event.fatal) == (EventKind.ERROR, False)
    assert "'weather'" in (event.message or "")
    (answer,) = sent(caller)
    assert (answer["tool_call_id"], answer["is_error"]) == ("c1", True)


def test_tool_is_answered_once_and_only_if_answer_is_expected() -> None:
    caller = opened({"tools": {"*": "done"}})
    events = received(caller, tool_call("a", "c1"), tool_call("a", "c1"), tool_call("a", "c2", expects_response=False))
    assert kinds(events) == [EventKind.DUPLICATE]
    assert [answer["tool_call_id"] for answer in sent(caller)] == ["c1"]


def test_every_ping_is_answered_also_one_that_comes_again() -> None:
    caller = opened()
    events = received(caller, ping(4, 20), ping(4, 20), ping("x", None))
    assert [event.service_ns for event in events if event.service_ns] == [{"ping": 20_000_000}] * 2
    assert sent(caller) == [{"type": "pong", "event_id": event_id} for event_id in (4, 4, "x")]


def test_agent_reports_are_kept() -> None:
    caller = opened()
    guardrail = message("guardrail_triggered", "guardrail_triggered_event", guardrail_name="profanity")
    tokens, named, unnamed = received(caller, usage(1), guardrail, message("guardrail_triggered"))
    assert tokens.usage == {"context_tokens": 812, "context_limit_tokens": 128_000}
    assert tokens.metadata == {"voice.model": "gpt-9-mini"}
    assert named.metadata == {"guardrail": "profanity"}
    assert unnamed.metadata == {"guardrail": "triggered"}
    assert {event.kind for event in (tokens, named, unnamed)} == {EventKind.SERVICE_REPORT}


def test_an_error_ends_the_call_and_a_client_error_does_not() -> None:
    caller = opened()
    warning = message("client_error", "error_event", error_name="tool_failed", message="the tool failed")
    nothing = message("client_error")
    warned, silent, ended = received(caller, warning, nothing, error(1002, "tts_cascade_error", "no voice is left"))
    assert (warned.fatal, warned.message) == (False, "the tool failed")
    assert (silent.fatal, silent.message) == (False, "an error that does not say what is wrong; its own log may say it")
    assert (ended.fatal, ended.message) == (True, "no voice is left")
    assert ended.failure is not None
    assert (ended.failure.kind, ended.failure.code) == ("endpoint_error", "tts_cascade_error")


# Repeated messages.


def test_the_same_audio_again_is_counted_and_not_heard() -> None:
    caller = opened()
    events = received(caller, audio(PCM, 1), audio(PCM[4:], 2), audio(PCM, 1))
    assert kinds(events) == [EventKind.AUDIO, EventKind.AUDIO, EventKind.DUPLICATE]


def test_pieces_of_one_answer_may_share_their_id() -> None:
    caller = opened()
    loud, soft = audio(PCM, 3), audio(PCM[::-1], 3)
    assert kinds(received(caller, loud, soft, loud)) == [EventKind.AUDIO] * 3


def test_equal_pieces_of_text_are_no_repetition() -> None:
    caller = opened(EVENTFUL)
    assert texts(received(caller, part("delta", "ha ", 1), part("delta", "ha ", 1))) == [(MODELS, "ha ")] * 2


def test_the_memory_of_messages_is_bounded_and_long() -> None:
    caller = opened()
    received(caller, *(audio(PCM, at) for at in range(1, 5000)))
    assert kinds(received(caller, audio(PCM, 4000))) == [EventKind.DUPLICATE]
    assert kinds(received(caller, audio(PCM, 1))) == [EventKind.AUDIO]


def test_the_same_metadata_again_is_no_second_beginning() -> None:
    caller = opened()
    assert kinds(received(caller, metadata())) == [EventKind.DUPLICATE]
    (event,) = received(caller, metadata(conversation_id="conv_2"))
    assert event.failure is not None
    assert event.failure.code == "second_conversation"


def first(**options: Any) -> dict[str, Any]:
    caller = make_caller("elevenlabs", CallerOptions(**options))
    caller.upgrade("wss://h/", TRACE)
    (opening,) = caller.opened()
    return json.loads(opening)  # type: ignore[arg-type]


def test_the_trace_goes_by_header_and_as_a_dynamic_variable() -> None:
    caller = make_caller("elevenlabs", CallerOptions(token="sk", headers=(("x-tenant", "a"),)))
    request = caller.upgrade("wss://h/v1/convai/conversation?agent_id=a", TRACE)
    assert request.url == "wss://h/v1/convai/conversation?agent_id=a"
    assert request.headers == (("xi-api-key", "sk"), ("traceparent", TRACE), ("x-tenant", "a"))
    opening = json.loads(caller.opened()[0])  # type: ignore[arg-type]
    assert opening["dynamic_variables"] == {"traceparent": TRACE}
    assert opening["custom_llm_extra_body"] == {}


def test_the_trace_goes_to_the_language_model_only_if_asked() -> None:
    assert first(settings={"trace_in_llm_body": True})["custom_llm_extra_body"] == {"traceparent": TRACE}


def test_without_a_trace_none_is_sent() -> None:
    caller = make_caller("elevenlabs", CallerOptions())
    assert caller.upgrade("wss://h/", None).headers == ()
    assert json.loads(caller.opened()[0])["dynamic_variables"] == {}  # type: ignore[arg-type]


def test_overrides_in_settings_win_and_nothing_else_is_changed() -> None:
    assert first()["conversation_config_override"] == {}
    overrides = {"agent": {"prompt": {"prompt": "Be brief."}, "language": "de"}}
    opening = first(model="gpt", settings={"overrides": overrides})
    prompt = {"prompt": "Be brief.", "llm": "gpt"}
    assert opening["conversation_config_override"] == {"agent": {"prompt": prompt, "language": "de"}}
    wins = first(model="gpt", settings={"overrides": {"agent": {"prompt": {"llm": "other"}}}})
    assert wins["conversation_config_override"] == {"agent": {"prompt": {"llm": "other"}}}


def test_a_frame_has_the_format_of_the_settings() -> None:
    tone = (8000 * np.sin(np.arange(160))).astype(np.int16)
    caller = make_caller("elevenlabs", CallerOptions(settings={"user_input_audio_format": "ulaw_8000"}))
    assert caller.capabilities.input_rate_hz == 8000
    frame = json.loads(caller.audio_message(tone))
    assert list(frame) == ["user_audio_chunk"]
    encoded = base64.b64decode(frame["user_audio_chunk"])
    assert list(encoded) == [ULAW.encode(int(sample)) for sample in tone]


# Settings.


def test_all_faults_are_reported_at_once() -> None:
    options = CallerOptions(
        turn_control="manual",
        transcription_model="scribe",
        silence_duration_ms=200,
        settings={
            "user_input_audio_format": "mp3_44100",
            "frame_ms": 25,
            "client_events": ["interruption", "tentativ"],
            "overrides": {"conversation": {"text_only": True}},
            "dynamic_variables": {"system__time": "now"},
            "initiation": {"dynamic_variables": {}},
            "color": "red",
        },
    )
    with pytest.raises(UsageError) as caught:
        make_caller("elevenlabs", options)
    lines = str(caught.value).splitlines()
    wanted = [
        "'transcription_model'",
        "'silence_duration_ms'",
        "'manual'",
        "'user_input_audio_format'",
        "'frame_ms'",
        "tentativ",
        "text_only",
        "system__time",
        "dynamic_variables",
        "'color'",
    ]
    assert len(lines) == len(wanted)
    for line, word in zip(lines, wanted, strict=True):
        assert line.startswith("elevenlabs: ")
        assert word in line


def test_an_agent_without_audio_cannot_be_called() -> None:
    with pytest.raises(UsageError, match="'audio' is missing"):
        make_caller("elevenlabs", CallerOptions(settings={"client_events": ["interruption"]}))


def test_the_trace_is_no_setting() -> None:
    with pytest.raises(UsageError, match="the callers set traceparent themselves"):
        make_caller("elevenlabs", CallerOptions(settings={"dynamic_variables": {"traceparent": "x"}}))


@pytest.mark.parametrize(
    "url",
    [
        "wss://api.elevenlabs.io/v1/convai/conversation?agent_id=a",
        "wss://api.us.elevenlabs.io/v1/convai/conversation",
        "wss://api.eu.residency.elevenlabs.io/anything",
        "ws://127.0.0.1:9000/v1/convai/conversation?agent_id=a&conversation_signature=c",
    ],
)
def test_the_address_names_the_protocol(url: str) -> None:
    assert guess(url) == "elevenlabs"


def test_observable_metrics_follow_from_agent_events() -> None:
    usual = make_caller("elevenlabs", CallerOptions()).capabilities
    assert usual.reply_end == "silence"
    assert {"endpointing", "asr_partial_latency", "llm_first_token_latency", "itl"} <= set(usual.not_observable)
    assert {"asr_final_latency", "voice_to_voice"}.isdisjoint(usual.not_observable)
    every = make_caller("elevenlabs", CallerOptions(settings=EVENTFUL)).capabilities
    assert (every.reply_end, set(every.not_observable)) == ("event", {"endpointing"})
