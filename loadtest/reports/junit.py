"""A run as a JUnit file, as GitLab, Jenkins and actions for GitHub read it. Pure."""

import re
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from loadtest.exit_codes import ExitCode
from loadtest.reports.judged_objectives import Claim, JudgedObjective
from loadtest.reports.rows import evidence_rows
from loadtest.reports.run_report import RunReport
from telemetry.model.foreign_text import one_line
from telemetry.model.formatting import NS_PER_S

RUN_CASE: Final = "the run says something about the service"
_OUTCOMES: Final[dict[Claim, str | None]] = {
    "met": None,
    "missed": "failure",
    "undecided": "skipped",
    "not judged": "skipped",
}
_LONGEST_CHARS: Final = 4000
# What XML 1.0 cannot hold, not even escaped.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: RunReport) -> bytes:
    """A test case for the run itself and one per objective. An objective that is missed has failed; one that is
    undecided or not judged is skipped, with the reason. The run is in error where the generator was the limit or
    somebody interrupted it: then nothing passes but what was decided."""
    run_s = 0.0 if report.run.elapsed_s is None else report.run.elapsed_s
    began = datetime.fromtimestamp(report.run.started_unix_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suites = ET.Element("testsuites", name="voiceprobe", time=f"{run_s:.3f}")
    suite = ET.SubElement(
        suites, "testsuite", name=_text(f"voiceprobe {report.run.run_id}"), timestamp=began, time=f"{run_s:.3f}"
    )
    own = ET.SubElement(suite, "testcase", classname="voiceprobe.run", name=RUN_CASE, time=f"{run_s:.3f}")
    _add(own, _run_element(report), report.run_outcome.code.name.lower().replace("_", "-"), report.run_outcome.reason)
    ET.SubElement(own, "system-out").text = _text("\n".join(f"{name}: {text}" for name, text in _evidence(report)))
    for judged, name in zip(report.judged, _names(report.judged), strict=True):
        case = ET.SubElement(suite, "testcase", classname="voiceprobe.objectives", name=name, time="0")
        parts = (judged.sentence, judged.tail, judged.counts_sentence)
        _add(case, _OUTCOMES[judged.claim], judged.claim, "; ".join(part for part in parts if part))
    _count(suite, suites)
    ET.indent(suites)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"


def _run_element(report: RunReport) -> str | None:
    """Return how the case of the run ended: None is a pass."""
    match report.run_outcome.code:
        case ExitCode.OK:
            return None
        case ExitCode.OBJECTIVE_MISSED:
            # Each missed objective has failed by itself; a run can be missed for another reason, too.
            return None if any(judged.claim == "missed" for judged in report.judged) else "failure"
        case ExitCode.UNDECIDED:
            return "skipped"
        case ExitCode.UNREACHABLE:
            return "failure"
        case _:
            return "error"


def _add(case: ET.Element, name: str | None, kind: str, sentence: str) -> None:
    """The outcome of a case; it holds the sentence twice, because readers show either the message or the text."""
    if name is None:
        return
    element = ET.SubElement(case, name, message=_text(sentence))
    if name != "skipped":
        element.set("type", kind)
    element.text = _text(sentence)


def _evidence(report: RunReport) -> list[tuple[str, str]]:
    return [("verdict", report.sentence), *evidence_rows(report.run, report.summary)]


def _names(judged: tuple[JudgedObjective, ...]) -> list[str]:
    """A name for each case; readers take two cases of one name for one."""
    titles = [objective.title for objective in judged]
    return [
        _text(
            objective.title if titles.count(objective.title) == 1 else f"{objective.title} ({objective.verdict.name})"
        )
        for objective in judged
    ]


def _count(*elements: ET.Element) -> None:
    for element in elements:
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            element.set(name, str(len(list(element.iter(tag)))))
    elements[0].set("skipped", str(len(list(elements[0].iter("skipped")))))


def _text(text: str) -> str:
    lines = (one_line(line, _LONGEST_CHARS) for line in text.split("\n"))
    return _NOT_XML.sub("\ufffd", "\n".join(lines))
