"""Pipecat's wire: messages, metrics, bounds of a reply, and recorded sessions of a real Pipecat 1.14 bot."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.pipecat.caller import PipecatCaller, PipecatEvalCaller
from loadtest.protocols.pipecat.rtvi import RtviSession
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.scripts.pipecat import field

TRACE = f"00-{7:032x}-{9:016x}-01"
TURN = SpokenText("hello")


def read(message: object) -> dict[str, Any]:
    """An RTVI message in a Frame, its protobuf read by hand: the lengths here have one or two bytes."""
    assert isinstance(message, bytes)
    text = message[message.index(b"{") :]
    assert message == field(4, field(1, text))
    return json.loads(text)


def test_the_version_is_stated_first() -> None:
    (ready,) = map(read, PipecatCaller(CallerOptions()).opened())
    assert (ready["label"], ready["type"], ready["data"]["version"]) == ("rtvi-ai", "client-ready", "2.2.0")
    assert ready["data"]["about"] == {"library": "voiceprobe"}
    (other,) = map(read, PipecatCaller(CallerOptions(settings={"rtvi_version": "1.4.0"})).opened())
    assert other["data"]["version"] == "1.4.0"


def test_the_evaluation_wire_is_chosen_before_that() -> None:
    chosen, ready = (json.loads(message) for message in PipecatEvalCaller(CallerOptions()).opened())
    assert (chosen["type"], chosen["id"], chosen["data"]["t"]) == ("client-message", "eval-connect", "eval-connect")
    assert chosen["data"]["d"] == {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}
    assert ready["type"] == "client-ready"


def test_the_trace_goes_into_the_handshake_and_before_each_turn() -> None:
    caller = PipecatCaller(CallerOptions(token="secret", headers=(("x-a", "b"),)))
    request = caller.upgrade("ws://host/ws-client", TRACE)
    assert request.url == "ws://host/ws-client"
    assert request.headers == (("Authorization", "Bearer secret"), ("traceparent", TRACE), ("x-a", "b"))
    turns = [read(message) for _ in range(2) for message in caller.begin_turn(TURN)]
    assert [message["type"] for message in turns] == ["client-message"] * 2
    assert [message["data"] for message in turns] == [
        {"t": "trace", "d": {"traceparent": TRACE, "turn": turn}} for turn in (1, 2)
    ]


def test_without_a_trace_nothing_precedes_a_turn() -> None:
    caller = PipecatCaller(CallerOptions())
    assert caller.upgrade("ws://host/", None).headers == ()
    assert caller.begin_turn(TURN) == ()


def test_a_bot_that_does_not_know_what_a_trace_is_does_no_harm() -> None:
    caller = PipecatEvalCaller(CallerOptions())
    caller.upgrade("ws://host/", TRACE)
    (message,) = caller.begin_turn(TURN)
    assert isinstance(message, str)
    answer = {"label": "rtvi-ai", "type": "error-response", "id": json.loads(message)["id"], "data": {"error": "what?"}}
    assert [event.kind for event in caller.receive(json.dumps(answer))] == [EventKind.OTHER]


def test_an_unsuitable_version_is_an_error_and_not_the_end() -> None:
    caller = PipecatEvalCaller(CallerOptions())
    ready = json.loads(list(caller.opened())[1])
    refused = {"label": "rtvi-ai", "type": "error-response", "id": ready["id"], "data": {"error": "not compatible"}}
    (error,) = caller.receive(json.dumps(refused))
    assert error.failure is not None
    assert (error.kind, error.fatal, error.failure.code) == (EventKind.ERROR, False, "client_ready")
    answer = {"label": "rtvi-ai", "type": "bot-ready", "id": ready["id"], "data": {"version": "3.0.0"}}
    assert [event.kind for event in caller.receive(json.dumps(answer))] == [EventKind.READY, EventKind.ERROR]


def test_a_goodbye_ends_the_bots_pipeline() -> None:
    (message,) = PipecatCaller(CallerOptions()).goodbye()
    assert read(message)["type"] == "disconnect-bot"


@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_a_frame_of_audio(rate_hz: int) -> None:
    pcm = np.arange(rate_hz // 50, dtype=np.int16)
    options = CallerOptions(settings={"input_rate_hz": rate_hz})
    caller = PipecatCaller(options)
    assert caller.capabilities.input_rate_hz == rate_hz
    raw = pcm.astype("<i2").tobytes()
    assert caller.audio_message(pcm) == field(2, field(3, raw) + field(4, rate_hz) + field(5, 1))
    message = json.loads(PipecatEvalCaller(options).audio_message(pcm))
    assert message.pop("data") == {
        "sampleRate": rate_hz,
        "numChannels": 1,
        "base64Audio": base64.b64encode(raw).decode(),
    }
    assert message == {"label": "rtvi-ai", "type": "raw-audio", "id": "audio"}


def test_every_settings_fault_is_named_without_its_value() -> None:
    options = CallerOptions(
        turn_control="manual",
        transcription_model="v-secret",
        settings={"input_rate_hz": 44100, "rtvi_version": "two", "speed": "s-secret"},
    )
    with pytest.raises(UsageError) as caught:
        PipecatCaller(options)
    text = str(caught.value)
    for name in ("'transcription_model'", "'manual'", "'input_rate_hz'", "'rtvi_version'", "'speed'"):
        assert name in text
    assert len(text.splitlines()) == 5
    assert "secret" not in text
    with pytest.raises(UsageError, match="pipecat-eval: the wire cannot set 'model'"):
        PipecatEvalCaller(CallerOptions(model="m"))


def test_audio_that_names_no_channels_has_one() -> None:
    sound = b"\x10\x20" * 4
    *_, event = PipecatCaller(CallerOptions()).receive(field(2, field(3, sound) + field(4, 24_000)))
    assert (event.kind, event.audio) == (EventKind.AUDIO, sound)


def test_without_a_trace_nothing_is_sent_before_a_turn() -> None:
    assert PipecatCaller(CallerOptions()).begin_turn(TURN) == ()


def test_a_text_that_names_the_type_of_audio_is_a_text() -> None:
    text = {"label": "rtvi-ai", "type": "llm-raw-text", "data": {"text": "eval-bot-audio"}}
    *_, event = PipecatEvalCaller(CallerOptions()).receive(json.dumps(text))
    assert (event.kind, event.text) == (EventKind.LLM_TEXT, "eval-bot-audio")


def report(**data: Any) -> VoiceEvent:
    (event,) = RtviSession().receive(json.dumps({"label": "rtvi-ai", "type": "metrics", "data": data}))
    return event


def test_the_first_of_a_session_holds_nothing() -> None:
    first = [{"processor": name, "value": 0.0} for name in ("STT#0", "LLM#0", "TTS#0")]
    assert report(ttfb=first, processing=first).kind is EventKind.OTHER
    assert report().kind is EventKind.OTHER
    tokens = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert report(tokens=[tokens]).kind is EventKind.OTHER


def test_a_latency_carries_the_class_of_its_processor() -> None:
    event = report(
        ttfb=[
            {"processor": "LLM#12", "model": "m", "value": 0.25},
            {"processor": "LLM#13", "value": 0.5},
            {"processor": "LLM#1", "value": 0.1},
        ],
        ttfat=[{"processor": "LLM#12", "ttfat": 0.75, "ttfb": 0.25, "thinking_time": 0.5}],
        ttfa=[{"processor": "TTS#3", "ttfa": 0.3, "ttfb": 0.1, "leading_silence": 0.2}],
        processing=[{"processor": "TTS#3", "value": 1}],
    )
    assert event.service_ns == {
        "LLM.ttfb": 500_000_000,
        "LLM.ttfat": 750_000_000,
        "LLM.thinking_time": 500_000_000,
        "TTS.ttfa": 300_000_000,
        "TTS.leading_silence": 200_000_000,
        "TTS.processing": 1_000_000_000,
    }


def test_usage_is_added_up() -> None:
    event = report(
        tokens=[
            {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cache_read_input_tokens": 0},
            {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23, "reasoning_tokens": 1},
            {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        ],
        characters=[{"processor": "TTS#1", "value": 30}, {"processor": "TTS#1", "value": 12}],
        stt_usage=[{"processor": "STT#1", "value": {"audio_seconds": 1.5}}],
    )
    assert event.usage == {
        "input_tokens": 30,
        "output_tokens": 5,
        "total_tokens": 35,
        "cached_tokens": 0,
        "output_reasoning_tokens": 1,
        "tts_characters": 42,
        "stt_audio_ms": 1500,
    }


def test_invalid_latency_is_left_out() -> None:
    wrong = [-1, None, "1", True, 1e300]
    assert report(ttfb=[{"processor": "LLM", "value": value} for value in wrong]).kind is EventKind.OTHER
    assert (
        report(ttfb=[{"value": 1}, {"processor": 3, "value": 1}], tokens=[{"prompt_tokens": -1}]).kind
        is EventKind.OTHER
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["processor", "value", "ttfa", "leading_silence", "prompt_tokens", "audio_seconds"])
lists = st.sampled_from(["ttfb", "ttfa", "ttfat", "processing", "tokens", "characters", "stt_usage"])


@pytest.mark.slow
@given(st.dictionaries(lists, anything | st.lists(st.dictionaries(names, anything, max_size=4), max_size=3)))
def test_any_report_of_bot_gives_positive_values_and_no_error(data: dict[str, Any]) -> None:
    event = report(**data)
    assert all(value > 0 for value in event.service_ns.values())
    assert all(value >= 0 for value in event.usage.values())


FIXTURES = Path(__file__).parents[4] / "fixtures" / "pipecat"
both = pytest.mark.parametrize("name", ["pipecat", "pipecat-eval"])
FILES = {"pipecat": "bot-1.14.0.jsonl", "pipecat-eval": "eval-1.14.0.jsonl"}

QUESTION = ["speech_started", "asr_partial", "asr_final", "speech_stopped"]
REPLY = ["response_started", "llm_text", "audio", "speech_synthesis_started", "audio"]


def messages(name: str) -> list[str | bytes]:
    lines = [json.loads(line) for line in (FIXTURES / FILES[name]).read_text().splitlines()]
    assert lines[0]["recorded"]["version"] == "1.14.0"
    return [base64.b64decode(line["binary"]) if "binary" in line else line["text"] for line in lines[1:]]


@cache
def session(name: str) -> Sequence[VoiceEvent]:
    caller = make_caller(name, CallerOptions())
    return [event for message in messages(name) for event in caller.receive(message)]


def of_kind(name: str, kind: EventKind) -> list[VoiceEvent]:
    return [event for event in session(name) if event.kind is kind]


@both
def test_the_stages_come_in_the_order_in_which_they_were_sent(name: str) -> None:
    left_out = (EventKind.OTHER, EventKind.SERVICE_REPORT)
    stages = [kind.value for kind, _ in groupby(event.kind for event in session(name) if event.kind not in left_out)]
    cut = ["clear", "response_done"]
    # Over protobuf an interruption has a frame of its own, which comes before all messages about it.
    turned = [*cut, *QUESTION] if name == "pipecat" else [QUESTION[0], *cut, *QUESTION[1:]]
    answered = [*REPLY, "response_done"]
    assert stages == ["ready", *QUESTION, *answered, *QUESTION, *REPLY, *turned, *answered, "error"]


@both
def test_replies_end_as_they_ended(name: str) -> None:
    done = of_kind(name, EventKind.RESPONSE_DONE)
    assert [event.status for event in done] == ["completed", "cancelled", "completed"]
    assert {event.carried for event in done} == {frozenset({"audio", "text"})}
    assert not any(event.owes_response for event in done)


@both
def test_message_sent_under_several_names_counts_once(name: str) -> None:
    assert [event.text for event in of_kind(name, EventKind.ASR_FINAL)] == ["what the caller said"] * 3
    assert [event.text for event in of_kind(name, EventKind.ASR_PARTIAL)] == ["what"] * 3
    assert [event.text for event in of_kind(name, EventKind.LLM_TEXT)] == [
        "word ",
        "word ",
        "word ",
        "word ",
        "word ",
        "word.",
    ] * 3


@both
def test_the_bots_own_latencies_and_usage(name: str) -> None:
    reports = of_kind(name, EventKind.SERVICE_REPORT)
    names = {latency for event in reports for latency in event.service_ns}
    assert names == {
        "ScriptedSTT.ttfb",
        "ScriptedLLM.ttfb",
        "ScriptedLLM.processing",
        "ToneTTS.ttfb",
        "ToneTTS.ttfa",
        "ToneTTS.leading_silence",
        "ToneTTS.processing",
    }
    assert all(value > 0 for event in reports for value in event.service_ns.values())
    tokens = [event.usage["cached_tokens"] for event in reports if "cached_tokens" in event.usage]
    assert tokens == [0, 32, 0]
    # The script of the bot: the first token after 80 ms, 0.1 s of silence before the tone, 30 characters.
    first_tokens = [event.service_ns["ScriptedLLM.ttfb"] for event in reports if "ScriptedLLM.ttfb" in event.service_ns]
    assert all(79e6 <= value < 1e9 for value in first_tokens)
    assert {event.usage["tts_characters"] for event in reports if "tts_characters" in event.usage} == {30}


@both
def test_the_trace_came_back_and_a_refused_message_is_no_end(name: str) -> None:
    (metadata,) = [event.metadata for event in of_kind(name, EventKind.SERVICE_REPORT) if event.metadata]
    assert metadata == {"traceparent": f"00-{1:032x}-{1:016x}-01", "route": "scripted"}
    (error,) = of_kind(name, EventKind.ERROR)
    assert (error.message, error.fatal) == ("Unsupported type no-such-type", False)


@both
def test_the_audio_is_that_of_the_bot(name: str) -> None:
    pieces = of_kind(name, EventKind.AUDIO)
    assert {event.rate_hz for event in pieces} == {24_000}
    # 40 ms each, of which the first of each reply begin with silence.
    assert {len(event.audio or b"") for event in pieces} == {1920}
    assert not any(pieces[0].audio or b"")


@both
def test_nothing_is_unknown(name: str) -> None:
    assert of_kind(name, EventKind.UNKNOWN) == []


SOUND = b"\x10\x20" * 480
SILENCE = bytes(960)
STARTED, DONE = EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE


class Bot:
    """A session that is fed the types of messages, or audio."""

    def __init__(self) -> None:
        self.session = RtviSession()
        self.events: list[VoiceEvent] = []

    def does(self, *what: str | bytes, **data: Any) -> list[VoiceEvent]:
        """The events, without those that no caller needs."""
        before = len(self.events)
        for one in what:
            if isinstance(one, bytes):
                self.events += self.session.audio("audio", one, 24_000, 1)
            else:
                self.events += self.session.receive(json.dumps({"label": "rtvi-ai", "type": one, "data": data}))
        return [event for event in self.events[before:] if event.kind is not EventKind.OTHER]

    def kinds(self, *what: str | bytes, **data: Any) -> list[EventKind]:
        return [event.kind for event in self.does(*what, **data)]

    def speaks(self) -> None:
        """Begin a whole reply."""
        self.does("bot-llm-started", "bot-tts-started", SOUND, "bot-started-speaking")


def test_a_pause_between_two_sentences_ends_no_reply() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-stopped-speaking") == []
    assert bot.kinds("bot-llm-stopped", SOUND, "bot-started-speaking") == [EventKind.AUDIO]
    assert bot.kinds("bot-tts-stopped") == []
    assert bot.kinds("bot-stopped-speaking") == [DONE]


def test_reply_ends_when_last_part_stopped_after_speaking() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-llm-stopped", "bot-stopped-speaking") == []
    assert bot.kinds("bot-tts-stopped") == [DONE]


def test_nothing_has_ended_before_the_bot_has_spoken() -> None:
    bot = Bot()
    assert bot.kinds("bot-llm-started", "bot-llm-stopped", "bot-tts-started", "bot-tts-stopped") == [STARTED]
    assert bot.kinds(SOUND, "bot-started-speaking") == [EventKind.AUDIO, EventKind.SPEECH_SYNTHESIS_STARTED]
    assert bot.kinds("bot-stopped-speaking") == [DONE]


def test_a_greeting_needs_no_language_model() -> None:
    bot = Bot()
    assert bot.kinds("bot-tts-started") == [STARTED]
    assert bot.kinds(SOUND, "bot-started-speaking", "bot-tts-stopped")[:1] == [EventKind.AUDIO]
    (done,) = bot.does("bot-stopped-speaking")
    assert (done.status, done.carried) == ("completed", frozenset({"audio"}))


def test_audible_audio_begins_reply_and_idle_silence_does_not() -> None:
    bot = Bot()
    assert bot.kinds(SILENCE, SILENCE) == []
    assert bot.kinds(SOUND, SILENCE) == [STARTED, EventKind.AUDIO, EventKind.AUDIO]
    assert bot.kinds("bot-started-speaking", "bot-stopped-speaking")[-1] is DONE
    assert bot.kinds(SILENCE) == []


def test_an_interruption_clears_what_was_heard() -> None:
    bot = Bot()
    bot.speaks()
    cleared, done = bot.does("bot-interrupted")
    assert cleared.kind is EventKind.CLEAR
    assert (done.kind, done.status, done.message) == (DONE, "cancelled", "interrupted")
    assert bot.kinds("bot-interrupted", "bot-stopped-speaking", "bot-llm-stopped", "bot-tts-stopped") == []


def test_an_interruption_of_a_silent_bot_clears_nothing() -> None:
    bot = Bot()
    assert bot.kinds("bot-interrupted") == []
    bot.does("bot-llm-started")
    (done,) = bot.does("bot-interrupted")
    assert (done.kind, done.status) == (DONE, "cancelled")


def test_audio_under_way_at_interruption_is_no_reply() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-interrupted")
    assert bot.kinds(SOUND) == []
    assert bot.kinds("bot-llm-text", text="late") == []
    assert bot.kinds("user-stopped-speaking", SOUND)[1:] == [STARTED, EventKind.AUDIO]


def test_stop_of_interrupted_reply_does_not_end_the_next() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-interrupted", "bot-stopped-speaking", "user-stopped-speaking", "bot-llm-started")
    assert bot.kinds("bot-llm-stopped") == []
    assert bot.kinds("bot-tts-started", SOUND, "bot-started-speaking")[0] is EventKind.AUDIO


def test_a_tool_call_without_speech_is_part_of_the_reply() -> None:
    bot = Bot()
    event_kinds = bot.kinds(
        "bot-llm-started", "llm-function-call-started", "bot-llm-stopped", "llm-function-call-stopped"
    )
    assert event_kinds == [STARTED]
    bot.speaks()
    (done,) = bot.does("bot-llm-stopped", "bot-tts-stopped", "bot-stopped-speaking")
    assert done.carried == {"audio", "tool_call"}
    assert not done.owes_response


def test_a_reply_that_called_a_tool_owes_another() -> None:
    bot = Bot()
    bot.speaks()
    (done,) = bot.does(
        "llm-function-call-started",
        "llm-function-call-in-progress",
        "bot-llm-stopped",
        "bot-tts-stopped",
        "bot-stopped-speaking",
    )
    assert done.owes_response
    assert bot.kinds("llm-function-call-stopped", "bot-llm-started") == [STARTED]


def test_an_older_bot_knows_only_the_names_of_its_time() -> None:
    bot = Bot()
    fields = {"text": "hello", "user_id": "u", "timestamp": "t", "final": True}
    assert bot.kinds("user-transcription", **fields) == [EventKind.ASR_FINAL]
    bot.does("bot-llm-started")
    assert [event.text for event in bot.does("bot-llm-text", "bot-llm-text", text="a")] == ["a", "a"]


def test_first_of_equivalent_message_names_counts() -> None:
    bot = Bot()
    fields = {"text": "hello", "input_type": "transcription", "final": True}
    assert bot.kinds("stt-raw-text", "user-input", "user-transcription", "stt-raw-text", **fields) == [
        EventKind.ASR_FINAL,
        EventKind.ASR_FINAL,
    ]


@pytest.mark.parametrize("input_type", ["chat", "backchannel"])
def test_typed_or_hummed_input_is_no_transcript(input_type: str) -> None:
    bot = Bot()
    fields = {"text": "mhm", "input_type": input_type, "final": True}
    assert bot.kinds("user-input", **fields) == []
    assert bot.kinds("user-transcription", **fields) == [EventKind.ASR_FINAL], "nor does it choose the name"


def test_partials_are_incremental_and_restart_after_a_final() -> None:
    bot = Bot()
    texts = [("tur", False), ("turn", False), ("turn", False), ("turn on", True), ("turn", False)]
    answers = [bot.does("user-input", text=text, input_type="transcription", final=final) for text, final in texts]
    assert [[event.text for event in events] for events in answers] == [["tur"], ["n"], [], ["turn on"], ["turn"]]


def test_the_first_of_several_channels_is_heard() -> None:
    session = RtviSession()
    left, right = b"\x01\x02", b"\xff\x7f"
    *_, event = session.audio("audio", (left + right) * 3, 48_000, 2)
    assert (event.audio, event.rate_hz) == (left * 3, 48_000)


def test_a_reply_goes_on_while_the_language_model_is_at_work() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-tts-stopped", "bot-stopped-speaking") == []
    assert bot.kinds("bot-llm-stopped") == [DONE]


def test_late_text_of_a_closed_reply_begins_no_other() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-llm-stopped", "bot-tts-stopped", "bot-stopped-speaking")
    assert bot.kinds("bot-llm-text", text="late") == []


def test_text_begins_reply_where_model_start_is_not_announced() -> None:
    assert Bot().kinds("llm-raw-text", text="hello") == [STARTED, EventKind.LLM_TEXT]


def test_an_interrupted_tool_call_owes_nothing() -> None:
    bot = Bot()
    bot.speaks()
    *_, done = bot.does("llm-function-call-started", "bot-interrupted")
    assert (done.status, done.owes_response) == ("cancelled", False)


def test_a_bot_is_ready_once() -> None:
    bot = Bot()
    assert bot.kinds("bot-ready", "bot-ready", version="2.2.0") == [EventKind.READY]


def test_own_message_of_bot_is_unknown_to_rtvi() -> None:
    events = RtviSession().receive(json.dumps({"type": "user-started-speaking"}))
    assert [event.kind for event in events] == [EventKind.UNKNOWN]
