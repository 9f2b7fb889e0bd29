"""One turn judged by one objective, and what open turns do to a verdict: they never help a claim."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns, Judgment, count_turns, judge_turn, turns_to_verdict
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import Verdict, default_objectives, judge

MS = 1_000_000
# One whole answered turn: every metric of an answer has a value.
WHOLE = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="client",
    outcome="ok",
    started_unix_ns=0,
    started_perf_ns=0,
    speech_start_perf_ns=1_000 * MS,
    speech_end_perf_ns=3_000 * MS,
    endpoint_perf_ns=3_200 * MS,
    asr_first_partial_perf_ns=1_400 * MS,
    asr_final_perf_ns=3_300 * MS,
    llm_first_token_perf_ns=3_450 * MS,
    llm_first_sentence_perf_ns=3_500 * MS,
    llm_last_token_perf_ns=3_900 * MS,
    tts_first_chunk_perf_ns=3_600 * MS,
    tts_last_chunk_perf_ns=4_000 * MS,
    first_audio_perf_ns=3_620 * MS,
    reply_end_perf_ns=5_600 * MS,
    connect_ns=40 * MS,
    leading_silence_ns=20 * MS,
    underrun_worst_ns=0,
    underrun_total_ns=0,
    underrun_count=0,
    rtp_packets_received=100,
    rtp_packets_lost=0,
    rtp_jitter_worst_ns=3 * MS,
    reply_audio_ns=2_000 * MS,
    llm_tokens=12,
    llm_chunks=6,
    llm_input_tokens=400,
    llm_cached_tokens=300,
    wer_errors=0,
    wer_reference_words=5,
)
# What must be gone for the stage of a metric to be missing. Metrics of a moment that not every turn has are not here.
STAGE: dict[str, tuple[str, ...]] = {
    "voice_to_voice": ("first_audio_perf_ns",),
    "endpointing": ("endpoint_perf_ns",),
    "asr_partial_latency": ("asr_first_partial_perf_ns",),
    "asr_final_latency": ("asr_final_perf_ns",),
    "llm_first_token_latency": ("llm_first_token_perf_ns",),
    "llm_ttft": ("llm_first_token_perf_ns",),
    "tts_first_chunk_latency": ("tts_first_chunk_perf_ns",),
    "leading_silence": ("leading_silence_ns",),
    "time_to_first_sentence": ("llm_first_sentence_perf_ns",),
    "connect": ("connect_ns",),
    "underrun_worst": ("underrun_worst_ns",),
    "underrun_total": ("underrun_total_ns",),
    "underrun_count": ("underrun_count",),
    "packet_loss": ("rtp_packets_received", "rtp_packets_lost"),
    "jitter": ("rtp_jitter_worst_ns",),
    "tokens_per_s": ("llm_first_token_perf_ns",),
    "tokens_per_s_wall": ("llm_first_token_perf_ns", "llm_last_token_perf_ns"),
    "tokens_per_chunk": ("llm_tokens",),
    "audio_rtfx": ("tts_first_chunk_perf_ns",),
    "prompt_cached": ("llm_cached_tokens",),
    "wer": ("asr_final_perf_ns", "wer_errors", "wer_reference_words"),
}
OF_SOME_TURNS = {"barge_in_stop", "talk_over"}
FAST = Objective("fast", "metric", 0.95, "voice_to_voice", 800 * MS)
ANSWERED = Objective("answered", "outcome", 0.99, outcomes=("ok", "interrupted"))


def changed(turn: Turn = WHOLE, **fields: object) -> Turn:
    return msgspec.structs.replace(turn, **fields)


def lenient(metric: str, target: float = 0.95) -> Objective:
    """An objective that any value of the metric meets."""
    worst = 0.0 if METRICS[metric].higher_is_better else 1e15
    return Objective(metric, "metric", target, metric, worst)


def without(metric: str, **fields: object) -> Turn:
    return changed(**dict.fromkeys(STAGE[metric]), **fields)


def verdict_on(objective: Objective, turns: Sequence[Turn]) -> Verdict:
    return judge([objective], count_turns(turns))[0]


def test_every_metric_is_either_of_a_stage_or_of_some_turns() -> None:
    assert set(STAGE) | OF_SOME_TURNS == set(METRICS)
    assert all(METRICS[name].value(WHOLE) is not None for name in STAGE)
    assert all(METRICS[name].value(without(name)) is None for name in STAGE)


@pytest.mark.parametrize("metric", STAGE)
def test_stage_missing_in_every_second_turn_is_never_met(metric: str) -> None:
    """48 turns, a value in 24 of them: all good. What never came is bad."""
    turns = [WHOLE if index % 2 else without(metric) for index in range(48)]
    verdict = verdict_on(lenient(metric), turns)
    assert (verdict.met, verdict.good, verdict.bad, verdict.eligible) == (False, 24, 24, 48)


@pytest.mark.parametrize("metric", sorted(set(STAGE) - {"voice_to_voice"}))
def test_stage_absent_from_whole_run_is_not_shown_and_undecided(metric: str) -> None:
    verdict = verdict_on(lenient(metric), [without(metric)] * 48)
    assert (verdict.met, verdict.eligible) == (None, 0)
    # Another run that has it says nothing about this one.
    both = [changed(run_id="other")] * 30 + [without(metric)] * 48
    assert (verdict_on(lenient(metric), both).met, verdict_on(lenient(metric), both).eligible) == (True, 30)


def test_answer_without_sound_is_bad_even_if_no_turn_has_one() -> None:
    verdict = verdict_on(FAST, [without("voice_to_voice")] * 48)
    assert (verdict.met, verdict.bad) == (False, 48)


@pytest.mark.parametrize("metric", sorted(OF_SOME_TURNS))
def test_metric_of_some_turns_is_not_required_of_the_others(metric: str) -> None:
    measured = changed(barge_in_stop_ns=100 * MS, talk_over_ns=0)
    verdict = verdict_on(lenient(metric), [measured] * 20 + [WHOLE] * 28)
    assert (verdict.met, verdict.eligible) == (True, 20)


def test_agent_that_never_stopped_is_bad_and_unknown_not_counted() -> None:
    stop = Objective("stop", "metric", 0.95, "barge_in_stop", 300 * MS)
    assert judge_turn(stop, changed(barge_in_end="stopped", barge_in_stop_ns=200 * MS)) is Judgment.GOOD
    assert judge_turn(stop, changed(barge_in_end="never_stopped")) is Judgment.BAD
    for end in (None, "ended_by_itself", "cannot_tell"):
        assert judge_turn(stop, changed(barge_in_end=end)) is None
    verdict = verdict_on(stop, [changed(barge_in_end="never_stopped")] * 30)
    assert (verdict.met, verdict.bad) == (False, 30), "also if not one of them stopped"


@pytest.mark.parametrize(
    ("metric", "fields"),
    [
        ("tokens_per_s", {"llm_tokens": 1, "llm_chunks": 1}),
        ("audio_rtfx", {"tts_last_chunk_perf_ns": 3_600 * MS}),  # all of it came in one chunk
        ("llm_ttft", {"asr_final_perf_ns": 3_500 * MS}),  # the service transcribes during its reply
        ("wer", {"wer_errors": None, "wer_reference_words": None}),  # the clip has no text
        ("connect", {"connect_ns": None, "turn_index": 3}),
    ],
)
def test_a_turn_with_nothing_to_measure_owes_no_value(metric: str, fields: dict[str, object]) -> None:
    assert judge_turn(lenient(metric), changed(**fields)) is None


@pytest.mark.parametrize("metric", STAGE)
@pytest.mark.parametrize("outcome", ["no_reply", "timeout", "error", "abandoned"])
def test_a_turn_without_an_answer_is_bad_by_every_metric_of_one(metric: str, outcome: str) -> None:
    if metric != "connect":
        assert judge_turn(lenient(metric), changed(outcome=outcome)) is Judgment.BAD


INTERRUPTED = changed(
    outcome="interrupted",
    first_audio_perf_ns=None,
    reply_end_perf_ns=None,
    tts_first_chunk_perf_ns=None,
    llm_first_token_perf_ns=None,
    asr_final_perf_ns=None,
    leading_silence_ns=None,
)


def test_turn_interrupted_before_any_sound_is_open() -> None:
    assert judge_turn(ANSWERED, INTERRUPTED) is Judgment.INTERRUPTED
    assert judge_turn(FAST, INTERRUPTED) is Judgment.INTERRUPTED
    assert judge_turn(FAST, changed(INTERRUPTED, hangup_perf_ns=3_800 * MS)) is Judgment.INTERRUPTED
    assert judge_turn(FAST, changed(INTERRUPTED, hangup_perf_ns=3_801 * MS)) is Judgment.BAD, "it waited beyond 800 ms"
    heard = changed(outcome="interrupted")
    assert judge_turn(ANSWERED, heard) is Judgment.GOOD
    assert judge_turn(FAST, heard) is Judgment.GOOD
    # On a wire without audio, words are what is heard.
    text_only = {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("no audio on this wire",)}
    assert judge_turn(ANSWERED, changed(INTERRUPTED, llm_first_token_perf_ns=3_400 * MS, **text_only)) is Judgment.GOOD


@pytest.mark.parametrize("objective", [FAST, ANSWERED, *default_objectives()], ids=lambda objective: objective.name)
def test_reply_ended_by_endpoint_before_any_sound_is_no_answer(objective: Objective) -> None:
    broken_off = changed(INTERRUPTED, failure_kind="interrupted")
    expected = Judgment.GOOD if objective.metric == "connect" else Judgment.BAD
    assert judge_turn(objective, broken_off) is expected


def test_a_turn_that_the_end_of_the_run_cut_is_open() -> None:
    assert judge_turn(ANSWERED, changed(outcome="cut")) is Judgment.CUT
    before = changed(INTERRUPTED, outcome="cut", hangup_perf_ns=3_700 * MS)
    assert judge_turn(FAST, before) is Judgment.CUT
    assert judge_turn(FAST, changed(before, hangup_perf_ns=3_801 * MS)) is Judgment.BAD


@pytest.mark.parametrize("objective", [*default_objectives(), ANSWERED], ids=lambda objective: objective.name)
def test_a_turn_that_is_not_as_recorded_is_open(objective: Objective) -> None:
    assert judge_turn(objective, changed(outcome="invalid")) is Judgment.GENERATOR
    # Also a call that our own exhaustion prevented: it has nothing at all.
    bare = changed(outcome="invalid", **{name: None for names in STAGE.values() for name in names})
    assert judge_turn(objective, bare) is Judgment.GENERATOR


def test_metric_hidden_by_wire_does_not_count() -> None:
    asr = Objective("asr", "metric", 0.95, "asr_final_latency", 400 * MS)
    hidden = {"withheld_metrics": ("asr_final_latency",), "withheld_reasons": ("this wire has no transcripts",)}
    assert judge_turn(FAST, changed(**hidden)) is Judgment.GOOD, "another metric"
    assert judge_turn(asr, without("asr_final_latency", **hidden)) is None
    assert judge_turn(asr, without("asr_final_latency", outcome="invalid", **hidden)) is None


def test_unstated_service_value_is_open_and_unanswered_is_bad() -> None:
    unstated = without("voice_to_voice", source="service")
    assert judge_turn(FAST, unstated, "service") is Judgment.NOT_STATED
    assert judge_turn(ANSWERED, unstated, "service") is Judgment.GOOD
    assert judge_turn(FAST, changed(unstated, outcome="no_reply"), "service") is Judgment.BAD
    turns = [changed(source="service")] * 19 + [unstated] * 29
    (verdict,) = judge([FAST], count_turns(turns, "service"))
    assert (verdict.met, verdict.good, verdict.eligible, verdict.open_turns) == (None, 19, 48, 29)
    # A stage that it never states is not shown; one that it states elsewhere is open.
    asr = Objective("asr", "metric", 0.95, "asr_final_latency", 400 * MS)
    silent = without("asr_final_latency", source="service")
    assert count_turns([silent] * 30, "service")(asr).eligible == 0
    assert count_turns([silent] * 30 + [changed(source="service")], "service")(asr).open_turns == 30


def counts(good: int, bad: int, causes: dict[str, int]) -> Callable[[Objective], EligibleTurns]:
    return lambda _: EligibleTurns(good, good + bad + sum(causes.values()), causes)


def test_sentence_states_open_turns() -> None:
    met = judge([FAST], counts(98, 0, {"generator": 4}))[0]
    assert met.sentence.endswith("100 % of 98 turns, met, even if all 4 unmeasured turns had been slow")
    missed = judge([FAST], counts(60, 40, {"generator": 1}))[0]
    assert missed.sentence.endswith("60 % of 100 turns, missed, even if the unmeasured turn had been good")
    between = judge([FAST], counts(90, 3, {"generator": 6, "telemetry lost": 1}))[0]
    assert between.met is None
    assert between.reason == (
        "undecided: 7 turns are open (6 generator, 1 telemetry lost): 90 % to 97 % of 100 turns are good;"
        " more turns cannot decide it while as many are open"
    )
    answered = judge([ANSWERED], counts(200, 0, {"generator": 1}))[0]
    assert answered.sentence.endswith("met, even if the unmeasured turn had been bad")
    calls = Objective("connect", "metric", 0.95, "connect", 1e9)
    assert judge([calls], counts(98, 0, {"generator": 4}))[0].sentence.endswith("all 4 unmeasured calls had been slow")


@pytest.mark.parametrize(
    ("good", "bad", "causes", "limited"),
    [
        (75, 3, {"generator": 4}, True),  # without them 75 of 78 would be met
        (75, 3, {"telemetry lost": 4}, False),
        (100, 0, {"generator": 4}, False),  # met all the same
        (60, 40, {"generator": 4}, False),  # missed all the same
        (5, 0, {"generator": 30}, True),  # too few turns, because the generator prevented the others
        (5, 0, {"generator": 3}, False),  # too few turns, whatever these had shown
        (0, 0, {"generator": 40}, True),
        (
            15,
            0,
            {"generator": 5, "cut by the end of the run": 30},
            False,
        ),  # these prevent a verdict, whatever it had shown
        (90, 3, {"generator": 1, "speech bounds uncertain": 6}, False),
        (90, 3, {"speech bounds uncertain": 7}, False),
    ],
)
def test_generator_is_limit_only_if_its_open_turns_decide(
    good: int, bad: int, causes: dict[str, int], limited: bool
) -> None:
    assert judge([FAST], counts(good, bad, causes))[0].is_generator_limited is limited


@given(st.integers(0, 300), st.integers(0, 60), st.integers(0, 60), st.integers(1, 40), st.floats(0.5, 0.99))
def test_more_open_turns_never_make_a_claim_of_an_undecided_one(
    good: int, bad: int, opened: int, more: int, target: float
) -> None:
    objective = Objective("any", "metric", round(target, 3), "voice_to_voice", 800 * MS)
    before = judge([objective], counts(good, bad, {"generator": opened}))[0]
    after = judge([objective], counts(good, bad, {"generator": opened + more}))[0]
    if before.met is None:
        assert after.met is None
    if after.met is not None:
        # A claim holds whatever the open turns were: both extremes, by plain arithmetic.
        total = good + bad + opened + more
        for known in (good, good + opened + more):
            assert (Fraction(known, total) >= Fraction(str(objective.target))) is after.met


@given(st.integers(0, 300), st.integers(1, 60), st.integers(0, 60))
def test_opening_a_turn_never_turns_missed_into_met(good: int, bad: int, opened: int) -> None:
    before = judge([FAST], counts(good, bad, {"generator": opened}))[0]
    after = judge([FAST], counts(good, bad - 1, {"generator": opened + 1}))[0]
    if before.met is False:
        assert after.met is not True


@given(st.lists(st.sampled_from(["ok", "no_reply", "invalid", "cut", "interrupted"]), max_size=60), st.booleans())
def test_good_bad_and_open_turns_add_up_to_the_eligible_ones(outcomes: list[str], heard: bool) -> None:
    turns = [changed(outcome=outcome, **({} if heard else {"first_audio_perf_ns": None})) for outcome in outcomes]
    for objective in (FAST, ANSWERED, *default_objectives()):
        (verdict,) = judge([objective], count_turns(turns))
        assert verdict.good + verdict.bad + verdict.open_turns == verdict.eligible


@pytest.mark.parametrize("source", ["client", "service"])
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("ok", Judgment.CONTRADICTED),
        ("cut", Judgment.CONTRADICTED),
        ("interrupted", Judgment.CONTRADICTED),
        ("invalid", Judgment.GENERATOR),
        ("no_reply", Judgment.BAD),
    ],
)
def test_a_value_that_contradicts_its_evidence_is_open(source: str, outcome: str, expected: Judgment) -> None:
    changes = {"source": source, "outcome": outcome, "first_audio_perf_ns": None}
    turn = msgspec.structs.replace(WHOLE, contradicted_metrics=("voice_to_voice",), **changes)
    assert judge_turn(FAST, turn, turn.source) is expected


def test_values_contradicting_evidence_neither_meet_nor_miss() -> None:
    """60 good turns of 100 do not meet 95 %, and with the others good they would."""
    contradicted = msgspec.structs.replace(
        WHOLE, first_audio_perf_ns=None, contradicted_metrics=("voice_to_voice",), contradicted_causes=("before_turn",)
    )
    counts = count_turns([WHOLE] * 60 + [contradicted] * 40)(FAST)
    assert counts == EligibleTurns(60, 100, {"contradicts its own evidence": 40})
    (verdict,) = judge([FAST], lambda _: counts)
    assert (verdict.met, verdict.open_turns) == (None, 40)


def test_contradicted_metric_of_unseen_stage_is_open() -> None:
    """Without any other value in the run it counts all the same: something was stated."""
    objective = Objective("closing", "metric", 0.95, "endpointing", 400 * MS)
    turn = msgspec.structs.replace(
        WHOLE, source="service", endpoint_perf_ns=None, contradicted_metrics=("endpointing",)
    )
    assert count_turns([turn] * 3, "service")(objective).open_turns == 3


# A turn whose stamps are exact, and how much each of them may be off.
EXACT = {
    **{f"{name}_later_ns": 0 for name in ("speech_start", "speech_end")},
    **{f"{name}_uncertainty_ns": 0 for name in ("speech_start", "speech_end")},
    **{f"{name}_earlier_ns": 0 for name in ("asr_first_partial", "asr_final", "llm_first_token", "first_audio")},
    **dict.fromkeys(("stamp_error_ns", "held_up_ns", "held_up_speaking_ns"), 0),
}


def heard_after(latency_ms: float, **fields: object) -> Turn:
    return changed(first_audio_perf_ns=3_000 * MS + round(latency_ms * MS), **{**EXACT, **fields})


@pytest.mark.parametrize(
    ("latency_ms", "fields", "expected"),
    [
        (800, {}, Judgment.GOOD),
        (800.000001, {}, Judgment.BAD),
        # We may have stamped the answer late, sent the speech late, or held the service up: it may have been good.
        (810, {"first_audio_earlier_ns": 10 * MS}, Judgment.GENERATOR),
        (810, {"first_audio_earlier_ns": 10 * MS - 1}, Judgment.BAD),
        (810, {"speech_end_later_ns": 10 * MS}, Judgment.GENERATOR),
        (1_000, {"held_up_ns": 200 * MS}, Judgment.GENERATOR),
        (1_000, {"held_up_ns": 199 * MS}, Judgment.BAD),
        (800, {"held_up_ns": 500 * MS}, Judgment.GOOD),  # our lateness never hides a slow service
        (799.9, {"stamp_error_ns": MS // 5}, Judgment.GENERATOR),
        (799.8, {"stamp_error_ns": MS // 5}, Judgment.GOOD),
        # Only the annotation of the clip leaves it open.
        (780, {"speech_end_uncertainty_ns": 71 * MS}, Judgment.SPEECH),
        (780, {"speech_end_uncertainty_ns": 20 * MS}, Judgment.GOOD),
        (872, {"speech_end_uncertainty_ns": 71 * MS}, Judgment.BAD),
        (780, {"speech_start_uncertainty_ns": 71 * MS}, Judgment.GOOD),
        # Both do, or only both together.
        (810, {"speech_end_uncertainty_ns": 71 * MS, "held_up_ns": 20 * MS}, Judgment.GENERATOR),
        (880, {"speech_end_uncertainty_ns": 71 * MS, "held_up_ns": 20 * MS}, Judgment.SPEECH),
        # How far the annotation or the stamps may be off is not known: the value alone decides.
        (801, {"speech_end_uncertainty_ns": None, "held_up_ns": 200 * MS}, Judgment.BAD),
        (801, {"stamp_error_ns": None, "held_up_ns": 200 * MS}, Judgment.BAD),
        (799, {"held_up_ns": None, "speech_end_uncertainty_ns": 71 * MS}, Judgment.GOOD),
    ],
)
def test_a_value_is_judged_by_the_interval_in_which_it_lies(
    latency_ms: float, fields: dict[str, object], expected: Judgment
) -> None:
    assert judge_turn(FAST, heard_after(latency_ms, **fields)) is expected


def test_a_rate_is_good_by_its_lower_bound() -> None:
    """12 tokens, the first of them 450 ms before the last: 24.4 a second."""
    at_least = [Objective("rate", "metric", 0.95, "tokens_per_s", wanted) for wanted in (20.0, 24.0, 25.0, 30.0)]
    off = changed(**EXACT, llm_last_token_earlier_ns=30 * MS)  # in 420 ms: 26.2
    assert [judge_turn(turn, off) for turn in at_least] == [
        Judgment.GOOD,
        Judgment.GOOD,
        Judgment.GENERATOR,
        Judgment.BAD,
    ]


def test_cut_caller_waited_at_least_from_latest_end_of_speech() -> None:
    before = changed(INTERRUPTED, outcome="cut", hangup_perf_ns=3_850 * MS, **EXACT)
    assert judge_turn(FAST, before) is Judgment.BAD
    for fields in ({"speech_end_uncertainty_ns": 50 * MS}, {"speech_end_later_ns": 50 * MS}, {"held_up_ns": 50 * MS}):
        assert judge_turn(FAST, changed(before, **fields)) is Judgment.CUT
        of_a_caller = changed(before, outcome="interrupted", **fields)
        assert judge_turn(FAST, of_a_caller) is Judgment.INTERRUPTED
        assert judge_turn(FAST, changed(before, hangup_perf_ns=3_851 * MS, **fields)) is Judgment.BAD


def test_cut_turn_figure_that_may_worsen_is_open_unless_bad() -> None:
    starved = Objective("starved", "metric", 0.95, "underrun_worst", 100 * MS)
    cut = changed(outcome="cut", **EXACT)
    assert judge_turn(starved, changed(cut, underrun_worst_ns=90 * MS)) is Judgment.CUT
    assert judge_turn(starved, changed(cut, underrun_worst_ns=120 * MS)) is Judgment.BAD
    doubtful = changed(cut, underrun_worst_ns=120 * MS, arrival_uncertainty_worst_ns=20 * MS)
    assert judge_turn(starved, doubtful) is Judgment.GENERATOR


# By metric, how one true value of it follows from what is stamped and from by how much each stamp is off: the
# definition of the metric, and nothing of the code that bounds it.
OFF: dict[str, tuple[str, str, str]] = {
    "voice_to_voice": ("first_audio", "speech_end", "held_up_ns"),
    "asr_final_latency": ("asr_final", "speech_end", "held_up_ns"),
    "llm_first_token_latency": ("llm_first_token", "speech_end", "held_up_ns"),
    "asr_partial_latency": ("asr_first_partial", "speech_start", "held_up_speaking_ns"),
}
off_ns = st.sampled_from((0, 1, 3, 20)).map(lambda ms: ms * MS)


@st.composite
def measured_turns(draw: st.DrawFn, metric: str) -> Turn:
    """A turn whose latency is near 800 ms, and whose stamps may each be off."""
    name, since, held_up = OFF[metric]
    fields = {field: draw(off_ns) for field in (f"{name}_earlier_ns", f"{since}_later_ns", "stamp_error_ns", held_up)}
    fields[f"{since}_uncertainty_ns"] = draw(off_ns)
    began: int = getattr(WHOLE, f"{since}_perf_ns")
    return changed(**{**EXACT, **fields, f"{name}_perf_ns": began + draw(st.integers(700, 900)) * MS})


def true_values(turn: Turn, metric: str, *, is_annotation_right: bool) -> list[int]:
    """The true values at every corner of what may be off."""
    name, since, held_up = OFF[metric]
    stamped: int = getattr(turn, f"{name}_perf_ns") - getattr(turn, f"{since}_perf_ns")
    annotated = 0 if is_annotation_right else getattr(turn, f"{since}_uncertainty_ns")
    stamp = turn.stamp_error_ns
    corners = product(
        (0, getattr(turn, f"{name}_earlier_ns")), (-stamp, stamp), (0, getattr(turn, f"{since}_later_ns")),
        (-annotated, annotated), (0, getattr(turn, held_up)),
    )  # fmt: skip
    return [stamped - came - error - went - note - held for came, error, went, note, held in corners]


@given(st.data(), st.sampled_from(sorted(OFF)))
def test_good_is_good_by_every_true_value_and_bad_by_every_one(data: st.DataObject, metric: str) -> None:
    turn = data.draw(measured_turns(metric))
    judgment = judge_turn(Objective("any", "metric", 0.95, metric, 800.0 * MS), turn)
    verdicts = {value <= 800 * MS for value in true_values(turn, metric, is_annotation_right=False)}
    if len(verdicts) == 1:
        assert judgment is (Judgment.GOOD if verdicts == {True} else Judgment.BAD)
        return
    ours = {value <= 800 * MS for value in true_values(turn, metric, is_annotation_right=True)}
    assert judgment is (Judgment.SPEECH if len(ours) == 1 else Judgment.GENERATOR)


WIDTHS = ("first_audio_earlier_ns", "speech_end_later_ns", "stamp_error_ns", "held_up_ns", "speech_end_uncertainty_ns")


@pytest.mark.slow
@given(
    st.lists(measured_turns("voice_to_voice"), min_size=1, max_size=30),
    st.integers(0, 40),
    st.integers(0, 40),
    st.lists(st.one_of(st.just("invalid"), st.fixed_dictionaries(dict.fromkeys(WIDTHS, off_ns))), max_size=30),
)
def test_open_turns_never_reverse_claim_nor_narrowing_revokes_it(
    near: list[Turn], fast: int, slow: int, opened: list[str | dict[str, int]]
) -> None:
    turns = [*near, *([heard_after(400)] * fast), *([heard_after(1_500)] * slow)]
    wider = list(turns)
    for place, change in enumerate(opened[: len(turns)]):
        turn = wider[place]
        added = {} if change == "invalid" else {name: getattr(turn, name) + more for name, more in change.items()}
        wider[place] = changed(turn, **added, **({"outcome": "invalid"} if change == "invalid" else {}))
    narrow_verdict, wide_verdict = verdict_on(FAST, turns), verdict_on(FAST, wider)
    if wide_verdict.met is not None:
        # What the wide intervals claim, the narrow ones within them claim as well.
        assert narrow_verdict.met is wide_verdict.met
    for verdict in (narrow_verdict, wide_verdict):
        assert verdict.good + verdict.bad + verdict.open_turns == verdict.eligible == len(turns)


@pytest.mark.parametrize(
    ("good", "bad", "causes", "measured_s", "needed"),
    [
        (12, 0, {}, 60.0, "12 of 20 turns; 8 more needed, about 40 s at this rate"),
        (12, 0, {}, None, "12 of 20 turns; 8 more needed"),
        (2, 0, {}, 100.0, "2 of 20 turns; 18 more needed, about 15 min at this rate"),
        (2, 0, {}, 36_000.0, "2 of 20 turns; 18 more needed, about 90 h at this rate"),
        (0, 0, {}, 60.0, "0 of 20 turns; 20 more needed"),
        (
            10,
            0,
            {"generator": 2},
            None,
            "10 of 20 turns; more turns cannot decide it while as many are open;"
            " 2 turns are open (2 generator): 83.3 % to 100 % of 12 turns are good",
        ),
        # The end of a run cuts two turns, however long it is: 2 of 40 are no obstacle any more.
        (
            30,
            0,
            {"cut by the end of the run": 2},
            64.0,
            "2 turns are open (2 cut by the end of the run): 93.8 % to 100 % of 32 turns are good;"
            " 8 more needed, about 16 s at this rate",
        ),
    ],
)
def test_undecided_verdict_states_missing_turns(
    good: int, bad: int, causes: dict[str, int], measured_s: float | None, needed: str
) -> None:
    (verdict,) = judge([FAST], counts(good, bad, causes), measured_s=measured_s)
    assert verdict.reason == f"undecided: {needed}"


CUT = "cut by the end of the run"


@pytest.mark.slow
@given(st.integers(0, 60), st.integers(0, 8), st.integers(0, 4), st.integers(0, 3), st.sampled_from((0.8, 0.9, 0.95)))
def test_the_turns_needed_are_the_fewest_that_decide(good: int, bad: int, opened: int, cut: int, target: float) -> None:
    """Against a walk through all numbers of further turns, each share of them as it is so far."""
    needed = turns_to_verdict(
        EligibleTurns(good, good + bad + opened + cut, {"generator": opened, CUT: cut}), target, 20
    )
    so_far = good + bad + opened
    if not good + bad:
        assert needed == (20 if not opened else None)
        return

    def is_decided(more: int) -> bool:
        factor = 1 + Fraction(more, so_far)
        if (good + bad) * factor < 20:
            return False
        wanted = Fraction(str(target)) * (so_far * factor + cut)
        return good * factor >= wanted or (good + opened) * factor + cut < wanted

    walked = next((more for more in range(2_000) if is_decided(more)), None)
    assert needed == walked or (walked is None and needed is not None and needed >= 2_000 and is_decided(needed))
