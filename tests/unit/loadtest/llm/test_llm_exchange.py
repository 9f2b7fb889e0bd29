"""Answers in each wire, and everything that is no answer, from scripted bytes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.llm.answers import LlmAnswer, LlmUsage, ServerTimings, ToolCall
from loadtest.llm.bodies import Wire
from tests.unit.loadtest.llm.scripted import MS, REQUEST, SECRET, STREAM, events, played, target


def delta(content: str | None = None, **fields: object) -> str:
    choice = {"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": None}
    return json.dumps({"model": "small-1", "choices": [choice | fields.pop("choice", {})], **fields})  # type: ignore[dict-item]


def finish(reason: str = "stop") -> str:
    return delta(choice={"finish_reason": reason})


WORDS = (delta("One. "), delta("Two"))
GOOD_END = events(finish(), "[DONE]")


def test_a_stream_gives_its_chunks_times_and_counts() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    answer = played(
        (10, STREAM + events(delta(""))),
        (30, events(delta("One"))),
        (50, events(delta(". Two"), delta(" three"))),
        (90, events(finish("length"), json.dumps({"choices": [], "usage": usage}), "[DONE]")),
    )
    assert answer.fault is None
    assert [(chunk.lower_ns // MS, chunk.upper_ns // MS, chunk.text, chunk.events) for chunk in answer.chunks] == [
        (30, 30, "One", 1),
        (49, 50, ". Two three", 2),
    ]
    assert (answer.first_byte_s, answer.first_token_s, answer.first_sentence_s, answer.wall_s) == (
        0.01,
        0.03,
        0.05,
        0.09,
    )
    assert answer.usage == LlmUsage(prompt=9, cached=4, completion=7)
    assert answer.tokens_per_s == pytest.approx(6 / 0.02)
    assert (answer.finish_reason, answer.served_model, answer.stamp_error_s) == ("length", "small-1", 0.001)


def test_running_count_gives_chunk_tokens_and_llama_cpp_times() -> None:
    def timed(text: str, count: int) -> str:
        return delta(text, timings={"predicted_n": count, "prompt_n": 3, "prompt_ms": 1.5, "cache_n": 2})

    answer = played(
        (10, STREAM + events(timed("a", 1))),
        (30, events(timed("b", 4))),
        (70, events(timed("c", 5), timed("d", 6)) + GOOD_END),
    )
    assert [chunk.tokens for chunk in answer.chunks] == [1, 3, 2]
    assert answer.token_gaps_s == (pytest.approx(0.02 / 3), 0.02)
    assert answer.timings == ServerTimings(prompt_n=3, prompt_ms=1.5, predicted_n=6, cache_n=2)


def test_count_in_last_event_alone_gives_no_tokens_per_chunk() -> None:
    last = delta("c", usage={"completion_tokens": 9})
    answer = played((10, STREAM + events(delta("a"))), (20, events(delta("b"))), (30, events(last) + GOOD_END))
    assert [chunk.tokens for chunk in answer.chunks] == [None, None, None]
    assert answer.tokens == 9


def test_reasoning_and_tool_calls_are_kept_apart_from_the_answer() -> None:
    def call(**function: str) -> str:
        return delta(choice={"delta": {"tool_calls": [{"index": 0, "function": function}]}})

    answer = played(
        (10, STREAM + events(delta(choice={"delta": {"reasoning_content": "Hm."}}))),
        (20, events(call(name="book", arguments='{"day"'))),
        (30, events(call(arguments=":3}"), finish("tool_calls"), "[DONE]")),
    )
    assert answer.fault is None
    assert (answer.text, answer.first_token_s, answer.first_answer_token_s) == ("", 0.01, None)
    assert answer.tool_calls == (ToolCall("book", '{"day":3}'),)
    assert answer.structured == '{"day":3}'


@pytest.mark.parametrize("size", [1, 3, 100])
def test_reasoning_between_marks_in_the_answer_is_kept_apart(size: int) -> None:
    written = "\n<think>Is 1 < 2? Yes.</think>\n\nIt <b>is</b>. Bye"
    parts = [written[at : at + size] for at in range(0, len(written), size)]
    reads = [(10 + place, events(delta(part))) for place, part in enumerate(parts)]
    answer = played((5, STREAM), *reads, (99, GOOD_END))
    assert answer.fault is None
    assert answer.text.strip() == "It <b>is</b>. Bye"
    assert "".join(chunk.reasoning for chunk in answer.chunks) == "Is 1 < 2? Yes."
    plain = played((5, STREAM), (10, events(delta("<b>"), delta("Hi"))), (20, GOOD_END))
    assert plain.text == "<b>Hi"


def test_a_tool_call_in_one_event_is_not_held_back() -> None:
    call = {"index": 0, "function": {"name": "book", "arguments": '{"nights": 3, "sea": true}'}}
    last = json.dumps({"choices": [], "usage": {"completion_tokens": 20}})
    answer = played((10, STREAM + events(delta(choice={"delta": {"tool_calls": [call]}}), finish(), last, "[DONE]")))
    assert answer.fault is None


def test_anthropics_wire() -> None:
    sent = [
        ("message_start", {"message": {"model": "c", "usage": {"input_tokens": 3, "cache_read_input_tokens": 600}}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        ("ping", {}),
        ("content_block_delta", {"index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}),
        ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": "Yes."}}),
        ("content_block_start", {"index": 2, "content_block": {"type": "tool_use", "name": "book", "input": {}}}),
        ("content_block_delta", {"index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 12}}),
        ("message_stop", {}),
    ]
    reads = [
        (10 * (place + 1), f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode())
        for place, (name, fields) in enumerate(sent)
    ]
    answer = played((5, STREAM), *reads, of=target("anthropic"))
    assert answer.fault is None
    assert (answer.first_token_s, answer.first_answer_token_s, answer.wall_s) == (0.04, 0.05, 0.09)
    assert answer.usage == LlmUsage(prompt=603, cached=600, completion=12)
    assert (answer.text, answer.tool_calls, answer.keep_alives) == ("Yes.", (ToolCall("book", "{}"),), 1)
    assert played((5, STREAM), *reads[:-1], of=target("anthropic")).fault is not None


def test_geminis_wire() -> None:
    def part(text: str, count: int, **fields: object) -> str:
        candidate = {"content": {"parts": [{"text": text, **fields}]}, "finishReason": "STOP" if count == 7 else None}
        usage = {"promptTokenCount": 5, "candidatesTokenCount": count, "thoughtsTokenCount": 2}
        return json.dumps({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "g"})

    reads = [
        (10, STREAM + events(part("Hm", 0, thought=True))),
        (20, events(part("Yes, ", 3))),
        (40, events(part("now.", 7))),
    ]
    answer = played(*reads, of=target("gemini"), ends_at=41)
    assert answer.fault is None
    assert (answer.first_token_s, answer.first_answer_token_s, answer.first_sentence_s) == (0.01, 0.02, 0.041)
    assert [chunk.tokens for chunk in answer.chunks] == [2, 3, 4]
    assert answer.usage == LlmUsage(prompt=5, completion=9, reasoning=2)
    assert kind_of(played(*reads[:2], of=target("gemini"))) == "cut_off"


def kind_of(answer: LlmAnswer) -> str | None:
    return None if answer.fault is None else answer.fault.kind


def http(status: str, body: object, *headers: str) -> bytes:
    content = body if isinstance(body, str) else json.dumps(body)
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Content-Type: application/json", *headers]
    return "\r\n".join([*head, "", content]).encode()


def error(message: str, code: object = None) -> dict[str, object]:
    return {"error": {"message": message, "code": code}}


FIELDS = (
    *("choices", "delta", "message", "content", "reasoning_content", "tool_calls", "function", "name", "arguments"),
    *("index", "finish_reason", "usage", "completion_tokens", "output_tokens", "timings", "predicted_n", "prompt_ms"),
    *("type", "content_block", "text", "thinking", "input", "candidates", "parts", "thought", "functionCall", "args"),
    *("usageMetadata", "candidatesTokenCount", "promptFeedback", "blockReason", "error", "code", "model"),
)
WHOLE = {"choices": [{"index": 0, "message": {"content": "One. Two"}, "finish_reason": "stop"}]}
BAD = {
    "no key": (http("401 Unauthorized", error("Missing API key")), "unauthorized", "Missing API key"),
    "unknown model": (
        http("404 Not Found", error("The model `x` does not exist", "model_not_found")),
        "unknown_model",
        "The model `x` does not exist",
    ),
    "unknown path": (http("404 Not Found", {"detail": "Not Found"}), "http_status", "Not Found"),
    "rate limit": (http("429 Too Many", error("slow down"), "Retry-After: 7"), "rate_limited", "wait 7 s"),
    "server error": (http("500 Oops", "no JSON"), "http_status", "no JSON"),
    "error in mid-stream": (
        STREAM + events(WORDS[0], json.dumps(error("CUDA out of memory"))),
        "error_in_stream",
        "CUDA out of memory",
    ),
    "error with status 200": (http("200 OK", error("no slot")), "error_in_stream", "no slot"),
    "empty choices": (STREAM + events('{"choices":[]}', '{"choices":[]}', "[DONE]"), "empty_choices", "choice"),
    "nothing said": (STREAM + events(delta("")) + GOOD_END, "empty_answer", "'stop'"),
    "cut off": (STREAM + events(*WORDS), "cut_off", "before it was complete"),
    "no stream": (http("200 OK", WHOLE), "not_a_stream", "one JSON body"),
    "no JSON": (STREAM + events(WORDS[0], "{nope") + GOOD_END, "undecodable", "1 events"),
    "web page": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>",
        "undecodable",
        "web page",
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH_9\r\n", "http", "closed"),
    "held back": (STREAM + events(*([delta("word ")] * 8)) + GOOD_END, "buffered", "all 8 events"),
    "held back as one event": (
        STREAM + events(delta("word " * 20, usage={"completion_tokens": 20})) + GOOD_END,
        "buffered",
        "all 20 tokens",
    ),
    "compressed": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08",
        "undecodable",
        "compressed its response (gzip)",
    ),
    "compressed refusal": (
        b"HTTP/1.1 401 No\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
        "unauthorized",
        "no body",
    ),
    "error as the reason to end": (
        STREAM + events(WORDS[0]) + events(finish("error"), "[DONE]"),
        "error_in_stream",
        "reason to end",
    ),
    "nothing": (b"", "connection", "closed"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_answer_is_named_and_has_no_figures(case: str) -> None:
    data, kind, words = BAD[case]
    answer = played((10, data)) if data else played()
    assert answer.fault is not None
    assert (answer.fault.kind, words in answer.fault.sentence) == (kind, True), answer.fault.sentence
    assert (answer.first_token_s, answer.wall_s, answer.tokens_per_s, answer.gaps_s) == (None, None, None, ())


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
@pytest.mark.parametrize("before", ["data:", "data: ", ": keep-alive\ndata: ", "\ufeffdata: "])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_every_way_to_write_a_stream_is_read_the_same(end: str, before: str, size: int) -> None:
    body = "".join(f"{before}{one}{end}" for one in (delta("One. "), delta("Zwei 二"), finish(), "[DONE]"))
    body = body.replace("\ufeff", "") if before[0] != "\ufeff" else "\ufeff" + body.replace("\ufeff", "")
    data = STREAM + body.encode()
    reads = [(place + 10, data[at : at + size]) for place, at in enumerate(range(0, len(data), size))]
    answer = played(*reads)
    assert (answer.fault, answer.text) == (None, "One. Zwei 二")
    assert answer.keep_alives == (4 if before[0] == ":" else 0)


def test_data_unseen_by_this_machine_is_no_fault_of_server() -> None:
    late = played((90, STREAM + events(*([delta("word ")] * 8)) + GOOD_END), seen_before_ms=80)
    assert (kind_of(late), "did not look for 80.0 ms" in repr(late.fault)) == ("not_seen", True)


def test_a_stream_without_its_content_type_is_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    answer = played((10, head), (20, events(WORDS[0])), (30, events(WORDS[1]) + GOOD_END))
    assert (answer.fault, answer.text) == (None, "One. Two")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=6,
)


@given(
    wire=st.sampled_from(["openai", "anthropic", "gemini"]),
    bodies=st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5) | JSON, max_size=6),
    junk=st.binary(max_size=40),
    size=st.integers(1, 400),
    is_stream=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_response_of_server_is_answer_or_fault(
    wire: Wire, bodies: list[object], junk: bytes, size: int, is_stream: bool
) -> None:
    content = events(*(json.dumps(body) for body in bodies)) + junk if is_stream else json.dumps(bodies[:1]).encode()
    data = (STREAM if is_stream else STREAM.replace(b"text/event-stream", b"application/json")) + content
    reads = [(place + 10, data[at : at + size]) for place, at in enumerate(range(0, len(data), size))]
    answer = played(*reads, of=target(wire))
    figures = [answer.first_token_s, answer.wall_s, answer.tokens_per_s_wall]
    assert figures == [None] * 3 if answer.fault is not None else answer.wall_s is not None
    assert [chunk.upper_ns for chunk in answer.chunks] == sorted(chunk.upper_ns for chunk in answer.chunks)


def test_the_wait_that_a_server_asks_for_is_a_figure() -> None:
    answer = played((10, http("429 Too Many", error("slow down"), "Retry-After: 7")))
    assert answer.fault is not None
    assert (answer.fault.retry_after_ns, answer.fault.status) == (7_000 * MS, 429)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        ("Retry-After: 1.5", 1_500),
        ("retry-after-ms: 250", 250),
        ("Retry-After: Fri, 01 Jan 2027 00:00:09 GMT\r\nDate: Fri, 01 Jan 2027 00:00:02 GMT", 7_000),
        ("Retry-After: Fri, 01 Jan 2027 00:00:09 GMT", None),  # by whose clock?
        ("Retry-After: Fri Jan  1 00:00:09 2027", None),
        ("Retry-After: soon", None),
        ("Retry-After: 1e300", None),
    ],
)
def test_a_wait_is_read_however_it_is_written(header: str, wait_ms: int | None) -> None:
    answer = played((10, http("429 Too Many", error("slow down"), header)))
    assert answer.fault is not None
    assert answer.fault.retry_after_ns == (None if wait_ms is None else wait_ms * MS)


@pytest.mark.parametrize(
    ("counts", "known"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 0}, (9, None, None)),  # of an answer with text
        ({"prompt_tokens": 0, "completion_tokens": 4}, (None, None, 4)),
        ({"prompt_tokens": -9, "completion_tokens": "4"}, None),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, (9, None, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 9}}, (9, 9, None)),
    ],
)
def test_impossible_token_count_is_unknown(counts: dict[str, object], known: tuple[int | None, ...] | None) -> None:
    last = json.dumps({"choices": [], "usage": counts})
    answer = played((10, STREAM + events(WORDS[0])), (20, events(WORDS[1], finish(), last, "[DONE]")))
    assert answer.fault is None
    usage = answer.usage
    assert (None if usage is None else (usage.prompt, usage.cached, usage.completion)) == known


def test_a_running_count_that_falls_says_nothing_of_its_event() -> None:
    reads = [
        (10 * n, events(delta("x", usage={"completion_tokens": count}))) for n, count in enumerate((1, 9, 4, 5), 1)
    ]
    answer = played((5, STREAM), *reads, (90, GOOD_END))
    assert [chunk.tokens for chunk in answer.chunks] == [1, 8, None, 1]


def test_a_content_of_typed_pieces_is_text_and_reasoning() -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]
    spoken = [
        {"type": "text", "text": "Yes. "},
        {"type": "reference", "reference_ids": [1]},
        None,
        {"type": "text", "text": "No"},
    ]
    pieces = [events(delta(choice={"delta": {"content": content}})) for content in (thought, spoken)]
    answer = played((5, STREAM), (10, pieces[0]), (20, pieces[1]), (30, GOOD_END))
    assert (answer.fault, answer.text, answer.first_token_s, answer.first_answer_token_s) == (
        None,
        "Yes. No",
        0.01,
        0.02,
    )
    assert answer.chunks[0].reasoning == "Hm"


def test_a_key_that_the_server_repeats_is_not_shown() -> None:
    answer = played((10, http("401 Unauthorized", error(f"Incorrect key: {SECRET}"))))
    assert SECRET not in repr(answer)
    assert "Incorrect key: …" in repr(answer)
    assert SECRET not in repr(target()) + repr(target().key) + str(vars(target()))


def test_a_missing_key_says_where_to_put_one() -> None:
    answer = played((10, http("401 Unauthorized", error("no"))), of=target("anthropic", with_key=False))
    assert answer.fault is not None
    assert "set ANTHROPIC_API_KEY" in answer.fault.sentence


def test_an_endless_stream_ends_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.llm.exchange.MAX_ANSWER_BYTES", 1 << 20)
    head = (5, STREAM)
    answer = played(head, *((10 + place, events(delta("word " * 1000))) for place in range(300)), request=REQUEST)
    assert kind_of(answer) == "never_ended"
