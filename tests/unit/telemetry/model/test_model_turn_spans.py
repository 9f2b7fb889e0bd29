"""A turn as attributes: names, what is left out, and refusals by name."""

import pytest

from telemetry.model import semconv
from telemetry.model.turn_spans import TurnDecodeError, decode_turn, turn_attributes
from telemetry.model.turns import Turn

TURN = Turn(
    run_id="run",
    call_id="call",
    turn_index=2,
    source="client",
    outcome="ok",
    started_unix_ns=1_700_000_000_000_000_000,
    started_perf_ns=5_000,
    asr_final_perf_ns=10_000_000,
    llm_first_token_perf_ns=260_000_000,
    llm_chunk_gaps_ns=(1, 2),
    cache_hit=False,
    model="tiny",
)
TRACE, SPAN = "0" * 31 + "1", "0" * 15 + "2"


@pytest.mark.parametrize("side", ["start", "end"])
def test_a_negative_uncertainty_is_refused_by_name(side: str) -> None:
    turn = Turn(
        run_id="r", call_id="c", turn_index=0, source="client", outcome="ok", started_unix_ns=1, started_perf_ns=0
    )
    name = f"voice.turn.speech_{side}_uncertainty_ns"
    assert decode_turn(turn_attributes(turn) | {name: "5"}, "", "").turn != turn
    with pytest.raises(TurnDecodeError, match=f"{name} is -1, but it cannot be negative"):
        decode_turn(turn_attributes(turn) | {name: -1}, "", "")


def test_names_are_prefixed_and_unknown_is_left_out() -> None:
    assert turn_attributes(TURN) == {
        "voice.schema_version": 3,
        "voice.turn.run_id": "run",
        "voice.turn.call_id": "call",
        "voice.turn.turn_index": 2,
        "voice.turn.source": "client",
        "voice.turn.outcome": "ok",
        "voice.turn.started_unix_ns": 1_700_000_000_000_000_000,
        "voice.turn.started_perf_ns": 5_000,
        "voice.turn.asr_final_perf_ns": 10_000_000,
        "voice.turn.llm_first_token_perf_ns": 260_000_000,
        "voice.turn.llm_chunk_gaps_ns": (1, 2),
        "voice.turn.cache_hit": False,
        "voice.turn.model": "tiny",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "call",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.time_to_first_chunk": 0.25,
    }


def test_zero_and_false_are_values() -> None:
    attributes = turn_attributes(
        Turn(**{**_required(), "sequence": 0, "underrun_count": 0, "barge_in_recovered": False})
    )
    assert attributes["voice.turn.sequence"] == 0
    assert attributes["voice.turn.underrun_count"] == 0
    assert attributes["voice.turn.barge_in_recovered"] is False
    assert decode_turn(attributes, "", "").turn.sequence == 0


def _required() -> dict[str, object]:
    return {
        "run_id": "r",
        "call_id": "c",
        "turn_index": 0,
        "source": "service",
        "outcome": "error",
        "started_unix_ns": 1,
        "started_perf_ns": 2,
    }


def test_beyond_64_bits_travels_as_text() -> None:
    turn = Turn(**{**_required(), "started_perf_ns": 2**63, "llm_chunk_gaps_ns": (1, -(2**64))})
    attributes = turn_attributes(turn)
    assert attributes["voice.turn.started_perf_ns"] == "9223372036854775808"
    assert attributes["voice.turn.llm_chunk_gaps_ns"] == ("1", "-18446744073709551616")
    assert decode_turn(attributes, "", "").turn == turn


def test_text_that_is_no_unicode_still_travels() -> None:
    attributes = turn_attributes(Turn(**{**_required(), "transcript_pii": "a\ud800b"}))
    assert attributes["voice.turn.transcript_pii"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("speech_end_perf_ns", 7.0, 7),
        ("speech_end_perf_ns", -7.0, -7),
        ("speech_end_perf_ns", "-12", -12),
        ("snr_asked_db", 10, 10.0),
        ("snr_asked_db", "-0.5", -0.5),
        ("cache_hit", "true", True),
        ("cache_hit", "false", False),
        ("llm_chunk_gaps_ns", ["3", 4.0], (3, 4)),
        ("cohort", None, None),
    ],
)
def test_other_encoders_spellings_are_read(field: str, value: object, read: object) -> None:
    attributes = {**turn_attributes(TURN), f"voice.turn.{field}": value}
    assert getattr(decode_turn(attributes, TRACE, SPAN).turn, field) == read


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("speech_end_perf_ns", 7.5, "is 7.5, but a whole number is expected"),
        ("speech_end_perf_ns", float(2**60), "a whole number is expected"),
        ("speech_end_perf_ns", float("nan"), "a whole number is expected"),
        ("speech_end_perf_ns", True, "is True, but a whole number is expected"),
        ("speech_end_perf_ns", "1_000", "a whole number is expected"),
        ("speech_end_perf_ns", "٣", "a whole number is expected"),
        ("turn_index", -1, "is -1, but it cannot be negative"),
        ("cache_hit", 1, "is 1, but true or false is expected"),
        ("outcome", "fine", "is 'fine', but one of abandoned, cut, error"),
        ("source", ["client"], "one of client, service is expected"),
        ("route", "", "one of cache, cloud, local, rule is expected"),
        ("snr_asked_db", "loud", "is 'loud', but a number is expected"),
        ("snr_asked_db", False, "is False, but a number is expected"),
        ("cohort", 3, "is 3, but text is expected"),
        ("withheld_metrics", "a: b", "is 'a: b', but an array is expected"),
        ("withheld_reasons", [1], "is 1, but text is expected"),
        ("llm_chunk_gaps_ns", [0, None], "is None, but a whole number is expected"),
        ("run_id", b"x" * 200, "..., but text is expected"),
    ],
)
def test_what_has_no_single_reading_is_refused_by_name(field: str, value: object, problem: str) -> None:
    with pytest.raises(TurnDecodeError) as caught:
        decode_turn({**turn_attributes(TURN), f"voice.turn.{field}": value}, TRACE, SPAN)
    assert caught.value.attribute == f"voice.turn.{field}"
    assert str(caught.value).startswith(f"attribute voice.turn.{field} ")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("field", list(_required()))
def test_a_missing_required_field_is_named(field: str) -> None:
    attributes = {name: value for name, value in turn_attributes(TURN).items() if name != f"voice.turn.{field}"}
    with pytest.raises(TurnDecodeError, match=rf"attribute voice\.turn\.{field} is missing"):
        decode_turn(attributes, TRACE, SPAN)


def test_newer_fields_are_reported_and_foreign_names_ignored() -> None:
    decoded = decode_turn({**turn_attributes(TURN), "voice.turn.mood": "calm", "lk.e2e_latency": 3}, TRACE, SPAN)
    assert decoded.unknown_fields == ("voice.turn.mood",)
    assert decoded.turn.trace_id == TRACE
    assert decoded.turn.span_id == SPAN


def test_all_fields_fit_into_a_span() -> None:
    assert len(Turn.__struct_fields__) + 8 < 512
    assert semconv.TURN_PREFIX == "voice.turn."
