"""Responses of stage services: bodies, server-sent events, and the headers of gateways about who answered."""

import base64
import io
import json
import re
import struct
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
)
from openai.types.chat import ChatCompletionChunk
from openai.types.completion_usage import CompletionTokensDetails, CompletionUsage, PromptTokensDetails
from pydantic import BaseModel

from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead, HttpItem
from loadtest.protocols.stages import reader
from loadtest.protocols.stages.parts import (
    Broken,
    Finished,
    Malformed,
    Part,
    Partial,
    Pcm,
    Served,
    Transcript,
    Unknown,
    Words,
)
from loadtest.protocols.stages.reader import ResponseReader, SseEvent, SseParser, SseTooLongError, served_by
from loadtest.protocols.stages.services import AnswerReader, SpeechReader, TranscriptionReader

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[4] / "fixtures" / "stages" / "litellm-1.106.2.json").read_text()
)
STREAM = "text/event-stream; charset=utf-8"


def response(body: bytes, kind: str = STREAM, status: int = 200, cuts: tuple[int, ...] = ()) -> list[HttpItem]:
    places = sorted({cut % (len(body) + 1) for cut in cuts})
    pieces = [body[begin:end] for begin, end in zip([0, *places], [*places, len(body)], strict=True)]
    head = HttpHead("r", status, (("content-type", kind),))
    return [head, *(HttpData("r", piece) for piece in pieces), HttpEnd("r")]


def read(reader: ResponseReader, items: list[HttpItem]) -> list[Part]:
    return [part for item in items for part in reader.receive(item) if not isinstance(part, Served)]


def events(*models: BaseModel | dict[str, Any] | str) -> bytes:
    texts = [
        model if isinstance(model, str) else json.dumps(model) if isinstance(model, dict) else model.model_dump_json()
        for model in models
    ]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def chunk(content: str | None = None, why: str | None = None, **delta: Any) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {"content": content, **delta}, "finish_reason": why}
    fields = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk", "choices": [choice]}
    return ChatCompletionChunk.model_validate(fields)


def last_chunk(usage: CompletionUsage) -> ChatCompletionChunk:
    fields = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk", "choices": []}
    return ChatCompletionChunk.model_validate({**fields, "usage": usage})


USAGE = CompletionUsage(
    prompt_tokens=100,
    completion_tokens=30,
    total_tokens=130,
    prompt_tokens_details=PromptTokensDetails(cached_tokens=64),
    completion_tokens_details=CompletionTokensDetails(reasoning_tokens=10),
)


# The language model.


@pytest.mark.parametrize("name", ["answer", "cached", "fallback"])
def test_an_answer_that_litellm_streamed(name: str) -> None:
    recorded = RECORDED[name]
    head = HttpHead("r", recorded["status"], tuple((key, value) for key, value in recorded["headers"]))
    parts = read(AnswerReader(), [head, HttpData("r", recorded["body"].encode()), HttpEnd("r")])
    text = "".join(part.text for part in parts if isinstance(part, Words))
    assert text == "It is mild in Paris. Take a light coat with you."
    (finished,) = [part for part in parts if isinstance(part, Finished)]
    assert finished.why == "stop"
    assert finished.usage["output_text_tokens"] == 13
    assert not [part for part in parts if not isinstance(part, Words | Finished)]


def test_reasoning_is_separate_and_usage_counts_cached_tokens() -> None:
    body = events(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm"),
        chunk("It "),
        chunk("is on."),
        chunk(why="stop"),
        last_chunk(USAGE),
        "[DONE]",
    )
    parts = read(AnswerReader(), response(body))
    assert parts[:3] == [Words("hm", reasoning=True), Words("It "), Words("is on.")]
    counts = {
        "input_tokens": 100,
        "output_tokens": 30,
        "total_tokens": 130,
        "cached_tokens": 64,
        "reasoning_tokens": 10,
        "output_text_tokens": 20,
    }
    assert parts[3:] == [Finished("stop", counts)]


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_any_split_of_the_body_gives_the_same_parts(cuts: list[int]) -> None:
    body = events(chunk("Grüße, "), chunk("東京 😀"), chunk(why="stop"), last_chunk(USAGE), "[DONE]")
    assert read(AnswerReader(), response(body, cuts=tuple(cuts))) == read(AnswerReader(), response(body))


def test_stream_without_done_is_complete_only_with_a_reason() -> None:
    assert read(AnswerReader(), response(events(chunk("a"), chunk(why="length"))))[-1] == Finished("length")
    (words, broken) = read(AnswerReader(), response(events(chunk("a"))))
    assert words == Words("a")
    assert isinstance(broken, Broken)
    assert broken.failure == Failure("protocol_violation", "cut_short")


def test_a_model_that_declines_to_answer_says_so() -> None:
    body = events(chunk(refusal="I can't help with that."), chunk(why="stop"), "[DONE]")
    assert read(AnswerReader(), response(body))[-1] == Finished("refusal")


def test_an_error_inside_a_stream_that_began_well() -> None:
    error = {"error": {"message": "overloaded", "type": "server_error", "code": "overloaded", "retry_after": 2}}
    broken = read(AnswerReader(), response(events(chunk("a"), error, chunk("b"))))[1:]
    assert broken == [
        Broken(
            "the llm service reported an error: overloaded",
            Failure("endpoint_error", "overloaded", 2_000_000_000),
        )
    ]


def test_an_answer_that_came_whole_and_a_tool_call() -> None:
    call = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = events(chunk(tool_calls=[call]), chunk(why="tool_calls"), "[DONE]")
    assert read(AnswerReader(), response(body)) == [Finished("tool_calls", {}, tool_call=True)]
    message = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}
    whole = read(AnswerReader(), response(json.dumps(message).encode(), "application/json"))
    assert whole == [Words("Yes."), Finished("stop")]


@pytest.mark.parametrize("name", ["limited", "unknown"])
def test_a_refusal_of_litellm_is_a_failure_with_its_words(name: str) -> None:
    recorded = RECORDED[name]
    head = HttpHead("r", recorded["status"], tuple((key, value) for key, value in recorded["headers"]))
    (broken,) = read(AnswerReader(), [head, HttpData("r", recorded["body"].encode()), HttpEnd("r")])
    assert isinstance(broken, Broken)
    assert broken.failure.kind == "http_status"
    assert broken.failure.code == str(recorded["status"])
    assert json.loads(recorded["body"])["error"]["message"][:40] in broken.message
    assert not broken.fatal


def test_refusal_may_state_retry_time_or_be_permanent() -> None:
    head = HttpHead("r", 503, (("retry-after", "7"),))
    (later,) = read(AnswerReader(), [head, HttpEnd("r")])
    assert isinstance(later, Broken)
    assert later.failure == Failure("http_status", "503", 7_000_000_000)
    (never,) = read(AnswerReader(), response(b"no", "text/plain", status=401))
    assert isinstance(never, Broken)
    assert never.fatal
    dated = HttpHead("r", 503, (("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),))
    (unknown,) = read(AnswerReader(), [dated, HttpEnd("r")])
    assert isinstance(unknown, Broken)
    assert unknown.failure.retry_after_ns is None, "a date without the service's clock says nothing"


# Recognition.


def test_a_transcript_in_pieces_whole_and_as_text() -> None:
    done = TranscriptionTextDoneEvent.model_validate(
        {
            "type": "transcript.text.done",
            "text": "turn it on",
            "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18},
        }
    )
    deltas = [TranscriptionTextDeltaEvent(type="transcript.text.delta", delta=text) for text in ("turn ", "it on")]
    usage = {"input_tokens": 14, "output_tokens": 4, "total_tokens": 18}
    parts = read(TranscriptionReader(), response(events(*deltas, done)))
    assert parts == [Partial("turn "), Partial("it on"), Transcript("turn it on", usage)]
    whole = Transcription(text="turn it on").model_dump_json().encode()
    assert read(TranscriptionReader(), response(whole, "application/json")) == [Transcript("turn it on")]
    assert read(TranscriptionReader(), response(b"turn it on\n", "text/plain")) == [Transcript("turn it on")]


def test_a_transcript_that_is_cut_short_or_of_an_unknown_kind() -> None:
    delta = TranscriptionTextDeltaEvent(type="transcript.text.delta", delta="turn ")
    parts = read(TranscriptionReader(), response(events(delta, {"type": "vendor.mood"}, "{", "[]")))
    assert parts[:2] == [Partial("turn "), Unknown("vendor.mood")]
    assert [type(part) for part in parts[2:]] == [Malformed, Malformed, Broken]


# Speech.

TONE = bytes(range(256)) * 20


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_raw_speech_in_any_pieces_is_whole_samples(cuts: list[int]) -> None:
    parts = read(SpeechReader(24_000), response(TONE, "audio/pcm", cuts=tuple(cuts)))
    pcm = [part for part in parts if isinstance(part, Pcm)]
    assert b"".join(part.data for part in pcm) == TONE
    assert all(len(part.data) % 2 == 0 and part.rate_hz == 24_000 for part in pcm)
    assert parts[-1] == Finished()


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_speech_as_wav_has_the_rate_of_its_header(cuts: list[int]) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(22_050)
        written.writeframes(TONE)
    parts = read(SpeechReader(24_000), response(file.getvalue(), "audio/wav", cuts=tuple(cuts)))
    pcm = [part for part in parts if isinstance(part, Pcm)]
    assert b"".join(part.data for part in pcm) == TONE
    assert {part.rate_hz for part in pcm} == {22_050}


def wav(pcm: bytes, size: int | None = None, riff: bytes = b"RIFF", before: bytes = b"") -> bytes:
    """A WAV file of 22,050 Hz whose header states `size`, with chunks before the samples."""
    stated = len(pcm) if size is None else size
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 22_050, 44_100, 2, 16)
    whole = 4 + len(before) + len(form) + 8 + len(pcm) if size is None else stated
    return (
        riff
        + struct.pack("<I", min(whole, 2**32 - 1))
        + b"WAVE"
        + before
        + form
        + b"data"
        + struct.pack("<I", stated)
        + pcm
    )


def riff_chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content


# 1.7 s at 24 kHz, as a signed file has it, and what writers of WAV files add behind the samples.
SIGNED = riff_chunk(b"C2PA", b"\0\1\0\0jumb" + bytes(range(32, 132)) * 800)
LIST = riff_chunk(b"LIST", b"INFOISFT" + struct.pack("<I", 14) + b"Lavf61.7.100\0\0")
DS64 = riff_chunk(b"ds64", struct.pack("<QQQI", len(TONE) + 100, len(TONE), len(TONE) // 2, 0))


@pytest.mark.parametrize("piece", [1, 3, 1_000, 100_000])
@pytest.mark.parametrize(
    ("body", "samples"),
    [
        (wav(TONE) + SIGNED, TONE),
        (wav(TONE) + LIST + SIGNED, TONE),
        (wav(TONE, 0xFFFFFFFF) + SIGNED, TONE),
        (wav(TONE, 0) + LIST, TONE),
        (wav(TONE, 2_000_000_000), TONE),
        (wav(TONE, before=SIGNED + LIST), TONE),
        (wav(TONE, 0xFFFFFFFF, b"RF64", DS64) + SIGNED, TONE),
        (wav(TONE[:400]) + TONE[400:], TONE),  # the header covers the first piece
        (wav(TONE[:400]) + wav(TONE[400:]), TONE),  # each piece is a file
        (wav(TONE[:400], 0xFFFFFFFF) + wav(TONE[400:], 0xFFFFFFFF), TONE),
    ],
)
def test_only_the_samples_of_a_wav_file_are_speech(body: bytes, samples: bytes, piece: int) -> None:
    cuts = tuple(range(piece, len(body), piece))
    parts = read(SpeechReader(24_000), response(body, "audio/wav", cuts=cuts))
    assert b"".join(part.data for part in parts if isinstance(part, Pcm)) == samples
    assert {part.rate_hz for part in parts if isinstance(part, Pcm)} == {22_050}
    assert parts[-1] == Finished()


def test_a_sync_word_of_mpeg_alone_is_two_samples() -> None:
    pcm = struct.pack("<2h", -1_025, 0x6490) + TONE  # FF FB 90 64, and no second frame
    parts = read(SpeechReader(24_000), response(pcm, "audio/pcm"))
    assert b"".join(part.data for part in parts if isinstance(part, Pcm)) == pcm


def test_speech_as_events() -> None:
    deltas = [
        {"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()}  # the package has no type for it
        for piece in (TONE[:101], TONE[101:])
    ]
    usage = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    done = {"type": "speech.audio.done", "usage": usage}
    parts = read(SpeechReader(24_000), response(events(*deltas, done)))
    assert b"".join(part.data for part in parts if isinstance(part, Pcm)) == TONE
    assert parts[-1] == Finished(usage=usage)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"ID3\x04" + TONE, "it sent MP3"),
        (b"OggS" + TONE, "it sent Ogg"),
        (b"\x01\x02\x03", "inside a sample"),
        (TONE + b"\x01", "inside a sample"),
        (b"RIFF\0\0\0\0AVI " + TONE, "not WAV"),
    ],
)
def test_speech_that_cannot_be_used(body: bytes, says: str) -> None:
    broken = read(SpeechReader(24_000), response(body, "audio/mpeg"))[-1]
    assert isinstance(broken, Broken)
    assert says in broken.message
    assert broken.failure.kind == "bad_audio"


@pytest.mark.parametrize("reader", [TranscriptionReader, AnswerReader, lambda: SpeechReader(24_000)])
def test_a_connection_that_breaks_breaks_the_stage(reader: Any) -> None:
    failure = Failure("tcp", "ECONNRESET")
    parts = read(reader(), [HttpHead("r", 200, (("content-type", STREAM),)), HttpFailed("r", "it broke", failure)])
    assert len(parts) == 1
    assert isinstance(parts[0], Broken)
    assert parts[0].failure is failure


@given(st.sampled_from([STREAM, "application/json", "text/plain", ""]), st.integers(100, 599), st.binary(max_size=200))
def test_no_body_makes_a_reader_raise(kind: str, status: int, body: bytes) -> None:
    for made in (TranscriptionReader(), AnswerReader(), SpeechReader(24_000)):
        read(made, response(body, kind, status))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "choices", "delta", "content", "usage", "error", "text", "audio", "index", "code"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_json_makes_a_reader_raise(value: Any) -> None:
    text = json.dumps(value)
    for make in (TranscriptionReader, AnswerReader, lambda: SpeechReader(24_000)):
        read(make(), response(events(text)))
        read(make(), response(text.encode(), "application/json"))


def of_litellm(name: str) -> tuple[dict[str, str], dict[str, int]]:
    return served_by(tuple((key, value) for key, value in RECORDED[name]["headers"]), "llm")


def test_answer_of_model_gives_route_and_no_cache_fields() -> None:
    metadata, service_ns = of_litellm("answer")
    assert metadata["voice.route"] == "cloud"
    assert metadata["voice.model"] == "openai/gpt-good"
    assert "voice.cache_hit" not in metadata
    assert "voice.fallback" not in metadata
    assert metadata["llm.x-litellm-call-id"]
    assert service_ns["llm.response"] > 0


def test_an_answer_from_the_cache_is_a_hit() -> None:
    metadata, service_ns = of_litellm("cached")
    assert metadata["voice.cache_hit"] == "true"
    assert metadata["voice.route"] == "cache"
    assert 0 < service_ns["llm.gateway_overhead"] <= service_ns["llm.response"]


def test_answer_of_model_other_than_requested_is_fallback() -> None:
    assert of_litellm("fallback")[0]["voice.fallback"] == "model"


@pytest.mark.parametrize(
    ("header", "value", "hit"),
    [
        ("X-Portkey-Cache-Status", "HIT", "true"),
        ("x-portkey-cache-status", "SEMANTIC HIT", "true"),
        ("x-portkey-cache-status", "SEMANTIC MISS", "false"),
        ("x-portkey-cache-status", "DISABLED", None),
        ("cf-aig-cache-status", "MISS", "false"),
        ("helicone-cache", "HIT", "true"),
        ("x-cache", "Hit from cloudfront", "true"),
    ],
)
def test_the_caches_of_other_gateways(header: str, value: str, hit: str | None) -> None:
    assert served_by(((header, value),), "llm")[0].get("voice.cache_hit") == hit


@pytest.mark.parametrize(
    ("base", "route"),
    [
        ("http://10.0.0.7:8000/v1", "local"),
        ("http://localhost:8000", "local"),
        ("http://vllm:8000/v1", "local"),
        ("http://vllm.llm.svc.local/v1", "local"),
        ("https://api.openai.com", "cloud"),
        ("https://8.8.8.8/v1", "cloud"),
        ("", None),
        ("http://[", None),
    ],
)
def test_route_is_local_or_cloud_by_model_address(base: str, route: str | None) -> None:
    assert served_by((("x-litellm-model-api-base", base),), "llm")[0].get("voice.route") == route


def test_the_service_s_own_latencies() -> None:
    headers = (
        ("openai-processing-ms", "412"),
        ("Server-Timing", 'queue;dur=1.5, prefill;desc="first, part";dur=20, nothing, bad;dur=x'),
        ("x-litellm-response-duration-ms", "not a number"),
        ("x-litellm-overhead-duration-ms", "-3"),
    )
    _, service_ns = served_by(headers, "tts")
    assert service_ns["tts.processing"] == 412_000_000
    assert service_ns["tts.queue"] == 1_500_000
    assert "tts.response" not in service_ns
    assert "tts.gateway_overhead" not in service_ns
    assert "tts.bad" not in service_ns


def decoded(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def by_openai(stream: bytes) -> list[tuple[str, str]]:
    """The events with data that the official package finds, line by line as it is fed by its HTTP client."""
    decoder = SSEDecoder()
    lines = re.split(rb"\r\n|\n|\r", stream)[:-1]
    events = [event for line in lines if (event := decoder.decode(line.decode())) is not None]
    return [(event.event or "message", event.data) for event in events if event.data]


LINES = st.sampled_from(
    [
        "data: a",
        "data:b",
        "data: ",
        "data",
        'data: {"x":"Grüße, 東京 😀"}',
        "event: message_delta",
        "event:",
        ": comment",
        "id: 3",
        "retry: 10",
        "",
        "",
        "",
        "unknown: field",
        "data:  two spaces",
        "data: a: b",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines of every kind, each with one of the three ends, the last one perhaps unfinished."""
    text = "".join(draw(LINES) + draw(ENDS) for _ in range(draw(st.integers(0, 25))))
    return (text + draw(st.sampled_from(["", "data: unfinished"]))).encode()


def pieces_of(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(stream)], strict=True):
        yield stream[begin:end]


@given(streams(), st.lists(st.integers(0, 1000), max_size=8))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10])
def test_any_split_gives_the_events_of_the_official_package(stream: bytes, cuts: list[int]) -> None:
    pairs = [(event.event, event.data) for event in decoded(*pieces_of(stream, cuts)) if event.data]
    # A CR and an LF that follow one another across an empty field are one end of a line, as in the standard.
    assert pairs == by_openai(stream)


@given(streams())
def test_every_single_byte_as_a_piece_of_its_own(stream: bytes) -> None:
    assert decoded(*(stream[i : i + 1] for i in range(len(stream)))) == decoded(stream)


def test_several_lines_of_data_are_joined_and_the_type_is_kept() -> None:
    stream = b'\xef\xbb\xbfevent: speech.audio.delta\ndata: {"audio":\ndata: "AAA="}\n\n'
    (event,) = decoded(stream)
    assert event.event == "speech.audio.delta"
    assert json.loads(event.data) == {"audio": "AAA="}


def test_event_without_its_empty_line_is_ignored() -> None:
    assert decoded(b"data: whole\n\ndata: cut short\n") == [SseEvent("message", "whole")]


def test_a_type_lasts_for_one_event_only() -> None:
    assert [event.event for event in decoded(b"event: error\ndata: 1\n\ndata: 2\n\n")] == ["error", "message"]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 50 + b"\n"], ids=["one line", "many lines"])
def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(reader, "MAX_EVENT_BYTES", 1000)
    parser = SseParser()
    for _ in range(900 // len(piece)):
        assert parser.feed(piece) == []
    with pytest.raises(SseTooLongError):
        parser.feed(piece * 10)
