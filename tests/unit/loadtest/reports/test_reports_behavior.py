"""The behavior of callers in the summary's text and JSON."""

from typing import Any

import jsonschema

from loadtest.exit_codes import ExitCode
from loadtest.reports.rows import behavior_rows
from loadtest.reports.summary import schema, summary_object
from telemetry.store.answers import Behavior, Summary, TurnCounts
from tests.unit.loadtest.reports.reports_material import MS, report, run_info, stats, summary

EVERYTHING = Behavior(
    barge_ins=40,
    barge_ins_stopped=34,
    barge_ins_ended=3,
    barge_ins_not_stopped=2,
    barge_ins_unclear=1,
    barge_ins_recovered=38,
    barge_ins_missed=3,
    backchannels=12,
    backchannels_stopped=5,
    silent_turns=7,
    reprompted=2,
    intents_expected=90,
    intents_reported=80,
    intents_matched=60,
)


def _with(behavior: Behavior, **changes: Any) -> Summary:
    made = summary(behavior=behavior, **changes)
    made.metrics["barge_in_stop"] = stats("barge_in_stop", 34, p50=412.0 * MS, p95=790.0 * MS, max=900.0 * MS)
    return made


def test_everything_that_callers_did_is_reported() -> None:
    output = dict(behavior_rows(_with(EVERYTHING)))
    assert output == {
        "abandoned": "0.6 % of 181 turns",
        "barge-in": "40 interruptions, 95 % answered after it, 34 stopped within 412 ms (p50), 790 ms (p95), "
        "2 never stopped, 3 ended by itself, 1 cannot tell, 3 more came too late for the reply",
        "backchannel": "12 said, the reply stopped at 5 of them",
        "silence": "7 turns without a word, asked again in 2 of them",
        "intent": "75 % as expected, of 80 turns that reported one (90 expected one)",
    }


def test_unreported_intent_and_missing_stop_are_not_zero() -> None:
    plain = summary(behavior=Behavior(barge_ins=1, intents_expected=4))
    output = dict(behavior_rows(plain))
    assert output["intent"] == "not reported by the endpoint"
    assert output["barge-in"] == "1 interruption, 0 % answered after it, no stop was measured"


def test_callers_without_special_behavior_have_no_rows() -> None:
    assert behavior_rows(summary(turns=TurnCounts(10, 10, 0, {"ok": 10}))) == []


def test_the_json_object_holds_the_same() -> None:
    whole = summary_object(report(run=run_info(), whole=_with(EVERYTHING), verdicts=[], code=ExitCode.OK))
    jsonschema.validate(whole, schema())
    behavior = whole["behavior"]
    assert behavior["barge_in"] == {
        "n": 40,
        "missed": 3,
        "recovered": 38,
        "recovered_share": 0.95,
        "stopped": 34,
        "never_stopped": 2,
        "ended_by_itself": 3,
        "cannot_tell": 1,
        "stop_n": 34,
        "stop_p50_s": 0.412,
        "stop_p95_s": 0.79,
    }
    assert behavior["abandoned"] == {"n": 1, "share": 1 / 181}
    assert behavior["intent"] == {"expected": 90, "reported": 80, "matched": 60, "accuracy": 0.75}
    nothing = summary_object(report(run=run_info(), whole=summary(), verdicts=[], code=ExitCode.OK))["behavior"]
    assert (nothing["barge_in"]["recovered_share"], nothing["intent"]["accuracy"]) == (None, None)
