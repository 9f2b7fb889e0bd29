"""The report of a rollout as one HTML file: the verdict first, then where it is, the bounds over time, and the curves.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Pure; foreign text is escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from loadtest.reports.html import rollout_pictures as pictures
from loadtest.reports.html.elements import folded, legend, prose, section, table
from loadtest.reports.html.rollout_pictures import BoundsAt, CohortCurve
from loadtest.reports.html.svg import NARROW, WIDE, text_of
from telemetry.model.formatting import DASH, NS_PER_S, declared_percent, number, turns
from telemetry.rollout.plan import Check, RolloutPlan, moment
from telemetry.store.rollout_lines import RolloutEntry

_WORDS: Final = {"promote": "Promote", "hold": "Hold", "roll_back": "Roll back"}
_CLASSES: Final = {"promote": "met", "hold": "undecided", "roll_back": "missed"}
_STATUS: Final = {"worse": "worse", "within": "within", "open": "not known yet", "unknown": "cannot be compared"}
_NO_NETWORK: Final = "default-src 'none'; style-src 'unsafe-inline'"
_NEWEST_CHANGES: Final = 200


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """What the page shows. `verdict` is the object of `verdict_document`; `here` is the stage where the rollout is now,
    which its last promotion may have begun. `entries` are those of the log, `faults` what is wrong with it."""

    plan: RolloutPlan
    verdict: Mapping[str, Any]
    at_unix_ns: int
    here: str
    entries: Sequence[RolloutEntry]
    candidate: CohortCurve
    control: CohortCurve
    faults: tuple[str, ...] = ()


def rollout_as_html(report: RolloutReport) -> str:
    """The whole file."""
    style = files("loadtest.reports.html").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{_WORDS[report.verdict['verdict']]} · rollout {report.plan.name}"
    parts = [_head(report), _stages(report), _checks(report), _funnels(report), _curves(report), _history(report)]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_NETWORK}">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        '<footer><p class="hint">Made by voiceprobe from the store and the log of the rollout; times are UTC.</p>'
        "</footer>\n</body>\n</html>\n"
    )


def _head(report: RolloutReport) -> str:
    plan, verdict = report.plan, report.verdict
    cohorts = verdict["cohorts"]
    counts = (
        ""
        if cohorts is None
        else f"{turns(cohorts['candidate']['turns'])} of {plan.candidate}, "
        f"{turns(cohorts['control']['turns'])} of {plan.control} · "
    )
    needed = verdict["turns_needed"]
    more = f" · about {turns(needed)} more of {plan.candidate} are needed" if needed else ""
    others = [*verdict["reasons"][1:], *verdict["notes"]] if verdict["verdict"] != "promote" else verdict["notes"]
    shown = "".join(f"<p>{prose(each)}</p>" for each in others)
    faults = "".join(f'<p class="note">{prose(each)}</p>' for each in report.faults)
    return (
        f'<header><p class="hint">voiceprobe · rollout {text_of(plan.name)}</p>'
        f"<h1>{text_of(plan.candidate)} in place of <span>{text_of(plan.control)}</span></h1>"
        f'<div class="verdict {_CLASSES[verdict["verdict"]]}"><p class="badge">{_WORDS[verdict["verdict"]]}</p>'
        f"<p>{prose(verdict['sentence'])}</p>{shown}</div>{faults}"
        f'<p class="hint">{moment(report.at_unix_ns)} · {prose(counts)}error level '
        f"{declared_percent(plan.error_level)}, power {declared_percent(plan.power)}{prose(more)}</p></header>"
    )


def _stages(report: RolloutReport) -> str:
    decision = report.verdict["verdict"] if report.verdict["stage"] == report.here else None
    parts = [pictures.stages(report.plan.stages, report.here, decision, size) for size in (WIDE, NARROW)]
    return section("Stages", parts)


def _checks(report: RolloutReport) -> str:
    checks = {check.name: check for check in report.plan.checks}
    rows = [_row(checks[each["name"]], each) for each in report.verdict["checks"] if each["name"] in checks]
    if not rows:
        return ""
    heading = ("check", "candidate", "control", "difference", "bounds", "margin", "result")
    hint = (
        "The bounds hold however often anybody looks; a promotion needs every upper bound below its margin. What "
        "happens to the hosts, the region or the deployment of one cohort alone counts as that cohort's."
    )
    return section("Checks", [table("Checks of the last look", heading, rows)], hint)


def _row(check: Check, found: Mapping[str, Any]) -> tuple[str, ...]:
    lower, upper = _in_unit(check, found["lower"]), _in_unit(check, found["upper"])
    bounds = DASH if lower is None else f"{check.format_difference(lower)} to {check.format_difference(upper)}"
    return (
        check.name,
        check.format(_in_unit(check, found["candidate"])),
        check.format(_in_unit(check, found["control"])),
        check.format_difference(_in_unit(check, found["difference"])),
        bounds,
        check.format_margin(),
        _STATUS[found["status"]],
    )


def _in_unit(check: Check, value: float | None) -> float | None:
    """A figure of the verdict's object in the unit that the check is written in."""
    return value * NS_PER_S if value is not None and check.figure_kind == "ns" else value


def _funnels(report: RolloutReport) -> str:
    shown: list[str] = []
    for check in report.plan.checks:
        looks = _looks(report, check)
        if any(look.lower is not None for look in looks):
            shown.append(f"<h3>{prose(check.sentence)}</h3>")
            shown += [pictures.funnel(check, looks, size) for size in (WIDE, NARROW)]
    if not shown:
        return ""
    keys = legend(
        [
            ("candidate", "difference"),
            ("funnel", "its bounds"),
            ("decision-open", "hold"),
            ("decision-met", "promote"),
            ("decision-missed", "roll back"),
        ]
    )
    hint = "Candidate less control; bounds that are wider than the picture run along its edge."
    return section("Bounds over time", [keys, *shown], hint)


def _looks(report: RolloutReport, check: Check) -> list[BoundsAt]:
    found: list[BoundsAt] = []
    for entry in report.entries:
        if entry.verdict is None or entry.decision is None:
            continue
        of_check = next((each for each in entry.verdict["checks"] if each["name"] == check.name), {})
        lower, middle, upper = (_in_unit(check, of_check.get(name)) for name in ("lower", "difference", "upper"))
        found.append(BoundsAt(entry.at_unix_ns, entry.verdict["stage"], entry.decision, lower, middle, upper))
    return found


def _curves(report: RolloutReport) -> str:
    candidate, control = report.candidate, report.control
    if not candidate.values_ns or not control.values_ns:
        return ""
    keys = legend([("candidate", candidate.name), ("control", control.name)])
    shown = [pictures.curves(candidate, control, size) for size in (WIDE, NARROW)]
    stage = report.verdict["stage"]
    hint = f"Share of turns answered within a time, at stage {stage}; a turn without an answer never is."
    return section("Voice to voice of both cohorts", [keys, *shown], hint)


def _history(report: RolloutReport) -> str:
    rows: list[tuple[str, ...]] = []
    before: tuple[str, str] | None = None
    for entry in report.entries:
        if entry.verdict is None:
            rows.append((moment(entry.at_unix_ns), entry.stage, "begins", ""))
            before = None
        elif (key := (entry.stage, entry.decision or "")) != before:
            before = key
            words = str(entry.verdict["sentence"])
            rows.append((moment(entry.at_unix_ns), entry.stage, (entry.decision or "").replace("_", " "), words))
    if not rows:
        return ""
    looks = sum(entry.verdict is not None for entry in report.entries)
    parts = [table("Changes of the verdict", ("at", "stage", "verdict", "why"), rows[-_NEWEST_CHANGES:], texts=4)]
    hint = f"{number(looks)} looks of the log; a row for each change."
    return section("History", [folded("What was decided when", "".join(parts))], hint)
