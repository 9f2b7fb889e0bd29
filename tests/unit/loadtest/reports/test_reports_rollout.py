"""A verdict as files: other people's text cannot break them."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np

from loadtest.reports.rollout import as_junit, as_markdown
from telemetry.rollout.cohort_turns import CohortTurns, packed_codes
from telemetry.rollout.gate import GateVerdict, RolloutEvidence, decide, first_history
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.verdict import rollout_verdict
from tests.fixtures_rollouts import as_object
from tests.rollout_cohorts import cohort, plan

NOW = 1_790_000_000_000_000_000
ROUTE = "a|b\x1b[2J\n<script>"
PLAN = replace(plan(), slices=("route",))


def sliced(of: CohortTurns) -> CohortTurns:
    codes = {**of.codes, "route": packed_codes(np.zeros(of.turns))}
    return replace(of, codes=codes, labels={"route": (ROUTE,)})


def verdict(of: RolloutPlan = PLAN, lost: float = 0.0) -> GateVerdict:
    rng = np.random.default_rng(1)
    both = sliced(cohort("streaming", 4000, rng)), sliced(cohort("stable", 12_000, rng))
    return decide(of, RolloutEvidence(*both, lost), first_history(of), NOW)


def markdown(gate_verdict: GateVerdict) -> str:
    return as_markdown(PLAN, rollout_verdict(PLAN, gate_verdict), NOW)


def test_a_value_of_a_slice_stays_in_its_cell() -> None:
    text = markdown(verdict())
    (line,) = [row for row in text.splitlines() if row.startswith("| route ")]
    assert line.startswith("| route a\\|b\\\\x1b\\[2J \\<script\\> | ")
    assert len([cell for cell in line.replace("\\|", "").split("|") if cell]) == 8


def test_reasons_are_in_every_file() -> None:
    judged = verdict(lost=0.5)
    (reason,) = judged.reasons
    assert as_object(PLAN, judged)["reasons"] == [reason]
    suite = ET.fromstring(as_junit(PLAN, judged))  # noqa: S314 - our own file
    assert suite[0][0].get("message") == reason
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "0", "1")
    assert reason in markdown(judged)


def test_durations_are_in_seconds_and_shares_are_ratios() -> None:
    judged = verdict()
    primary, tail, *_ = as_object(PLAN, judged)["checks"]
    assert (primary["unit"], primary["margin"]) == ("s", 0.1)
    assert primary["candidate"] == (judged.checks[0].candidate or 0) / 1e9
    assert (tail["unit"], tail["margin"]) == ("ratio", 0.01)
