"""The JSON object of a run, against its committed schema."""

import copy
from dataclasses import replace
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from loadtest.exit_codes import ExitCode
from loadtest.reports import tables
from loadtest.reports.calibration_citing import Citation
from loadtest.reports.run_info import SpoolInfo
from loadtest.reports.summary import metric_object, schema, summary_object
from telemetry.model.bounds import MeasuredWithin
from telemetry.model.metrics import METRIC_NAMES, METRICS
from telemetry.store.answers import ContradictedValue, Contradictions, SpeechBoundErrors, TelemetryLoss
from tests.unit.loadtest.reports import reports_material as material


@pytest.fixture
def whole() -> dict[str, Any]:
    return summary_object(
        material.report(
            run=material.run_info(target="wss://me:secret@voice.example/v1?token=secret"),
            whole=material.summary(),
            verdicts=[material.verdict(True), material.verdict(None)],
            code=ExitCode.UNDECIDED,
        )
    )


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


def test_summary_object_matches_schema_after_round_trip(whole, validator) -> None:
    validator.validate(orjson.loads(orjson.dumps(whole)))


def test_a_run_without_a_single_turn_is_as_the_schema_says(validator) -> None:
    nothing = summary_object(
        material.report(
            run=material.run_info(calls_connected=0, run_time_s=None),
            whole=material.empty_summary(),
            verdicts=[],
            code=ExitCode.UNREACHABLE,
        )
    )
    validator.validate(nothing)
    assert nothing["cache"]["hit_rate"] is None
    assert nothing["fallback"]["rate"] is None
    assert nothing["generator"]["invalid_share"] is None
    assert nothing["telemetry"]["emitted"] is None


def test_every_metric_is_there_with_its_definition(whole) -> None:
    assert tuple(whole["metrics"]) == METRIC_NAMES
    for name, metric in METRICS.items():
        assert whole["metrics"][name]["definition"] == metric.definition


def test_durations_are_seconds_and_the_rest_keeps_its_unit(whole) -> None:
    heard = whole["metrics"]["voice_to_voice"]
    assert heard["unit"] == "s"
    assert heard["n"] == 180
    assert [heard[key] for key in ("p50_s", "p95_s", "p99_s", "max_s")] == pytest.approx([0.6124, 0.7996, 1.204, 1.3])
    assert [heard[key] for key in ("p50", "p95", "p99", "max")] == [None] * 4
    rate = whole["metrics"]["tokens_per_s"]
    assert (rate["unit"], rate["p50"], rate["p50_s"], rate["max_s"]) == ("per_s", 48.2, None, None)
    assert whole["metrics"]["itl"]["unit"] == "s"


def test_too_few_values_are_null_and_never_zero(whole) -> None:
    final = whole["metrics"]["asr_final_latency"]
    assert (final["n"], final["p50_s"], final["p99_s"]) == (80, pytest.approx(0.31), None)
    partial = whole["metrics"]["asr_partial_latency"]
    assert (partial["n"], partial["p50_s"], partial["withheld"]) == (0, None, "partials come on a fixed cadence")


def test_a_metric_the_store_did_not_answer_is_there_and_unknown(validator) -> None:
    summary = material.summary(metrics={})
    made = summary_object(material.report(run=material.run_info(), whole=summary, verdicts=[], code=ExitCode.OK))
    validator.validate(made)
    assert made["metrics"]["voice_to_voice"]["n"] == 0
    assert made["metrics"]["voice_to_voice"]["p50_s"] is None


def test_estimates_are_marked() -> None:
    known = material.stats("voice_to_voice", 300_000, p50=5e8, p95=6e8, p99=7e8, max=9e8)
    for approximate in (False, True):
        estimated = replace(known, approximate=approximate)
        metric = metric_object("voice_to_voice", estimated)
        assert metric["approximate"] is approximate
        sign = "≈ " if approximate else ""
        assert tables.statistic(estimated, "p95") == f"{sign}600 ms"
        assert tables.statistic(estimated, "max") == "900 ms"


def test_every_estimate_of_a_summary_is_marked(validator) -> None:
    exact = material.summary()
    estimated = replace(
        exact,
        speech_bounds=replace(exact.speech_bounds, approximate=True),
        client_service_delta=replace(exact.client_service_delta, approximate=True),
        generator=replace(exact.generator, approximate=frozenset({"frame_lateness_p99_ns"})),
    )
    for summary, is_estimate in ((exact, False), (estimated, True)):
        made = summary_object(material.report(run=material.run_info(), whole=summary, verdicts=[], code=ExitCode.OK))
        validator.validate(made)
        assert made["speech_bounds"]["approximate"] is is_estimate
        assert made["client_service_delta"]["approximate"] is is_estimate
        assert made["generator"]["approximate"] == (["pacing_p99_s"] if is_estimate else [])


def test_figures_state_their_measurement_bounds(validator) -> None:
    within = MeasuredWithin((5.9e8, 6.3e8), (7.8e8, 8.2e8), None, (1.2e9, 1.4e9), 3)
    answer = material.summary(speech_bounds=SpeechBoundErrors(180, 3, 1e7, 40_000_000, 2e7, 80_000_000))
    heard = replace(answer.metrics["voice_to_voice"], measured_within=within)
    rate = replace(answer.metrics["tokens_per_s"], measured_within=MeasuredWithin((48.0, 49.5), None, None, None))
    made = summary_object(
        material.report(
            run=material.run_info(),
            whole=replace(answer, metrics={**answer.metrics, "voice_to_voice": heard, "tokens_per_s": rate}),
            verdicts=[material.verdict(True)],
            code=ExitCode.OK,
        )
    )
    validator.validate(orjson.loads(orjson.dumps(made)))
    nothing = dict.fromkeys(("p50_s", "p95_s", "p99_s", "max_s", "p50", "p95", "p99", "max"))
    assert made["metrics"]["voice_to_voice"]["measured_within"] == nothing | {
        "p50_s": [0.59, 0.63],
        "p95_s": [0.78, 0.82],
        "max_s": [1.2, 1.4],
        "turns_unknown": 3,
    }
    assert made["metrics"]["tokens_per_s"]["measured_within"] == nothing | {"p50": [48.0, 49.5], "turns_unknown": 0}
    assert made["metrics"]["connect"]["measured_within"] is None
    assert made["speech_bounds"]["end_worst_s"] == 0.08
    assert (made["speech_bounds"]["turns"], made["speech_bounds"]["turns_unknown"]) == (180, 3)


def test_no_secret_of_the_target_is_written(whole) -> None:
    assert b"secret" not in orjson.dumps(whole)
    assert whole["run"]["target"] == "wss://voice.example/v1"


def test_outcomes_are_reported_as_counts_and_rates(whole) -> None:
    assert whole["turns"] == {
        "total": 182,
        "ok": 178,
        "invalid": 1,
        "not_as_recorded": 1,
        "generator_faults": 0,
        "eligible": 181,
        "by_outcome": {"ok": 178, "no_reply": 2, "abandoned": 1, "invalid": 1},
        "invalid_by_reason": {"frame lateness": 1},
        "endpoint_did_not_read": 0,
        "cut": 0,
        "cut_by": {},
    }
    assert whole["cache"] == {"reported": 180, "hits": 45, "hit_rate": 0.25, "by_tier": {"central": 45}}
    assert whole["fallback"] == {"total": 181, "reported": 180, "rate": 0.05, "by_kind": {"rule": 9}}
    assert [cohort["name"] for cohort in whole["cohorts"]] == ["control", "streaming"]
    assert whole["cohorts"][1]["metrics"]["voice_to_voice"]["p50_s"] == pytest.approx(0.487)
    assert [objective["met"] for objective in whole["objectives"]] == [True, None]


def test_recognition_is_reported_by_profile(whole) -> None:
    clean, noisy = whole["wer_by_condition"]
    assert (clean["noise"], clean["wer"], clean["interval"]) == ("clean", 0.01, [0.004, 0.016])
    assert (noisy["noise"], noisy["snr_db"], noisy["channel"]) == ("babble", 5.0, "telephone")
    assert (noisy["wer"], noisy["interval"]) == (0.5, None)
    assert (noisy["words"], noisy["characters"]) == (96, 0), "of texts with spaces between their words"


def test_the_instrument_answers_for_itself(whole) -> None:
    assert whole["client_service_delta"]["joined"] == 179
    assert whole["client_service_delta"]["p99_s"] == pytest.approx(0.0012)
    generator = whole["generator"]
    assert (generator["limited"], generator["receive_stamp"], generator["pacer"]) == (False, "kernel", "timerfd")
    assert generator["pacing_p99_s"] == pytest.approx(0.0005)
    assert generator["start_late_worst_s"] is None
    backlog = [generator[name] for name in ("unsent_worst_bytes", "send_blocked_worst_s", "frames_held_up")]
    assert backlog == [2600, 0, 0]
    assert generator["invalid_share"] == pytest.approx(1 / 182)


def test_the_calibration_is_cited_with_its_bound() -> None:
    cited = Citation("calibrated", "calibrated to ±0.4 ms at 200 callers on 2026-11-21", 0.4, 200, "2026-11-21")
    made = summary_object(
        material.report(
            run=material.run_info(calibration=cited), whole=material.summary(), verdicts=[], code=ExitCode.OK
        )
    )
    Draft202012Validator(schema()).validate(made)
    calibration = made["generator"]["calibration"]
    assert (calibration["state"], calibration["users"], calibration["date"]) == ("calibrated", 200, "2026-11-21")
    assert calibration["error_s"] == pytest.approx(0.0004)


def test_lost_and_spooled_turns_are_reported() -> None:
    made = summary_object(
        material.report(
            run=material.run_info(spooled=SpoolInfo(turns=7, spans=31, waiting_turns=2, waiting_spans=9)),
            whole=material.summary(
                loss=TelemetryLoss(processes=2, emitted=192, received=182, missing=10),
                lacks_old_turns=True,
            ),
            verdicts=[],
            code=ExitCode.OK,
        )
    )
    assert made["telemetry"] == {
        "emitted": 192,
        "received": 182,
        "missing": 10,
        "spooled": {"turns": 7, "spans": 31, "waiting_turns": 2, "waiting_spans": 9},
        "lacks_old_turns": True,
    }
    Draft202012Validator(schema()).validate(made)


def test_every_documented_exit_code_is_in_the_schema() -> None:
    # A summary is of a run; only `voiceprobe store` ends with the code of a damaged store.
    of_runs = {int(code) for code in ExitCode} - {int(ExitCode.STORE_DAMAGED)}
    assert set(schema()["properties"]["exit_code"]["enum"]) == of_runs


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: made.pop("generator"),
        lambda made: made["turns"].update(extra=1),
        lambda made: made["metrics"]["voice_to_voice"].update(p95_s="fast"),
        lambda made: made.update(exit_code=42),
        lambda made: made["objectives"][0].pop("met"),
    ],
)
def test_the_schema_notices(spoil, whole, validator) -> None:
    spoilt = copy.deepcopy(whole)
    spoil(spoilt)
    with pytest.raises(ValidationError):
        validator.validate(spoilt)


def test_values_that_cannot_be_are_named_by_cause(validator) -> None:
    values = (ContradictedValue("service", "endpointing", "longer_than_span", 3),)
    summary = replace(material.summary(), contradictions=Contradictions(values, late_spans=12, revised_turns=2))
    shown = summary_object(material.report(run=material.run_info(), whole=summary, verdicts=[], code=ExitCode.OK))
    validator.validate(shown)
    assert shown["contradicted_values"] == [
        {"source": "service", "metric": "endpointing", "cause": "longer_than_span", "turns": 3}
    ]
    assert (shown["late_spans"], shown["revised_turns"]) == (12, 2)
