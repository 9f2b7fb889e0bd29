"""Model servers in the report: next to the figures of turns, and never as one of them."""

from dataclasses import replace

import jsonschema

from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema, summary_object
from telemetry.store.questions.caches import ModelServer, RequestTimes
from tests.unit.loadtest.reports import reports_material as material
from tests.unit.loadtest.reports.reports_material import words
from tests.unit.loadtest.reports.test_reports_terminal import final

KNOWN = ModelServer(
    "vllm", "a/model", 12, 1, 4_000, 0.25, 3, RequestTimes(40, 0.4, 0.3, 0.5), RequestTimes(25, 2.0, 1.0, None)
)
DEAD = ModelServer("other", None, 0, 9, None, None, None, None, None)
FEW = replace(KNOWN, name="few", queue=RequestTimes(3, 0.4, None, None), first_token=RequestTimes(0, None, None, None))


def test_the_terminal_shows_them_in_a_part_of_their_own() -> None:
    output = words(final(run=material.run_info(model_servers=(KNOWN, DEAD, FEW))))
    assert "Model servers, from their own metrics (all of their requests, not only this run's)" in output
    assert "vllm: a/model 25 % of 4,000 ≤ 3 400 ms 300 ms to 500 ms > 1,000 ms 12 of 13" in output
    assert "other not known not known not known not known not known 0 of 9" in output
    assert "few: a/model 25 % of 4,000 ≤ 3 400 ms too few too few 12 of 13" in output


def test_without_a_model_server_there_is_no_such_part() -> None:
    assert "Model servers" not in words(final())


def test_json_has_null_for_what_is_not_known() -> None:
    run = material.run_info(model_servers=(KNOWN, DEAD, FEW))
    summary = summary_object(material.report(run=run, whole=material.summary(), verdicts=[], code=ExitCode.OK))
    jsonschema.validate(summary, schema())
    known, dead, _ = summary["model_servers"]
    assert known["prefix_hits_per_token"] == 0.25
    assert known["first_token"] == {"requests": 25, "mean_s": 2.0, "p95_above_s": 1.0, "p95_until_s": None}
    assert (dead["prefix_hits_per_token"], dead["queue"]) == (None, None)
