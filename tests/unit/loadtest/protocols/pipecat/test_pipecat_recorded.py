"""Recorded sessions of a real Pipecat 1.14 bot: three turns, the second of which the caller interrupts."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.registry import make_caller

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
    found = [kind.value for kind, _ in groupby(event.kind for event in session(name) if event.kind not in left_out)]
    cut = ["clear", "response_done"]
    # Over protobuf an interruption has a frame of its own, which comes before all messages about it.
    turned = [*cut, *QUESTION] if name == "pipecat" else [QUESTION[0], *cut, *QUESTION[1:]]
    answered = [*REPLY, "response_done"]
    assert found == ["ready", *QUESTION, *answered, *QUESTION, *REPLY, *turned, *answered, "error"]


@both
def test_replies_end_as_they_ended(name: str) -> None:
    done = of_kind(name, EventKind.RESPONSE_DONE)
    assert [event.status for event in done] == ["completed", "cancelled", "completed"]
    assert {event.carried for event in done} == {frozenset({"audio", "text"})}
    assert not any(event.owes_response for event in done)


@both
def test_what_is_sent_under_several_names_counts_once(name: str) -> None:
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
    (found,) = [event.metadata for event in of_kind(name, EventKind.SERVICE_REPORT) if event.metadata]
    assert found == {"traceparent": f"00-{1:032x}-{1:016x}-01", "route": "scripted"}
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
