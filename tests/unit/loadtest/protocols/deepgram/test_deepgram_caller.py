"""Deepgram's Voice Agent: the official package's own messages, both ways, and what a caller makes of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.deepgram.caller import DeepgramCaller

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PACKAGE = json.loads((Path(__file__).parents[4] / "fixtures" / "deepgram" / "sdk-7.17.0.json").read_text())
SERVER: dict[str, dict[str, Any]] = PACKAGE["server"]
AGENT_ID = "0198b1c6-4b0e-7a6b-9d3c-2f3f0d1c5a11"
MS = 1_000_000
KIND = EventKind


def get(caller: DeepgramCaller, *what: str | bytes) -> list[VoiceEvent]:
    """The events of messages that the package made, by name, or of audio; without what no caller needs."""
    events: list[VoiceEvent] = []
    for one in what:
        events += caller.receive(one if isinstance(one, bytes) else json.dumps(SERVER[one]))
    return [event for event in events if event.kind is not EventKind.OTHER]


def sent(caller: DeepgramCaller) -> list[dict[str, Any]]:
    return [json.loads(message) for message in caller.pending()]


def ready(**settings: Any) -> DeepgramCaller:
    caller = DeepgramCaller(CallerOptions(settings=settings))
    caller.upgrade("wss://agent.deepgram.com", TRACE)
    (event,) = get(caller, "welcome", "settings-applied")
    assert event.kind is KIND.READY
    caller.pending()
    return caller


def test_every_type_of_the_package_is_recorded() -> None:
    assert [*PACKAGE["made"], "bytes"] == PACKAGE["types"]


@pytest.mark.parametrize("name", SERVER)
def test_no_message_of_the_package_is_unknown_or_malformed(name: str) -> None:
    caller = ready(tools={"light": "on", "door": "shut"})
    *_, event = caller.receive(json.dumps(SERVER[name]))
    assert event.kind is not KIND.UNKNOWN
    assert event.failure is None or event.failure.kind != "protocol_violation"
    assert event.raw_type == SERVER[name]["type"]


EVERYTHING = CallerOptions(
    transcription_model="nova-3",
    settings={
        "agent": {
            "think": {"provider": {"type": "open_ai", "model": "gpt-4.1-mini"}, "prompt": "Be brief."},
            "speak": {"provider": {"type": "deepgram", "model": "aura-2-apollo-en"}},
        },
        "input_rate_hz": 48000,
        "output_rate_hz": 16000,
        "tags": ["nightly"],
        "history": False,
        "experimental": True,
        "mip_opt_out": True,
    },
)
CONFIGURED = CallerOptions(settings={"agent": AGENT_ID, "input_rate_hz": 24000, "output_rate_hz": 48000})


@pytest.mark.parametrize(
    ("name", "options", "trace"),
    [
        ("usual", CallerOptions(), None),
        ("everything", EVERYTHING, TRACE),
        (
            "manual-g711",
            CallerOptions("manual", settings=dict.fromkeys(("input_encoding", "output_encoding"), "mulaw")),
            None,
        ),
        ("agent-id", CONFIGURED, None),
    ],
)
def test_settings_are_the_packages_own_and_follow_the_welcome(
    name: str, options: CallerOptions, trace: str | None
) -> None:
    caller = DeepgramCaller(options)
    caller.upgrade("wss://agent.deepgram.com", trace)
    assert (caller.opened(), caller.pending()) == ((), ()), "the service welcomes before anything may be sent"
    assert get(caller, "welcome") == []
    assert sent(caller) == [PACKAGE["client"][name]]
    assert get(caller, "welcome") == []
    assert sent(caller) == [], "a second message Settings is an error of the wire"
    (event,) = get(caller, "settings-applied")
    assert (event.kind, event.metadata) == (KIND.READY, {"session.id": SERVER["welcome"]["request_id"]})


def test_key_and_trace_are_in_headers_and_path_is_completed() -> None:
    caller = DeepgramCaller(CallerOptions(token="key", headers=(("X-Shift", "late"),)))
    request = caller.upgrade("wss://agent.deepgram.com", TRACE)
    assert request.url == "wss://agent.deepgram.com/v1/agent/converse"
    assert request.headers == (("Authorization", "Token key"), ("traceparent", TRACE), ("X-Shift", "late"))
    assert caller.upgrade("ws://h:1/own?x=1", None).url == "ws://h:1/own?x=1"
    temporary = DeepgramCaller(CallerOptions(token="jwt", settings={"auth": "bearer"}))
    assert temporary.upgrade("ws://h", None).headers == (("Authorization", "Bearer jwt"),)


@pytest.mark.parametrize(
    ("options", "rate_hz", "audio"),
    [
        (CallerOptions(), 16_000, b"\x01\x00\xfe\xff"),
        (CallerOptions(settings={"input_rate_hz": 24000}), 24_000, b"\x01\x00\xfe\xff"),
        (CallerOptions(settings={"input_rate_hz": 48000}), 48_000, b"\x01\x00\xfe\xff"),
        (CallerOptions(settings={"input_encoding": "mulaw"}), 8_000, b"\xff\x7f"),  # ITU-T G.711
    ],
)
def test_a_frame_is_nothing_but_audio(options: CallerOptions, rate_hz: int, audio: bytes) -> None:
    caller = DeepgramCaller(options)
    assert caller.capabilities.input_rate_hz == rate_hz
    assert not caller.capabilities.audio_is_text
    assert caller.audio_message(np.array([1, -2], np.int16)) == audio


def test_a_reply_in_g711_is_decoded() -> None:
    _, event = get(DeepgramCaller(CallerOptions(settings={"output_encoding": "mulaw"})), b"\xff\x00")
    assert (event.kind, event.rate_hz) == (KIND.AUDIO, 8_000)
    assert np.frombuffer(event.audio or b"", "<i2").tolist() == [0, -32124]


def test_the_end_of_a_turn_is_sent_only_where_it_is_the_callers() -> None:
    assert DeepgramCaller(CallerOptions()).end_turn() == ()
    (message,) = DeepgramCaller(CallerOptions("manual")).end_turn()
    assert json.loads(str(message)) == PACKAGE["client"]["force-end-turn"]


def test_a_turn_in_the_packages_messages() -> None:
    caller = ready()
    events = get(caller, "user-started-speaking", "user-text", "history-text", "agent-thinking", "agent-text")
    assert [event.kind for event in events] == [
        KIND.SPEECH_STARTED,
        KIND.ASR_FINAL,
        KIND.RESPONSE_STARTED,
        KIND.REASONING_TEXT,
        KIND.SPOKEN_TEXT,
    ]
    texts = [event.text for event in events if event.text]
    assert texts == ["Turn the light on – bitte.", "The light is meant.", "It is on."]
    events = get(caller, "agent-started-speaking", b"\1\0\2\0", b"\3\0", "agent-audio-done")
    assert [event.kind for event in events] == [
        KIND.SPEECH_SYNTHESIS_STARTED,
        KIND.AUDIO,
        KIND.AUDIO,
        KIND.AUDIO_DONE,
        KIND.RESPONSE_DONE,
    ]
    assert b"".join(event.audio or b"" for event in events) == b"\1\0\2\0\3\0"
    assert (events[-1].status, events[-1].carried, events[-1].owes_response) == ("completed", {"audio", "text"}, False)
    assert {event.response_id for event in events} == {None}, "the wire names no replies"


def test_latencies_of_service_are_kept_under_its_own_names() -> None:
    caller = ready()
    _, started = get(caller, "agent-started-speaking")
    assert started.service_ns == {
        "AgentStartedSpeaking.total_latency": 1250 * MS,
        "AgentStartedSpeaking.tts_latency": 500 * MS,
        "AgentStartedSpeaking.ttt_latency": 750 * MS,
    }
    (report,) = get(caller, "latency-report")
    assert report.kind is KIND.SERVICE_REPORT
    assert report.service_ns == {
        "LatencyReport.stt_latency": 20_000_458,
        "LatencyReport.ttt_token_latency": 340 * MS,
        "LatencyReport.ttt_text_latency": 360 * MS,
        "LatencyReport.ttt_tool_latency": 410 * MS,
        "LatencyReport.ttt_thinking_latency": 290 * MS,
        "LatencyReport.tts_latency": 68_118_692,
        "LatencyReport.total_latency": 2000 * MS,
    }
    (report,) = get(caller, "latency-report-of-one")
    assert report.service_ns == {"LatencyReport.stt_latency": 0}


def test_client_functions_are_answered_with_canned_results() -> None:
    caller = ready(tools={"light": "on"})
    events = get(caller, "function-call-request")
    assert [event.kind for event in events] == [KIND.RESPONSE_STARTED, KIND.ERROR]
    assert events[1].failure is not None
    assert (events[1].failure.code, events[1].fatal) == ("unknown_tool", False)
    assert "'door'" in (events[1].message or "")
    assert sent(caller) == [PACKAGE["client"]["function-call-response"]]
    any_tool = ready(tools={"*": {"state": "done"}})
    get(any_tool, "function-call-request")
    done = '{"state":"done"}'
    assert [(answer["id"], answer["content"]) for answer in sent(any_tool)] == [("call_1", done), ("call_2", done)]


def test_an_error_ends_the_session_and_a_warning_does_not() -> None:
    caller = ready()
    (warning,) = get(caller, "warning")
    assert (warning.fatal, warning.message) == (False, "We have now waited 5 seconds. (SLOW_THINK_REQUEST)")
    (refused,) = get(caller, "injection-refused")
    assert (refused.fatal, refused.message) == (False, "The agent is speaking.")
    (error,) = get(caller, "error")
    assert (error.fatal, error.message) == (True, "The agent could not speak. (FAILED_TO_SPEAK)")
    assert error.failure is not None
    assert (error.failure.kind, error.failure.code) == ("endpoint_error", "FAILED_TO_SPEAK")
    (refusal,) = get(DeepgramCaller(CallerOptions()), "error")
    assert (refusal.message or "").startswith("the session was refused: ")


@pytest.mark.parametrize("message", [b"{}", b'{"type":3}', b"{\0\1\2"])
def test_audio_may_begin_like_an_object(message: bytes) -> None:
    assert [event.kind for event in ready().receive(message)] == [KIND.RESPONSE_STARTED, KIND.AUDIO]


def test_a_message_of_the_service_may_come_in_a_binary_frame() -> None:
    (event,) = ready().receive(json.dumps(SERVER["user-text"]).encode())
    assert event.kind is KIND.ASR_FINAL


def faults(options: CallerOptions) -> list[str]:
    with pytest.raises(UsageError) as caught:
        DeepgramCaller(options)
    return str(caught.value).splitlines()


def test_all_faults_of_the_settings_are_named_at_once() -> None:
    agent = {"listen": [], "think": [3], "speak": "x"}
    wrong = {"agent": agent, "input_rate_hz": 44100, "tag": 1}
    lines = faults(CallerOptions(silence_duration_ms=300, settings=wrong))
    assert len(lines) == 4, lines
    for line, what in zip(lines, ("silence", "'agent", "'input_rate_hz'", "'tag'"), strict=True):
        assert line.startswith("deepgram-agent: ")
        assert what in line
    assert all(f"{part} must be" in lines[1] for part in ("listen", "think", "speak"))


def test_options_that_contradict_the_settings_are_named_at_once() -> None:
    nova = {"provider": {"type": "deepgram", "version": "v1", "model": "nova-3"}}
    lines = faults(
        CallerOptions(
            "manual",
            model="m",
            transcription_model="flux-general-en",
            settings={"input_encoding": "mulaw", "input_rate_hz": 16000, "agent": {"listen": nova, "think": {}}},
        )
    )
    assert len(lines) == 4, lines
    for line, what in zip(lines, ("mulaw", "'transcription_model'", "'model'", "Flux"), strict=True):
        assert what in line


def test_agent_configured_at_deepgram_takes_no_options() -> None:
    assert len(faults(CallerOptions(model="m", transcription_model="t", settings={"agent": "a"}))) == 2
    both = DeepgramCaller(CallerOptions("manual", settings={"agent": "a"})).capabilities.turn_controls
    assert both == {"server", "manual"}
    assert faults(CallerOptions(settings={"agent": ""}))


def test_agent_settings_are_sent_unchanged() -> None:
    provider = {"type": "deepgram", "version": "v2", "model": "flux-general-multi"}
    agent = {
        "greeting": "Hello.",
        "listen": {"provider": provider},
        "think": [{"provider": {"type": "anthropic", "model": "claude"}}, {"provider": {"type": "open_ai"}}],
    }
    caller = DeepgramCaller(CallerOptions("manual", settings={"agent": agent}))
    get(caller, "welcome")
    (message,) = sent(caller)
    listen = {"provider": {"eot_threshold": 1.0, **provider}}
    speak = {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}}
    assert message["agent"] == {**agent, "listen": listen, "speak": speak}
    assert "eot_threshold" not in json.dumps(agent), "the scenario's own settings stay as they are"
