"""No attribute that a framework puts words into is stored; held against the names in the frameworks' own code.

`framework_attributes.json` has every attribute name in the tracing code of the packages at the versions that it names:
`words` hold or may hold what people said, wrote or were answered; `labels` are ids, names and states; `numbers` are
figures and flags.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import orjson
import pyarrow as pa
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from telemetry.model.personal_data import pseudonym
from telemetry.model.turn_spans import SpanEvent, SpanLink, SpanRow
from telemetry.store.redaction import LABELS, framework_of, is_label, table_without_text, without_text
from telemetry.store.schema import (
    SCHEMAS,
    PointRow,
    points_table,
    span_from_row,
    spans_table,
    turn_from_row,
    turns_table,
)
from tests.fixtures_turns import client_turn

FRAMEWORKS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "framework_attributes.json").read_text()
)
# The scope with which a framework's spans come; the others have general names only.
SCOPES = {"pipecat-ai": "pipecat.turn", "openinference-semantic-conventions": "openinference.instrumentation.pipecat"}
NAMED = {framework["package"]: framework for framework in FRAMEWORKS}
TEXTS = "my card number is 4711"
# Found stored by a reader of the issue; and one of each kind that a list of names misses.
ALWAYS_WORDS = [
    *("tool.arguments", "tool.result", "session.instructions", "tools.definitions", "settings.system_instruction"),
    *("lk.pii.anything_new", "gen_ai.prompt.variable.name", "llm.input_messages.0.message.content", "my.own.note"),
    *("voice.turn.transcript_pii", "voice.asr.transcript", "voice.llm.prompt", "service.prompt.text"),
    "exception.message",
    *("process.command_args", "http.request.header.authorization", "db.query.text", "url.full", "enduser.id"),
]
SHAPES = [TEXTS, [TEXTS], [1, TEXTS], {"text": TEXTS}, {"deep": {"er": [TEXTS]}}, TEXTS.encode(), [{"a": 1}]]


class Kept(Protocol):
    """A function that redacts attributes that come with a scope."""

    def __call__(self, attributes: Mapping[str, object], scope: str = "") -> Mapping[str, object]: ...


def _of_point(attributes: Mapping[str, object], scope: str = "") -> Mapping[str, object]:
    """Return what is kept of the attributes of a point."""
    other = PointRow("p", 1, 1.0, {"my.own.note": TEXTS, "n": 3}, scope_name="other")
    points = [other, PointRow("p", 1, 1.0, dict(attributes), scope_name=scope)]
    other_row, row = table_without_text("points", points_table(points)).to_pylist()
    assert orjson.loads(other_row["attributes"]) == {"n": 3}
    return orjson.loads(row["attributes"])


def _of_span(change: Callable[[SpanRow, Mapping[str, object]], SpanRow], read: Callable[[SpanRow], Any]) -> Kept:
    """Return what is kept of the attributes at one place of a span, among spans without any there and one with many."""

    def kept(attributes: Mapping[str, object], scope: str = "") -> Mapping[str, object]:
        other = change(SPAN, {"my.own.note": TEXTS, "http.route": "/a", "n": 3})
        spans = [SPAN, other, replace(change(SPAN, attributes), scope_name=scope), SPAN, other]
        rows = table_without_text("spans", spans_table(spans)).to_pylist()
        spans = [span_from_row(row) for row in rows]
        assert spans[0] == spans[3] == SPAN
        assert read(spans[1]) == read(spans[4]) == {"http.route": "/a", "n": 3}
        return read(spans[2])

    return kept


SPAN = SpanRow("ab" * 16, "cd" * 8, None, "name", "service", 1, 2, {})
OTHER = (SpanEvent("first", 1, {"a": 1}), SpanLink("ab" * 16, "cd" * 8, "", {"a": 1}))
PLACES: dict[str, Kept] = {
    "span": _of_span(lambda span, kept: replace(span, attributes=kept), lambda span: span.attributes),
    "resource": _of_span(
        lambda span, kept: replace(span, resource_attributes=kept), lambda span: span.resource_attributes
    ),
    "event": _of_span(
        lambda span, kept: replace(span, events=(OTHER[0], SpanEvent("second", 2, kept))),
        lambda span: span.events[1].attributes,
    ),
    "link": _of_span(
        lambda span, kept: replace(span, links=(OTHER[1], SpanLink("ab" * 16, "ef" * 8, "t=1", kept))),
        lambda span: span.links[1].attributes,
    ),
}


@pytest.fixture(params=[*PLACES, "point"])
def kept_of(request: pytest.FixtureRequest) -> Kept:
    return PLACES.get(request.param, _of_point)


@pytest.mark.parametrize("place", [*PLACES, "point"])
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework["package"])
def test_words_of_a_framework_are_left_out_and_the_rest_stays(framework: dict[str, Any], place: str) -> None:
    scope = SCOPES.get(framework["package"], "")
    of_place = PLACES.get(place, _of_point)

    def kept_of(attributes: Mapping[str, object]) -> Mapping[str, object]:
        return of_place(attributes, scope)

    assert framework["words"]
    assert framework["labels"]
    words = [*framework["words"], *(f"{name}.0" for name in framework["words"])]  # and an entry of a list
    for name in words:
        assert not is_label(name, framework_of(scope))
    assert kept_of(dict.fromkeys(words, TEXTS)) == {}
    # A resource has no scope: names that are labels of one framework alone are not known there.
    of_scope = framework_of("" if place == "resource" else scope)
    labels = {name: "a-label" for name in framework["labels"] if is_label(name, of_scope)}
    assert labels
    assert place == "resource" or len(labels) == len(framework["labels"])
    assert kept_of(dict.fromkeys(framework["labels"], "a-label")) == labels
    numbers = dict.fromkeys(framework["numbers"], 3)
    assert kept_of(numbers) == numbers
    assert kept_of(dict.fromkeys(framework["numbers"], TEXTS)) == {}, "each is a figure, and no text"
    assert kept_of({**dict.fromkeys(words, TEXTS), **labels, **numbers}) == {**labels, **numbers}


@pytest.mark.parametrize("value", SHAPES, ids=lambda value: type(value).__name__)
def test_no_shape_of_a_value_lets_words_through(value: object) -> None:
    attributes = {**dict.fromkeys(ALWAYS_WORDS, value), "kept": 1}
    for place, kept_of in PLACES.items():
        assert kept_of(attributes) == {"kept": 1}, place
    assert without_text(attributes) == {"kept": 1}


@pytest.mark.parametrize("value", [3, 2.5, True, None, [1, 2], [], {}, "ok", [[1.5], [], {}]], ids=repr)
def test_figures_are_kept_by_any_name_and_text_by_known_names(value: object, kept_of: Kept) -> None:
    name = "gen_ai.request.model" if value == "ok" else "my.own.figure"
    assert kept_of({name: value}) == {name: value}


def test_only_status_message_is_redacted_among_names() -> None:
    span = replace(
        SPAN,
        status_code="Error",
        status_message=TEXTS,
        trace_state="k=v",
        scope_name="a",
        scope_version="1",
        events=(SpanEvent("gen_ai.choice", 1),),
    )
    (row,) = table_without_text("spans", spans_table([span])).to_pylist()
    assert span_from_row(row) == replace(span, status_message="")


def test_a_person_is_stored_under_a_pseudonym_alone(kept_of: Kept) -> None:
    known = pseudonym("+49 170 1234567", b"key")
    for name in ("user.id", "enduser.id", "user_id"):
        assert kept_of({name: "+491701234567", "kept": 1}) == {"kept": 1}
        assert kept_of({name: known, "kept": 1}) == {name: known, "kept": 1}
        assert kept_of({name: [known], "kept": 1}) == {"kept": 1}


def test_the_scope_decides_over_plain_names() -> None:
    assert framework_of("pipecat") == framework_of("pipecat.turn") == "pipecat"
    assert framework_of("pipecatx") == framework_of("my.pipecat") == framework_of("") == ""
    assert is_label("language", "pipecat")
    assert not is_label("language", framework_of("my.service"))
    assert is_label("which", "voiceprobe")
    assert not is_label("which", "pipecat")


def test_text_hidden_behind_number_in_message_is_left_out() -> None:
    hidden = AnyValue(string_value=TEXTS).SerializeToString() + AnyValue(int_value=3).SerializeToString()
    twice = b"\x0a" + bytes([len(hidden)]) + hidden
    unknown = (
        ArrayValue(values=[AnyValue(int_value=3)]).SerializeToString() + b"\x7a" + bytes([len(TEXTS)]) + TEXTS.encode()
    )
    for content in (twice, unknown):
        assert [item.int_value for item in ArrayValue.FromString(content).values] == [3]
        table = spans_table([replace(SPAN, attributes={"my.own.list": [1]})])
        (row,) = table.to_pylist()
        row["span_attributes"][0]["value"]["array_value"] = content
        altered = pa.Table.from_pylist([row], schema=table.schema)
        (altered_row,) = table_without_text("spans", altered).to_pylist()
        assert altered_row["span_attributes"] == []


def test_tables_in_several_pieces_and_none_are_cleaned() -> None:
    table = spans_table([replace(SPAN, attributes={"a": TEXTS, "b": n}) for n in range(4)])
    pieces = pa.concat_tables([table.slice(1, 2), table.slice(3), table.slice(0, 0)])
    spans = [span_from_row(row) for row in table_without_text("spans", pieces).to_pylist()]
    assert [span.attributes for span in spans] == [{"b": 1}, {"b": 2}, {"b": 3}]
    for name, schema in SCHEMAS.items():
        assert table_without_text(name, schema.empty_table()).equals(schema.empty_table())


def test_a_turn_keeps_all_but_its_transcripts() -> None:
    turn = client_turn(0, transcript_pii=TEXTS, asr_partials_pii=(TEXTS,), outcome_reason="no reply")
    (row,) = table_without_text("turns", turns_table([turn])).to_pylist()
    assert turn_from_row(row) == msgspec.structs.replace(turn, transcript_pii=None, asr_partials_pii=())


def test_every_installed_convention_name_is_classified() -> None:
    installed = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    recorded = NAMED["opentelemetry-semantic-conventions"]
    known = {*recorded["words"], *recorded["labels"], *recorded["numbers"]}
    new = sorted(name for name in installed - known if isinstance(name, str) and is_label(name))
    assert new == [], "kept, and not in the fixture: look at them, and record them"
    assert is_label(gen_ai_attributes.GEN_AI_REQUEST_MODEL)
    for name in ("GEN_AI_INPUT_MESSAGES", "GEN_AI_OUTPUT_MESSAGES", "GEN_AI_TOOL_DEFINITIONS"):
        assert not is_label(getattr(gen_ai_attributes, name, "gen_ai.input.messages"))


def test_no_label_looks_like_words() -> None:
    endings = {"content", "text", "arguments", "result", "instructions", "messages", "prompt"}
    endings |= {"input", "output", "value"}
    assert [name for name in sorted(LABELS) if name.rpartition(".")[2] in endings] == []
