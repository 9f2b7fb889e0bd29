"""The table of spans for services of one's own, against the turn and the vocabulary."""

import msgspec
import pytest

from telemetry.model import semconv
from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.services import ServiceSpanTable, service_span_table
from telemetry.model.turns import Turn

TABLE = service_span_table()
FIELDS = {field.name: field for field in msgspec.structs.fields(Turn)}


def test_every_row_becomes_a_field_of_a_turn() -> None:
    assert {each.field for each in (*TABLE.event, *TABLE.attribute)} <= set(FIELDS)
    assert {each.field.removesuffix("_perf_ns") for each in TABLE.event} == set(TIMESTAMPS), "each timestamp has one"


def test_names_are_unique_and_only_a_cohort_and_a_user_have_two() -> None:
    names = [each.name for each in (*TABLE.span, *TABLE.event, *TABLE.attribute)]
    assert len(names) == len(set(names))
    fields = [each.field for each in (*TABLE.event, *TABLE.attribute)]
    assert sorted(field for field in set(fields) if fields.count(field) > 1) == ["cohort", "user_id"]


def test_names_are_those_of_the_vocabulary_where_it_has_one() -> None:
    names = {each.name for each in (*TABLE.event, *TABLE.attribute)}
    assert {semconv.EVENT_ASR_PARTIAL, semconv.EVENT_LLM_FIRST_TOKEN} <= names
    assert {semconv.GEN_AI_CONVERSATION_ID, semconv.GEN_AI_REQUEST_MODEL, semconv.ERROR_TYPE} <= names
    assert [span.name for span in TABLE.span] == [
        semconv.SPAN_TURN,
        semconv.SPAN_ASR,
        semconv.SPAN_LLM,
        semconv.SPAN_TTS,
    ]
    for attribute in TABLE.attribute:
        if attribute.name.startswith(semconv.TURN_PREFIX):
            assert attribute.name == semconv.TURN_PREFIX + attribute.field


def test_a_row_with_a_misspelled_key_is_refused() -> None:
    row = {"name": "voice.x", "fields": "cohort", "field": "cohort", "meaning": "m"}
    with pytest.raises(msgspec.ValidationError, match="fields"):
        msgspec.convert({"span": [], "event": [], "attribute": [row]}, ServiceSpanTable)
