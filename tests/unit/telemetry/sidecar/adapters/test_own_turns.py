"""Turns of a service of one's own, by the documented table."""

import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import TurnAssembly

from .made_spans import NOW_UNIX_NS, SECOND_NS, TRACE_ID, event, failed, span

START_UNIX_NS = NOW_UNIX_NS - SECOND_NS
EVENTS = (
    event("voice.speech.start", 0),
    event("voice.asr.partial", 120),
    event("voice.asr.partial", 250),
    event("voice.speech.end", 300),
    event("voice.asr.final", 450),
)


def turn_of(*spans: SpanRow) -> Turn:
    assembly = TurnAssembly()
    assembly.add(spans, NOW_UNIX_NS)
    assert not assembly.unmapped
    (turn,) = assembly.flush()
    return turn


def test_events_and_attributes_make_a_turn() -> None:
    attributes = {
        "gen_ai.conversation.id": "call-7",
        "voice.turn.turn_index": 4,
        "voice.turn.cache_tier": "edge",
        "voice.turn.cache_hit": True,
        "voice.turn.route": "cache",
        "voice.turn.fallback": "partial",
        "feature_flag.result.variant": "blue",
    }
    model = span(
        "voice.llm",
        3,
        2,
        {"gen_ai.request.model": "m"},
        scope_name="mine",
        events=(event("voice.llm.first_token", 530),),
    )
    voice = span("voice.tts", 4, 2, scope_name="mine", events=(event("voice.tts.first_chunk", 600),))
    turn = turn_of(voice, span("voice.turn", 2, None, attributes, scope_name="mine", events=EVENTS), model)
    assert (turn.call_id, turn.turn_index, turn.outcome, turn.source) == ("call-7", 4, "ok", "service")
    assert (turn.cache_tier, turn.cache_hit, turn.route, turn.fallback) == ("edge", True, "cache", "partial")
    assert (turn.cohort, turn.model, turn.run_id) == ("blue", "m", "service:bot:2026-11-10")
    values_ms = {
        "voice_to_voice": 300,
        "asr_partial_latency": 120,
        "asr_final_latency": 150,
        "llm_first_token_latency": 230,
        "tts_first_chunk_latency": 70,
    }
    for name, ms in values_ms.items():
        assert METRICS[name].value(turn) == ms * 1_000_000, name
    assert (turn.started_unix_ns, turn.started_perf_ns) == (START_UNIX_NS, START_UNIX_NS)


def test_a_bare_span_is_a_turn_without_a_reply() -> None:
    turn = turn_of(span("voice.turn", 2, scope_name="mine"))
    assert (turn.outcome, turn.failure_kind, turn.call_id) == ("no_reply", "no_reply", TRACE_ID)
    assert turn.first_audio_perf_ns is None


def test_a_span_in_error_is_a_turn_in_error_unless_the_reply_was_sent() -> None:
    bare = span("voice.turn", 2, None, {"error.type": "Timeout"}, scope_name="mine")
    assert (turn_of(failed(bare)).outcome, turn_of(failed(bare)).failure_code) == ("error", "Timeout")
    sent = span("voice.tts", 3, 2, scope_name="mine", events=(event("voice.tts.first_chunk", 600),))
    assert (turn_of(failed(bare), sent).outcome, turn_of(failed(bare), sent).failure_code) == ("ok", None)


def test_an_outcome_that_the_service_states_counts() -> None:
    stated = span("voice.turn", 2, None, {"voice.turn.outcome": "timeout"}, scope_name="mine")
    assert (turn_of(stated).outcome, turn_of(stated).failure_kind) == ("timeout", "timeout")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("voice.turn.outcome", "splendid"),
        ("voice.turn.cache_hit", "yes"),
        ("voice.turn.turn_index", -1),
        ("voice.turn.route", 7),
        ("gen_ai.usage.output_tokens", "many"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_left_out(name: str, value: object) -> None:
    plain, wrong = (turn_of(span("voice.turn", 2, None, each, scope_name="mine")) for each in ({}, {name: value}))
    assert wrong == plain


def test_turns_without_an_index_are_counted_as_they_begin() -> None:
    assembly = TurnAssembly()
    spans = [span("voice.turn", 9 - at, scope_name="mine", start_unix_ns=START_UNIX_NS + at) for at in range(3)]
    assembly.add(list(reversed(spans)), NOW_UNIX_NS)
    assert [(turn.turn_index, turn.span_id) for turn in assembly.flush()] == [(at, f"{9 - at:016x}") for at in range(3)]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"user.id": "u"}, "u"),
        ({"enduser.pseudo.id": "p", "enduser.id": "e"}, "p"),
        ({"user.id": "u", "feature_flag.context.id": "call-7"}, "u"),
        ({"feature_flag.context.id": "key"}, "key"),
        ({"voice.turn.user_id": "own", "user.id": "u"}, "own"),
        ({"user.id": "unknown"}, None),
        # A participant of one call, not a person: Pipecat's transports give each call a new one.
        ({"user_id": "participant"}, None),
    ],
)
def test_a_turn_names_its_user_by_opentelemetrys_names(names: dict[str, str], found: str | None) -> None:
    turn = turn_of(span("voice.turn", 2, None, names, scope_name="mine", events=EVENTS))
    assert turn.user_id == found
    bare = span("voice.turn", 2, None, {}, scope_name="mine", events=EVENTS)
    below = span("voice.llm", 3, 2, names, scope_name="mine")
    assert turn_of(below, bare).user_id == found
