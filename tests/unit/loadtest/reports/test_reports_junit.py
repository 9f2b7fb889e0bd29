"""A run as a JUnit file and as Markdown: passed, failed and undecided cases, and foreign text."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.junit import RUN_CASE, as_junit
from loadtest.reports.markdown import as_markdown, cell
from loadtest.reports.run_report import RunReport
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import judge
from telemetry.store.answers import FailureCount
from tests.unit.loadtest.reports import reports_material as material
from tests.unit.loadtest.reports.reports_material import LIMITED, OBJECTIVES, judged

HOSTILE = "]]><b>&\x00\x1b[2J\uffff|`*_[x](http://e)\nsecond"


def parsed(report: RunReport) -> ET.Element:
    return ET.fromstring(as_junit(report))  # noqa: S314 - made right here


def cases(report: RunReport) -> dict[str, tuple[str, str]]:
    """Return the result of each case, and its sentence."""
    outcomes: dict[str, tuple[str, str]] = {}
    for case in parsed(report).iter("testcase"):
        ended = [child for child in case if child.tag != "system-out"]
        assert len(ended) <= 1
        assert all(child.text == child.get("message") for child in ended), "readers show one or the other"
        outcomes[str(case.get("name"))] = (ended[0].tag, str(ended[0].text)) if ended else ("passed", "")
    return outcomes


def ends(report: RunReport) -> list[str]:
    return [ended for ended, _ in cases(report).values()]


def test_met_objective_passes_and_missed_one_fails_with_tail() -> None:
    assert ends(judged()) == ["passed", "passed", "passed"]
    outcomes = cases(judged({OBJECTIVES[0].name: 150, OBJECTIVES[1].name: 181}))
    assert list(outcomes) == [RUN_CASE, "The caller hears an answer in time", "The final transcript is there in time"]
    assert [ended for ended, _ in outcomes.values()] == ["passed", "failure", "passed"]
    sentence = outcomes["The caller hears an answer in time"][1]
    assert "82.9 % of 181 turns, missed; p99 is bad: 1,204 ms" in sentence
    assert "error budget overspent" in sentence


def test_unknown_result_is_skipped_and_limited_run_is_error() -> None:
    few = cases(judged(4, 4))
    assert [ended for ended, _ in few.values()] == ["skipped"] * 3
    assert "undecided: 4 of 20 turns; 16 more needed" in few["The caller hears an answer in time"][1]
    limited = cases(judged(**LIMITED))
    assert [ended for ended, _ in limited.values()] == ["error", "skipped", "skipped"]
    assert "1 of 2 generator processes was lost" in limited[RUN_CASE][1]
    assert ends(judged(interrupted=True))[0] == "error"
    assert ends(judged(calls_connected=0))[0] == "failure", "the target refused"
    assert ends(judged(0, 0, material.empty_summary())) == ["skipped"] * 3


def test_missed_run_without_missed_objective_fails_by_itself() -> None:
    missed = replace(judged(), run_outcome=replace(judged().run_outcome, code=ExitCode.OBJECTIVE_MISSED, reason="kept"))
    assert cases(missed)[RUN_CASE] == ("failure", "kept")


def test_two_objectives_of_one_display_name_stay_two_cases() -> None:
    alike = [replace(objective, display_name="Fine") for objective in OBJECTIVES]
    report = replace(judged(), objectives=alike, verdicts=judge(alike, lambda _: EligibleTurns(181, 181)))
    assert list(cases(report))[1:] == ["Fine (voice-to-voice)", "Fine (asr-final)"]


def test_text_of_others_stays_text_in_xml() -> None:
    named = [replace(OBJECTIVES[0], display_name=HOSTILE)]
    report = replace(judged(), objectives=named, verdicts=judge(named, lambda _: EligibleTurns(1, 181)))
    (name,) = list(cases(report))[1:]
    assert name == "]]><b>&\\x00\\x1b[2J\ufffd|`*_[x](http://e) second"


def test_markdown_has_verdict_then_missed_and_escapes_text() -> None:
    failures = (FailureCount("http_status", "429", 3, HOSTILE),)
    text = as_markdown(
        judged({OBJECTIVES[0].name: 181, OBJECTIVES[1].name: 1}, whole=material.summary(failures=failures))
    )
    lines = text.splitlines()
    assert lines[0] == "## voiceprobe: objective missed (exit code 3)"
    assert lines[2].startswith("**Missing the objective “The final transcript is there in time”: 0.6 % of 181 turns")
    assert text.index("❌ missed | The final transcript") < text.index("✅ met | The caller hears")
    assert "| **Voice to voice** | 612 ms | 800 ms | 1,204 ms | 1,300 ms | 180 |" in lines
    assert "\x1b" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")
    tables = [line for line in lines if line.startswith("|")]
    assert all(line.endswith(" |") for line in tables), "no line of a table is broken"


@pytest.mark.parametrize(
    "report",
    [judged(**LIMITED), judged(4, 4), judged(0, 0, material.empty_summary())],
    ids=["limited", "few", "none"],
)
def test_markdown_claims_nothing_where_nothing_is_known(report: RunReport) -> None:
    text = as_markdown(report)
    assert "✅" not in text
    assert "| met" not in text


def test_a_cell_shows_its_text_and_no_address_becomes_a_link() -> None:
    assert cell("a|b *c* `d` _e_ <f> [g](h) #1 ~i~ $j$ &amp; \\") == (
        "a\\|b \\*c\\* \\`d\\` \\_e\\_ \\<f\\> \\[g\\](h) \\#1 \\~i\\~ \\$j\\$ \\&amp; \\\\"
    )
    assert cell("http://x www.y 812.5 ms\n\nnext") == "http\\://x www\\.y 812.5 ms  next"
