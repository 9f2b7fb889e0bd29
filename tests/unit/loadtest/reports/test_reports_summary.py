"""The JSON object of a run, against its committed schema; what it says of whole runs is in the golden answers."""

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
from telemetry.store.answers import ContradictedValue, Contradictions, SpeechBoundErrors
from tests.unit.loadtest.reports import reports_material as material


@pytest.fixture
def whole() -> dict[str, Any]:
    """The object of a run of which everything is known."""
    known = material.summary(
        speech_bounds=SpeechBoundErrors(180, 3, 1e7, 40_000_000, 2e7, 80_000_000),
        contradictions=Contradictions((ContradictedValue("service", "endpointing", "longer_than_span", 3),), 12, 2),
        lacks_old_turns=True,
    )
    within = MeasuredWithin((5.9e8, 6.3e8), (7.8e8, 8.2e8), None, (1.2e9, 1.4e9), 3)
    heard = replace(known.metrics["voice_to_voice"], measured_within=within)
    run = material.run_info(
        target="wss://me:secret@voice.example/v1?token=secret",
        calibration=Citation("calibrated", "calibrated to ±0.4 ms at 200 callers", 0.4, 200, "2026-11-21"),
        spooled=SpoolInfo(turns=7, spans=31, waiting_turns=2, waiting_spans=9),
    )
    return summary_object(
        material.report(
            run=run,
            whole=replace(known, metrics={**known.metrics, "voice_to_voice": heard}),
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


def test_calibration_and_spooled_turns_are_stated(whole) -> None:
    calibration = whole["generator"]["calibration"]
    assert (calibration["state"], calibration["users"], calibration["date"]) == ("calibrated", 200, "2026-11-21")
    assert calibration["error_s"] == pytest.approx(0.0004)
    assert whole["telemetry"]["spooled"] == {"turns": 7, "spans": 31, "waiting_turns": 2, "waiting_spans": 9}
    assert whole["telemetry"]["lacks_old_turns"] is True


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


def test_no_secret_of_the_target_is_written(whole) -> None:
    assert b"secret" not in orjson.dumps(whole)
    assert whole["run"]["target"] == "wss://voice.example/v1"


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
