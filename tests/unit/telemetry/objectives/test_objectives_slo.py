"""Verdicts: good turns over eligible turns, and none from too little."""

import msgspec
import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import (
    NotObservable,
    Objective,
    count_turns,
    default_objectives,
    is_good,
    judge,
    not_judged,
)

MS = 1_000_000
FAST = Objective("fast", "metric", 0.95, "voice_to_voice", 800 * MS)
TURN = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="client",
    outcome="ok",
    started_unix_ns=0,
    started_perf_ns=0,
    speech_end_perf_ns=1_000 * MS,
    first_audio_perf_ns=1_800 * MS,
    cohort="A",
    length_class="short",
    noise_profile="babble",
)


def changed(**fields: object) -> Turn:
    return msgspec.structs.replace(TURN, **fields)


@pytest.mark.parametrize(
    ("good", "eligible", "met", "reason"),
    [
        (0, 0, None, "undecided: 0 of 20 turns; 20 more needed"),
        (19, 19, None, "undecided: 19 of 20 turns; 1 more needed"),
        (18, 19, None, "undecided: 19 of 20 turns; 1 more needed; 18 good so far"),
        (0, 19, None, "undecided: 19 of 20 turns; 1 more needed; 0 good so far"),  # a thousand good ones may follow
        (0, 1, None, "undecided: 1 of 20 turns; 19 more needed; 0 good so far"),
        (20, 20, True, None),
        (19, 20, True, None),
        (18, 20, False, None),
        (949, 1000, False, None),
        (950, 1000, True, None),
    ],
)
def test_the_verdict(good: int, eligible: int, met: bool | None, reason: str | None) -> None:
    (verdict,) = judge([FAST], lambda _: EligibleTurns(good, eligible))
    assert (verdict.met, verdict.reason) == (met, reason)
    assert (verdict.good, verdict.eligible, verdict.minimum_turns, verdict.target) == (good, eligible, 20, 0.95)
    assert verdict.ratio == (good / eligible if eligible else None)
    assert (verdict.budget_left is None) == (met is None)


def test_the_sentence_says_it_all() -> None:
    (verdict,) = judge([FAST], lambda _: EligibleTurns(97, 100))
    assert verdict.sentence == "95 % of turns: voice to voice at most 800 ms: 97 % of 100 turns, met"
    (verdict,) = judge([FAST], lambda _: EligibleTurns(12, 12))
    assert verdict.sentence == "95 % of turns: voice to voice at most 800 ms: undecided: 12 of 20 turns; 8 more needed"
    (verdict,) = judge([FAST], lambda _: EligibleTurns(9, 12))
    assert verdict.sentence == (
        "95 % of turns: voice to voice at most 800 ms: undecided: 12 of 20 turns; 8 more needed; 9 good so far"
    )


@pytest.mark.parametrize("counted", [(0, 0), (97, 100), (9, 100)])
def test_objective_not_judged_is_neither_met_nor_missed(counted: tuple[int, int]) -> None:
    (verdict,) = not_judged([FAST], judge([FAST], lambda _: EligibleTurns(*counted)), "for a reason")
    assert (verdict.met, verdict.budget_left, verdict.is_judged) == (None, None, False)
    assert (verdict.good, verdict.eligible) == counted
    assert verdict.sentence == "95 % of turns: voice to voice at most 800 ms: not judged: for a reason"


@pytest.mark.parametrize(("good", "left"), [(1000, 1.0), (975, 0.5), (950, 0.0), (900, -1.0)])
def test_the_budget_left(good: int, left: float) -> None:
    (verdict,) = judge([FAST], lambda _: EligibleTurns(good, 1000))
    assert verdict.budget_left == pytest.approx(left, abs=1e-9)


def test_99_percent_needs_100_turns() -> None:
    objective = Objective("good", "outcome", 0.99, outcomes=("ok",))
    assert judge([objective], lambda _: EligibleTurns(99, 99))[0].met is None
    assert judge([objective], lambda _: EligibleTurns(99, 100))[0].met is True


def test_objective_hidden_by_wire_is_not_met() -> None:
    def count(objective: Objective) -> EligibleTurns:
        raise NotObservable("this endpoint sends no transcripts")

    (verdict,) = judge([FAST], count)
    assert (verdict.met, verdict.ratio) == (None, None)
    assert verdict.reason == "not observable: this endpoint sends no transcripts"
    assert not verdict.is_observable


@pytest.mark.parametrize("counted", [(3, 2), (-1, 5)])
def test_an_impossible_count_is_a_fault(counted: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="was counted as"):
        judge([FAST], lambda _: EligibleTurns(*counted))


@pytest.mark.parametrize(
    ("turn", "good"),
    [
        (TURN, True),
        (changed(first_audio_perf_ns=1_800 * MS + 1), False),
        (changed(first_audio_perf_ns=900 * MS), True),  # talk-over is kept, and is fast
        (changed(first_audio_perf_ns=None, outcome="no_reply"), False),
        (changed(first_audio_perf_ns=None, outcome="abandoned"), False),
        (changed(first_audio_perf_ns=None), False),  # not measured never passes
        (changed(outcome="error"), False),  # it began well and broke down
        (changed(outcome="interrupted"), True),
        (changed(outcome="invalid"), None),
        (changed(source="service"), None),
        (changed(withheld_metrics=("voice_to_voice",), withheld_reasons=("no audio on this wire",)), None),
    ],
)
def test_voice_to_voice_turn_by_turn(turn: Turn, good: bool | None) -> None:
    assert is_good(FAST, turn) is good


def test_a_stage_that_had_nothing_to_measure_does_not_count() -> None:
    stopped = Objective("stop", "metric", 0.95, "barge_in_stop", 300 * MS)
    assert is_good(stopped, TURN) is None
    assert is_good(stopped, changed(outcome="no_reply")) is None
    assert is_good(stopped, changed(barge_in_stop_ns=300 * MS)) is True
    transcript = Objective("asr", "metric", 0.95, "asr_final_latency", 400 * MS)
    assert is_good(transcript, TURN) is None
    assert is_good(transcript, changed(outcome="timeout")) is False


def test_higher_is_better_turns_the_bound_round() -> None:
    objective = Objective("rate", "metric", 0.95, "tokens_per_s", 20.0)
    assert METRICS["tokens_per_s"].higher_is_better
    stream = {"llm_first_token_perf_ns": 0, "llm_last_token_perf_ns": 1_000 * MS}
    assert is_good(objective, changed(llm_tokens=21, **stream)) is True
    assert is_good(objective, changed(llm_tokens=20, **stream)) is False
    assert "tokens per second at least 20/s" in objective.sentence


def test_outcome_fallback_and_cache() -> None:
    outcome = Objective("o", "outcome", 0.99, outcomes=("ok", "interrupted"))
    assert [is_good(outcome, changed(outcome=name)) for name in ("ok", "interrupted", "abandoned", "invalid")] == [
        True,
        True,
        False,
        None,
    ]
    fallback = Objective("f", "fallback", 0.95)
    assert is_good(fallback, TURN) is None  # the endpoint did not say
    assert is_good(fallback, changed(route="cloud")) is True
    assert is_good(fallback, changed(route="rule", fallback="rule")) is False
    cache = Objective("c", "cache", 0.3)
    assert [is_good(cache, changed(cache_hit=hit)) for hit in (True, False, None)] == [True, False, None]


@pytest.mark.parametrize(
    ("dimension", "value"),
    [("cohort", "A"), ("length_class", "short"), ("noise_profile", "babble")],
)
def test_dimensions_narrow_what_counts(dimension: str, value: str) -> None:
    narrowed = Objective("n", "metric", 0.95, "voice_to_voice", 800 * MS, **{dimension: value})
    assert is_good(narrowed, TURN) is True
    assert is_good(narrowed, changed(**{dimension: None})) is None
    assert is_good(narrowed, changed(**{dimension: "long"})) is None
    assert f"({value})" in narrowed.sentence


def test_turns_in_memory_are_counted() -> None:
    turns = [TURN] * 19 + [changed(outcome="no_reply", first_audio_perf_ns=None)] + [changed(outcome="invalid")] * 7
    (verdict,) = judge([FAST], count_turns(turns))
    assert (verdict.good, verdict.bad, verdict.open, verdict.eligible) == (19, 1, {"generator": 7}, 27)
    assert verdict.met is None, "19 of 27 if the seven were bad, 26 of 27 if they were good"
    assert verdict.is_generator_limited


def test_defaults_are_read_once_and_each_list_is_own_copy() -> None:
    first, second = default_objectives(), default_objectives()
    assert all(one is other for one, other in zip(first, second, strict=True))
    first.clear()
    assert default_objectives() == second


def test_the_default_stages_add_up_to_the_whole() -> None:
    thresholds = {objective.metric: objective.threshold for objective in default_objectives()}
    assert thresholds["voice_to_voice"] == 800 * MS
    assert thresholds["llm_first_token_latency"] + thresholds["tts_first_chunk_latency"] == 800 * MS
    assert thresholds["asr_final_latency"] == 400 * MS
    assert default_objectives()[0].name == "voice-to-voice"
    assert {objective.kind: objective.target for objective in default_objectives()} == {"metric": 0.95, "outcome": 0.99}


CONNECT = Objective("connect", "metric", 0.95, "connect", 1_000 * MS)


@pytest.mark.parametrize(
    ("turn", "good"),
    [
        (changed(connect_ns=1_000 * MS), True),
        (changed(connect_ns=1_000 * MS + 1), False),
        (changed(connect_ns=20 * MS, outcome="no_reply"), True),  # of the answer others judge
        (changed(connect_ns=None, outcome="error"), False),  # it could not be connected
        (changed(connect_ns=None, outcome="error", turn_kind="silence"), False),  # nor could a caller who says nothing
        (changed(connect_ns=None, outcome="error", turn_index=2), None),  # a later turn: the call is counted already
        (changed(connect_ns=None), None),  # somebody else's caller, who does not say
        (changed(connect_ns=None, outcome="invalid", outcome_observed="error"), None),  # our own fault
    ],
)
def test_a_call_that_could_not_be_connected_is_a_bad_one(turn: Turn, good: bool | None) -> None:
    assert is_good(CONNECT, turn) is good


def test_an_objective_for_connect_counts_calls() -> None:
    (verdict,) = judge([CONNECT], lambda _: EligibleTurns(19, 20))
    assert verdict.sentence == "95 % of calls: connect at most 1,000 ms: 95 % of 20 calls, met"
    (verdict,) = judge([CONNECT], lambda _: EligibleTurns(5, 5))
    assert (verdict.reason, verdict.counts) == ("undecided: 5 of 20 calls; 15 more needed", "calls")


def test_connecting_has_a_default_objective() -> None:
    (objective,) = (objective for objective in default_objectives() if objective.metric == "connect")
    assert (objective.threshold, objective.target) == (1_000 * MS, 0.95)


def test_service_turns_count_only_where_requested() -> None:
    assert is_good(FAST, changed(source="service")) is None
    assert is_good(FAST, TURN, "service") is None
    assert is_good(FAST, changed(source="service"), "service") is True
    assert is_good(FAST, changed(source="service", outcome="no_reply"), "service") is False


@pytest.mark.parametrize("metric", ["voice_to_voice", "connect"])
def test_value_not_reported_by_service_is_not_bad(metric: str) -> None:
    objective = Objective("any", "metric", 0.95, metric, 800 * MS)
    unreported = {"first_audio_perf_ns": None, "connect_ns": None, "outcome": "error" if metric == "connect" else "ok"}
    assert is_good(objective, changed(**unreported)) is False
    assert is_good(objective, changed(**unreported, source="service"), "service") is None
