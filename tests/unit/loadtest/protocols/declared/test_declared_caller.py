"""Declared wires: specs with all faults at once, rules that match a message, and callers that follow them."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadtest.audio.pcm import from_bytes
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText, VoiceEvent
from loadtest.protocols.declared.caller import DeclaredCaller
from loadtest.protocols.declared.recognition import Recognition
from loadtest.protocols.declared.spec import parse_spec, spec_of
from loadtest.protocols.declared.templates import filled, parse_path
from loadtest.protocols.registry import make_caller
from tests.g711_reference import ULAW

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PCM = np.array([1, -2, 300], np.int16)
SPEC: dict[str, Any] = {
    "name": "test",
    "type": "$.event",
    "open": {
        "query": {"agent": "{model}", "turn": "{text}"},
        "headers": {"X-Trace": "{traceparent}", "Authorization": "Token secret"},
        "subprotocols": ["voice.v1"],
        "send": [{"event": "hello", "trace": "{traceparent}"}],
    },
    "turn": {
        "control": "manual",
        "begin": [{"event": "listen", "turn": "{turn}", "words": "{text}"}],
        "end": [{"event": "stop"}, "bare text"],
        "interrupt": [{"event": "heard", "ms": "{played_ms}"}],
    },
    "reply": {"audio": "binary", "rate_hz": 22050, "end": "event"},
    "close": [{"event": "bye"}],
    "events": [
        {"when": {"$.event": "words", "$.final": False}, "is": "partial", "text": "$.text", "whole": True},
        {"when": {"$.event": "words", "$.final": True}, "is": "final", "text": "$.text"},
        {
            "when": {"$.event": "words", "$.confidence": {"exists": True}},
            "is": "report",
            "metadata": {"c": "$.confidence"},
        },
        {"when": {"$.event": "ping"}, "is": "ignored", "send": [{"event": "pong", "id": "{$.id}"}]},
        {
            "when": {"$.event": ["end", "over"]},
            "is": "reply_done",
            "status": "$.how",
            "latencies_ms": {"llm": "$.llm_ms"},
            "usage": {"output_text_tokens": "$.tokens"},
        },
        {"when": {"$.event": "oops"}, "is": "error", "message": "$.why", "code": "$.code", "fatal": True},
    ],
}


def made(changes: dict[str, Any] | None = None, **options: Any) -> DeclaredCaller:
    caller = make_caller("declared", CallerOptions(settings={"spec": {**SPEC, **(changes or {})}}, **options))
    assert isinstance(caller, DeclaredCaller)
    return caller


def get(caller: DeclaredCaller, **fields: Any) -> list[VoiceEvent]:
    return list(caller.receive(json.dumps(fields)))


def test_how_it_opens_begins_and_ends_is_as_the_spec_says() -> None:
    caller = made(model="m 1", token="never sent", headers=(("X-More", "1"),))
    request = caller.upgrade("wss://h/talk?key=1", TRACE)
    assert request.url == "wss://h/talk?key=1&agent=m+1"
    assert request.headers == (
        ("X-Trace", TRACE),
        ("Authorization", "Token secret"),
        ("traceparent", TRACE),
        ("X-More", "1"),
    )
    assert request.subprotocols == ("voice.v1",)
    assert [json.loads(str(message)) for message in caller.opened()] == [{"event": "hello", "trace": TRACE}]
    (begin,) = caller.begin_turn(SpokenText("hello"))
    assert json.loads(str(begin)) == {"event": "listen", "turn": 1, "words": "hello"}
    stop, bare = caller.end_turn()
    assert (json.loads(str(stop)), bare) == ({"event": "stop"}, "bare text")
    assert [json.loads(str(message)) for message in caller.interrupt(250)] == [{"event": "heard", "ms": 250}]
    assert [json.loads(str(message)) for message in caller.goodbye()] == [{"event": "bye"}]


def test_a_token_is_a_header_unless_the_spec_has_one() -> None:
    headers = dict(made({"open": {}}, token="key").upgrade("ws://h", None).headers)
    assert headers == {"Authorization": "Bearer key"}


def test_a_message_means_all_that_its_rules_say() -> None:
    caller = made()
    assert caller.capabilities.ready_when_open
    assert [event.text for event in get(caller, event="words", final=False, text="turn")] == ["turn"]
    assert [event.text for event in get(caller, event="words", final=False, text="turn it")] == [" it"]
    final, report = get(caller, event="words", final=True, text="turn it on", confidence=0.5)
    assert (final.kind, final.text) == (EventKind.ASR_FINAL, "turn it on")
    assert (report.kind, report.metadata) == (EventKind.SERVICE_REPORT, {"c": "0.5"})
    assert [event.kind for event in get(caller, event="ping", id=7)] == [EventKind.OTHER]
    assert [json.loads(str(message)) for message in caller.pending()] == [{"event": "pong", "id": 7}]
    assert caller.pending() == ()
    (unknown,) = get(caller, event="mood", of="the day")
    assert (unknown.kind, unknown.raw_type) == (EventKind.UNKNOWN, "mood")


def test_a_reply_in_binary_messages_that_split_a_sample() -> None:
    caller = made()
    data = PCM.tobytes()
    pieces = [event for piece in (data[:3], data[3:]) for event in caller.receive(piece)]
    assert b"".join(event.audio or b"" for event in pieces) == data
    assert {event.rate_hz for event in pieces} == {22_050}
    (done,) = get(caller, event="over", llm_ms=12.5, tokens=9)
    assert (done.kind, done.status, done.carried) == (EventKind.RESPONSE_DONE, "completed", {"audio"})
    assert done.service_ns == {"llm": 12_500_000}
    assert done.usage == {"output_text_tokens": 9}
    caller.receive(b"\1\0\2")
    odd, failed = get(caller, event="end", how="failed")
    assert odd.kind is EventKind.ERROR
    assert failed.failure is not None


def test_a_reply_in_g711() -> None:
    caller = made({"reply": {"audio": "binary", "encoding": "pcmu", "rate_hz": 8000}})
    data = bytes(range(256))
    (event,) = caller.receive(data)
    assert np.array_equal(from_bytes(event.audio or b""), np.array([ULAW.decode(octet) for octet in data], np.int16))


def test_error_is_fatal_by_spec_and_always_before_ready() -> None:
    (error,) = get(made(), event="oops", why="no room", code="busy")
    assert (error.message, error.fatal) == ("no room", True)
    assert error.failure is not None
    assert error.failure.code == "busy"
    rules = [{"when": {"$.event": "go"}, "is": "ready"}, {"when": {"$.event": "oops"}, "is": "error"}]
    caller = made({"events": rules, "reply": {"end": "silence"}})
    assert [event.fatal for event in get(caller, event="oops")] == [True]
    assert [event.kind for event in get(caller, event="go")] == [EventKind.READY]
    assert [event.kind for event in get(caller, event="go")] == [EventKind.OTHER]
    assert [event.fatal for event in get(caller, event="oops")] == [False]


def test_frames_are_binary_or_base64_in_a_message() -> None:
    assert made().audio_message(PCM) == PCM.astype("<i2").tobytes()
    assert not made().capabilities.audio_is_text
    framed = made({"audio": {"frame": {"a": {"b": "{audio}"}, "c": 1}}})
    assert json.loads(framed.audio_message(PCM)) == {"a": {"b": base64.b64encode(PCM.tobytes()).decode()}, "c": 1}
    assert framed.audio_head() is None
    assert framed.capabilities.audio_is_text


def test_a_frame_with_counters_has_them_in_a_head_of_its_own() -> None:
    frame = {"seq": "{sequence}", "ts": "{timestamp_ms}", "audio": "{audio}", "z": True}
    caller = made({"audio": {"frame": frame, "frame_ms": 40}})
    shared = caller.audio_message(PCM)
    whole = [json.loads((caller.audio_head() or b"") + shared) for _ in range(2)]
    assert [(head["seq"], head["ts"]) for head in whole] == [(1, 0), (2, 40)]
    assert base64.b64decode(whole[1]["audio"]) == PCM.tobytes()
    assert whole[1]["z"] is True


def test_metrics_without_a_message_in_spec_are_unobservable() -> None:
    hidden = made().capabilities.not_observable
    assert hidden["endpointing"] == "the spec names no message that means speech_stopped"
    assert "llm_first_token_latency" in hidden
    assert "asr_partial_latency" not in hidden
    assert "voice_to_voice" not in hidden
    silent = made({"reply": {"audio": "none"}}).capabilities.not_observable
    assert "voice_to_voice" in silent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["event", "text", "final", "id", "how", "llm_ms", "tokens"]), inner, max_size=5
        )
    ),
    max_leaves=10,
)


@given(
    JSON | st.sampled_from(["words", "ping", "end", "oops"]).map(lambda name: {"event": name}), st.binary(max_size=9)
)
def test_nothing_that_arrives_makes_it_raise(value: Any, data: bytes) -> None:
    caller = made()
    for message in (json.dumps(value), data, data.decode(errors="replace")):
        for event in caller.receive(message):
            assert event.kind is not EventKind.ERROR or (event.message and event.failure)
        caller.pending()


@pytest.mark.parametrize("wanted", [True, 1, "1"])
def test_a_value_matches_only_its_own_type(wanted: Any) -> None:
    rules = [{"when": {"$.event": wanted}, "is": "clear"}]
    caller = made({"events": rules, "reply": {"end": "silence"}})
    matches = [get(caller, event=value)[0].kind is EventKind.CLEAR for value in (True, 1, "1")]
    assert matches == [value == wanted and type(value) is type(wanted) for value in (True, 1, "1")]


PATHS: Final = ("$.type", "$.list[*]", "$['type']", "$.kind", "$.type.inner", "$")
SCALARS: Final = ("a", "b", None, "", True, False, 0, 1, 1.0)
strings = st.sampled_from(("a", "b"))
scalars = strings | st.sampled_from(SCALARS)
wanted = scalars | st.lists(scalars, max_size=3) | st.booleans().map(lambda exists: {"exists": exists})
rules = st.lists(
    st.dictionaries(st.sampled_from(PATHS[:2]) | st.sampled_from(PATHS), wanted, min_size=1, max_size=2),
    min_size=1,
    max_size=4,
)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.just("inner"), scalars)
messages = (
    st.fixed_dictionaries({"type": strings, "list": st.lists(strings, min_size=1, max_size=3)})
    | st.fixed_dictionaries({}, optional={"type": values, "kind": values, "list": values})
    | values
)


def fulfilled(message: Any, path: str, condition: Any) -> bool:
    at_path = list(parse_path(path).all(message))
    if isinstance(condition, dict):
        return bool(at_path) is condition["exists"]
    # As JSON, in which true is not 1; but 1.0 is 1.
    shown = [1 if value == 1.0 and not isinstance(value, bool) else value for value in at_path]
    of_any = condition if isinstance(condition, list) else [condition]
    return any(
        json.dumps(value) == json.dumps(1 if type(want) is float else want) for value in shown for want in of_any
    )


@pytest.mark.slow
@example([{"$.type": None}, {"$.type": "b"}], "$.type", [{"type": "a"}, {"type": "b"}, {"type": None}, {}])
@example([{"$.list[*]": "b"}], "$.list[*]", [{"list": ["a", "b"]}, {"list": ["a"]}])
@settings(max_examples=200, deadline=None)
@given(rules, st.sampled_from(PATHS[:3]), st.lists(messages, min_size=2, max_size=6))
def test_message_matches_rules_whose_conditions_it_fulfills(
    whens: list[dict[str, Any]], named_at: str, heard: list[Any]
) -> None:
    events = [{"when": when, "is": "ignored", "code": f"$.number{at}"} for at, when in enumerate(whens)]
    spec = spec_of({"name": "any", "type": named_at, "reply": {"audio": "none"}, "events": events}, "spec")
    recognition = Recognition(spec)
    for message in heard:
        matched = recognition.rules_of(spec.type.first(message), message)
        matching = [
            rule
            for rule, when in zip(spec.events, whens, strict=True)
            if all(fulfilled(message, path, condition) for path, condition in when.items())
        ]
        assert matched == matching


@given(st.sampled_from(PATHS), messages)
def test_the_first_value_of_a_path_is_the_first_of_all(path: str, message: Any) -> None:
    every = list(parse_path(path).all(message))
    assert parse_path(path).first(message) == (every[0] if every else None)


EXAMPLES = sorted((Path(__file__).parents[5] / "examples" / "protocols").glob("*.yaml"))

FAULTY = """\
name: faulty
audio:
  encoding: pcmu
  rate_hz: 16000
turn:
  end: [{type: stop, id: "{$.id}"}]
  begin: [{type: start, model: "{mood}"}]
reply: {audio: binary, ends: silence}
events:
  - when: {type: ready}
    is: ready
  - when: {$.type: words}
    is: partial
  - when: {$.type: done}
    is: replied
  - is: ignored
"""


def test_all_spec_faults_are_reported_with_line_and_field() -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(FAULTY, "wire.yaml")
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "wire.yaml:2",
        "wire.yaml:6",
        "wire.yaml:7",
        "wire.yaml:8",
        "wire.yaml:10",
        "wire.yaml:12",
        "wire.yaml:15",
        "wire.yaml:16",
    ]
    by_line = {line.split(": ")[0].removeprefix("wire.yaml:"): line for line in lines}
    assert "audio: pcmu has 8000 Hz, not 16000" in by_line["2"]
    assert "turn.end.0: {$.id} needs a message that is being answered" in by_line["6"]
    assert "turn.begin.0: there is no {mood} here; known: " in by_line["7"]
    assert "reply.ends: there is no such member" in by_line["8"]
    assert "a path begins with $" in by_line["10"]
    assert "has its text at a path" in by_line["12"]
    assert "events.2.is: input should be 'ready'" in by_line["15"]
    assert "events.3.when: field required" in by_line["16"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "wire.yaml:1: this is not YAML"),
        ("- a\n- b\n", "wire.yaml: a spec is a mapping"),
        ("name: a\nevents: []\nname: b\n", "wire.yaml:3: name: is there twice"),
        ("events: []\nreply: {end: silence}\n", "wire.yaml:1: name: field required"),
        ("name: a\nevents: []\n", "wire.yaml:1: the spec: no message means reply_done"),
        ("name: a\nreply: {end: silence, audio: json}\nevents: []\n", "no message means audio"),
        ("name: a\nreply: {end: silence}\naudio: {frame: {a: 1}}\nevents: []\n", "wire.yaml:3: audio: the frame has"),
        (
            "name: a\nreply: {end: silence}\naudio: {frame: {a: '{audio}', n: '{sequence}'}}\nevents: []\n",
            "{audio} is the last place of the frame",
        ),
    ],
)
def test_invalid_spec_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(text, "wire.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_a_spec(file: Path) -> None:
    assert parse_spec(file.read_text(), file.name).name == file.stem


def test_a_spec_that_is_missing_or_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--protocol-option spec=FILE"):
        make_caller("declared", CallerOptions())
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        make_caller("declared", CallerOptions(settings={"spec": str(tmp_path / "none.yaml")}))


STORE: dict[str, Any] = {
    "store": {
        "book": [{"title": "one", "price": 8}, {"title": "two", "price": 12}],
        "the owner": {"first-name": "Ada"},
        "10": True,
    }
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [STORE]),
        ("$.store.book[0].title", ["one"]),
        ("$.store.book[-1].title", ["two"]),
        ("$.store.book[2].title", []),
        ("$.store.book[*].price", [8, 12]),
        ("$['store']['the owner'].first-name", ["Ada"]),
        ('$.store["10"]', [True]),
        ("$.store.*.first-name", ["Ada"]),
        ("$.nothing.book", []),
        ("$.store.book.title", []),
    ],
)
def test_paths_lead_to_values(path: str, values: list[Any]) -> None:
    assert list(parse_path(path).all(STORE)) == values
    assert parse_path(path).first(STORE) == (values[0] if values else None)


@pytest.mark.parametrize("text", ["", "store", "$.", "$..a", "$.a[?(@.b)]", "$.a[x]", "$.a b", "$a", "$['a"])
def test_a_path_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_path(text)


@given(st.text(max_size=12))
def test_no_text_makes_the_reader_of_paths_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_path("$" + text).all(STORE)


def test_template_values_are_filled_and_empty_members_left_out() -> None:
    template = {
        "id": "{$.id}",
        "list": ["{model}", "{language}"],
        "text": "turn {turn} of {model}",
        "language": "{language}",
        "n": 1,
    }
    message = filled(template, {"model": "m", "language": None, "turn": 3}, {"id": 7})
    assert message == {"id": 7, "list": ["m"], "text": "turn 3 of m", "n": 1}
