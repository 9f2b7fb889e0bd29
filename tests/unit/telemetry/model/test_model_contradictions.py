"""Values that contradict the turn's own timestamps or spans: which they are, and what is left of the turn."""

from typing import get_args

import pytest

from telemetry.model.contradictions import (
    SpanBounds,
    SpanEvidence,
    of_latency,
    of_timestamps,
    without_contradictions,
)
from telemetry.model.metrics import METRICS
from telemetry.model.semconv import CONTRADICTION_LABELS, Contradiction
from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn

S = 1_000_000_000


def service_turn(**seconds: float | None) -> Turn:
    """A turn from 100 s to 104 s of a service's clock; timestamps in seconds by their names."""
    stamps = {f"{name}_perf_ns": None if at is None else round(at * S) for name, at in seconds.items()}
    start = {"started_perf_ns": 100 * S, "started_unix_ns": 100 * S, "speech_start_perf_ns": None}
    return client_turn(0, voice_to_voice_ms=None, **{**start, "source": "service", "outcome": "ok", **stamps})


@pytest.mark.parametrize(
    ("latency_s", "lasted_s", "cause"),
    [
        (203, 1.3, "longer_than_span"),  # LiveKit's end-of-turn delay
        (700, 2, "longer_than_span"),  # Pipecat's latency
        (450, 2, "longer_than_span"),  # 450 ms, stated in another unit
        (-0.4, 3, "before_request"),
        (1.3, 1.3, None),
        (1.301, 1.3, None),  # stamps of two clocks
        (59.9, 60, None),  # slow, and still in its span
        (0.0, 0, None),
        (-0.0, 1, None),
        (0.2, -1, None),  # the clock was set back within the span
        (1.2, -1, "longer_than_span"),
    ],
)
def test_a_latency_fits_the_span_that_states_it(latency_s: float, lasted_s: float, cause: Contradiction | None) -> None:
    assert of_latency(round(latency_s * S), round(lasted_s * S)) == cause


def test_a_latency_that_is_not_a_number_cannot_be() -> None:
    assert of_latency(None, S) == "not_a_number"


def test_an_answer_before_the_end_of_speech_is_no_contradiction_within_its_span() -> None:
    assert of_latency(-S, 4 * S, may_be_negative=True) is None
    assert of_latency(-5 * S, 4 * S, may_be_negative=True) == "longer_than_span"


@pytest.mark.parametrize(
    ("stamps", "spans", "found"),
    [
        # A service that starts speculatively: before the end of speech, and in its turn.
        ({"speech_start": 100, "speech_end": 103, "llm_first_token": 101}, {}, {}),
        # 41 s before the end of speech, on a machine with another clock.
        ({"speech_start": 100, "speech_end": 102, "llm_first_token": 61}, {}, {"llm_first_token": "before_turn"}),
        ({"speech_end": 102, "tts_first_chunk": 99.5}, {}, {"tts_first_chunk": "before_turn"}),
        ({"speech_end": 102, "first_audio": 90}, {}, {"first_audio": "before_turn"}),
        # A detector is sure of the speech only later, when the turn's span begins.
        ({"speech_start": 97, "speech_end": 99.6, "asr_final": 99.8}, {}, {}),
        ({"speech_end": 61, "first_audio": 102}, {}, {"speech_end": "before_turn"}),
        ({"llm_first_token": 102.1}, {"llm_first_token": (102.4, 103)}, {"llm_first_token": "before_request"}),
        ({"speech_end": 102, "asr_final": 103.5}, {"asr_final": (101, 102)}, {"asr_final": "after_span"}),
        ({"speech_end": 102, "speech_start": 100}, {"speech_end": (102.2, 104)}, {}),
        ({"speech_end": 109, "llm_first_token": 102}, {"speech_end": (100, 104)}, {"speech_end": "after_span"}),
        # A stage that began in its turn may end after it.
        ({"speech_end": 102, "tts_first_chunk": 120}, {"tts_first_chunk": (103, 121)}, {}),
        ({"speech_start": 103, "speech_end": 102}, {}, {"speech_end": "out_of_order"}),
        ({"llm_first_token": 103, "llm_last_token": 102}, {}, {"llm_last_token": "out_of_order"}),
    ],
)  # fmt: skip
def test_a_moment_fits_its_turn_and_its_span(
    stamps: dict[str, float], spans: dict[str, tuple[float, float]], found: dict[str, str]
) -> None:
    evidence = SpanEvidence(100 * S, {name: SpanBounds(round(a * S), round(b * S)) for name, (a, b) in spans.items()})
    assert of_timestamps(service_turn(**{"speech_end": None, **stamps}), evidence) == found


def test_what_a_client_heard_before_its_turn_began_cannot_be() -> None:
    turn = client_turn(asr_final_perf_ns=-2 * S, llm_first_token_perf_ns=3_100_000_000)
    found = without_contradictions(turn, of_timestamps(turn))
    assert (found.contradicted_metrics, found.contradicted_causes) == (
        ("asr_final_latency", "llm_ttft"),
        ("before_turn", "before_turn"),
    )
    assert METRICS["voice_to_voice"].value(found) == 500_000_000
    assert METRICS["llm_first_token_latency"].value(found) == 100_000_000


def test_a_negative_voice_to_voice_that_a_client_heard_is_kept() -> None:
    turn = client_turn(voice_to_voice_ms=-900.0)
    assert without_contradictions(turn, of_timestamps(turn)) == turn
    assert METRICS["voice_to_voice"].value(turn) == -900_000_000


def test_slowness_alone_is_no_contradiction() -> None:
    turn = client_turn(voice_to_voice_ms=3_600_000.0, llm_first_token_perf_ns=3_000 * S)
    assert without_contradictions(turn, of_timestamps(turn)) == turn


def test_a_duration_below_zero_is_left_out() -> None:
    turn = client_turn(connect_ns=-1, leading_silence_ns=-5, llm_chunk_gaps_ns=(4, -2), talk_over_ns=0)
    found = without_contradictions(turn, of_timestamps(turn))
    assert dict(zip(found.contradicted_metrics, found.contradicted_causes, strict=True)) == {
        "connect": "negative",
        "leading_silence": "negative",
        "itl": "out_of_order",
    }
    assert (found.connect_ns, found.leading_silence_ns, found.llm_chunk_gaps_ns, found.talk_over_ns) == (
        None,
        None,
        (),
        0,
    )


def test_what_the_wire_cannot_show_is_not_contradicted_too() -> None:
    turn = client_turn(
        asr_final_perf_ns=-9 * S, withheld_metrics=("asr_final_latency",), withheld_reasons=("no text on this wire",)
    )
    found = without_contradictions(turn, of_timestamps(turn))
    assert (found.asr_final_perf_ns, found.contradicted_metrics) == (None, ())


def test_looking_twice_changes_nothing() -> None:
    turn = client_turn(first_audio_perf_ns=-7 * S, connect_ns=-3)
    once = without_contradictions(turn, of_timestamps(turn))
    assert once.contradicted_metrics == ("voice_to_voice", "connect")
    assert without_contradictions(once, of_timestamps(once)) == once


def test_values_that_were_left_out_before_are_named_too() -> None:
    found = without_contradictions(client_turn(), {}, {"endpointing": "longer_than_span"})
    assert (found.contradicted_metrics, found.contradicted_causes) == (("endpointing",), ("longer_than_span",))


def test_every_cause_has_words_for_people() -> None:
    assert set(CONTRADICTION_LABELS) == set(get_args(Contradiction))
