"""Turns of a service of one's own, by the documented table."""

from collections.abc import Mapping
from typing import Any

import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turn_spans import SpanEvent, SpanRow
from telemetry.model.turns import Turn

from .made_spans import NOW_UNIX_NS, SECOND_NS, TRACE_ID, event, failed, span
from .stored_turns import turns_of

START_UNIX_NS = NOW_UNIX_NS - SECOND_NS
EVENTS = (
    event("voice.speech.start", 0),
    event("voice.asr.partial", 120),
    event("voice.asr.partial", 250),
    event("voice.speech.end", 300),
    event("voice.asr.final", 450),
)


def turn_of(*spans: SpanRow) -> Turn:
    (turn,) = turns_of(spans)
    return turn


def own(name: str = "turn", attributes: Mapping[str, object] | None = None, **more: Any) -> SpanRow:
    """The span of a turn with its events, or of one of its stages with one event or none."""
    if name == "turn":
        return span("voice.turn", 2, None, attributes, scope_name="mine", **{"events": EVENTS, **more})
    return span(f"voice.{name}", {"llm": 3, "tts": 4}[name], 2, attributes, scope_name="mine", **more)


TOKEN, CHUNK = "voice.llm.first_token", "voice.tts.first_chunk"
MODEL, VOICE = own("llm", events=(event(TOKEN, 530),)), own("tts", events=(event(CHUNK, 600),))
BARE_MODEL, BARE_VOICE, BARE_TURN = own("llm"), own("tts"), own(events=())


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
    model = own("llm", {"gen_ai.request.model": "m"}, events=(event(TOKEN, 530),))
    turn = turn_of(VOICE, own("turn", attributes), model)
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
    turn = turn_of(BARE_TURN)
    assert (turn.outcome, turn.failure_kind, turn.call_id) == ("no_reply", "no_reply", TRACE_ID)
    assert turn.first_audio_perf_ns is None


def test_span_in_error_is_failed_turn_unless_reply_was_sent() -> None:
    bare = failed(own("turn", {"error.type": "Timeout"}, events=()))
    assert (turn_of(bare).outcome, turn_of(bare).failure_code) == ("error", "Timeout")
    assert (turn_of(bare, VOICE).outcome, turn_of(bare, VOICE).failure_code) == ("ok", None)


def test_an_outcome_that_the_service_states_counts() -> None:
    stated = own("turn", {"voice.turn.outcome": "timeout"}, events=())
    assert (turn_of(stated).outcome, turn_of(stated).failure_kind) == ("timeout", "timeout")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("voice.turn.outcome", "splendid"),
        # These would take the turn out of every ratio and comparison.
        ("voice.turn.outcome", ["cut"]),
        ("voice.turn.outcome", "cut"),
        ("voice.turn.outcome", "invalid"),
        ("voice.turn.cache_hit", "yes"),
        ("voice.turn.turn_index", -1),
        ("voice.turn.route", 7),
        ("gen_ai.usage.output_tokens", "many"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_left_out(name: str, value: object) -> None:
    assert turn_of(own("turn", {name: value}, events=())) == turn_of(BARE_TURN)


@pytest.mark.parametrize(
    ("stages", "missing"),
    [
        ((MODEL, BARE_VOICE), {"voice_to_voice", "tts_first_chunk_latency"}),
        ((BARE_MODEL, VOICE), {"llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency"}),
        ((VOICE,), {"llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency"}),
        (
            (BARE_MODEL, BARE_VOICE),
            {"voice_to_voice", "llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency"},
        ),
    ],
)
def test_turn_whose_stages_lack_a_time_lacks_only_that_value(stages: tuple[SpanRow, ...], missing: set[str]) -> None:
    """A turn that vanished with its slow stage would leave the comparison to the others."""
    whole, turn = turn_of(own(), MODEL, VOICE), turn_of(own(), *stages)
    assert (turn.outcome, turn.call_id, turn.span_id) == ("ok", whole.call_id, whole.span_id)
    known = {name for name, metric in METRICS.items() if metric.value(whole) is not None}
    assert {name for name in known if METRICS[name].value(turn) is None} == missing


def test_turns_without_an_index_are_counted_as_they_begin() -> None:
    spans = [span("voice.turn", 9 - at, scope_name="mine", start_unix_ns=START_UNIX_NS + at) for at in range(3)]
    turns = turns_of(list(reversed(spans)))
    assert [(turn.turn_index, turn.span_id) for turn in turns] == [(at, f"{9 - at:016x}") for at in range(3)]


@pytest.mark.parametrize(
    ("names", "user_id"),
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
def test_a_turn_names_its_user_by_opentelemetrys_names(names: dict[str, str], user_id: str | None) -> None:
    assert turn_of(own("turn", names)).user_id == user_id
    assert turn_of(own("llm", names), own()).user_id == user_id


def test_synthesis_without_time_is_answer_of_unstated_latency() -> None:
    turn = turn_of(own(), BARE_VOICE)
    assert (turn.outcome, turn.first_audio_perf_ns, turn.contradicted_metrics) == ("ok", None, ())
    assert METRICS["asr_final_latency"].value(turn) == 150_000_000


def test_a_synthesis_that_failed_is_no_answer() -> None:
    assert turn_of(own(), failed(BARE_VOICE)).outcome == "no_reply"


def test_an_event_outside_the_span_that_has_it_is_withheld() -> None:
    """A machine with another clock: its span lies in its own time, its event in the future."""
    turn = turn_of(own(), own("llm", events=(event(TOKEN, 41_000),)), VOICE)
    assert METRICS["voice_to_voice"].value(turn) == 300_000_000
    assert dict(zip(turn.contradicted_metrics, turn.contradicted_causes, strict=True)) == {
        "llm_first_token_latency": "after_span",
        "llm_ttft": "after_span",
        "tts_first_chunk_latency": "after_span",
    }


def test_a_stage_before_its_turn_began_is_withheld() -> None:
    """41 s before the end of speech, in a turn of 1 s."""
    earlier_ns = START_UNIX_NS - 41 * SECOND_NS
    ended_ns, token = earlier_ns + SECOND_NS, event(TOKEN, -40_900)
    turn = turn_of(own(), own("llm", start_unix_ns=earlier_ns, end_unix_ns=ended_ns, events=(token,)))
    assert (turn.llm_first_token_perf_ns, turn.started_unix_ns) == (None, START_UNIX_NS)
    assert (turn.contradicted_metrics, turn.contradicted_causes) == (("llm_first_token_latency",), ("before_turn",))


def test_a_first_token_before_the_end_of_speech_is_kept() -> None:
    turn = turn_of(own(), own("llm", events=(event(TOKEN, 200),)))
    assert METRICS["llm_first_token_latency"].value(turn) == -100_000_000
    assert turn.contradicted_metrics == ()


def test_an_event_at_0_is_no_moment_and_files_no_turn_under_1970() -> None:
    turn = turn_of(own(events=(*EVENTS, SpanEvent(CHUNK, 0))))
    assert (turn.started_unix_ns, turn.tts_first_chunk_perf_ns, turn.outcome) == (START_UNIX_NS, None, "no_reply")
