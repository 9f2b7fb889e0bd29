"""The report of a rollout as one HTML file: the verdict first, then where it is, the bounds over time, and the curves.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Pure; foreign text is escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from loadtest.reports.html import rollout_pictures as pictures
from loadtest.reports.html.elements import folded, legend, prose, section, table
from loadtest.reports.html.rollout_pictures import CohortCurve
from loadtest.reports.html.svg import NARROW, WIDE, text_of
from loadtest.reports.rollout import heading, row_cells
from telemetry.model.formatting import declared_percent, number, turns
from telemetry.rollout.plan import RolloutPlan, moment
from telemetry.rollout.progress import check_name, explanation_of, funnel_of, logged_row
from telemetry.store.rollout_log import RolloutEntry, logged_verdicts

_WORDS: Final = {"promote": "Promote", "hold": "Hold", "roll_back": "Roll back"}
_CLASSES: Final = {"promote": "met", "hold": "undecided", "roll_back": "missed"}
_NO_NETWORK: Final = "default-src 'none'; style-src 'unsafe-inline'"
_NEWEST_CHANGES: Final = 200
_SHOCKS: Final = "What happens to the hosts, the region or the deployment of one cohort alone counts as that cohort's."


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
        f"{declared_percent(plan.error_level)}{prose(more)}</p></header>"
    )


def _stages(report: RolloutReport) -> str:
    decision = report.verdict["verdict"] if report.verdict["stage"] == report.here else None
    parts = [pictures.stages(report.plan.stages, report.here, decision, size) for size in (WIDE, NARROW)]
    return section("Stages", parts)


def _checks(report: RolloutReport) -> str:
    rows = [logged_row(each, check_name(each, report.plan)) for each in report.verdict["checks"]]
    if not rows:
        return ""
    # The result second, and the margin beside the name: a wide table scrolls, and what stands last is out of sight.
    name, *figures, _, _ = heading()
    cells: list[tuple[str, ...]] = []
    for row in rows:
        of, *shares_and_bounds, margin, result = row_cells(row.name, row)
        cells.append((f"{of}, margin {margin}", result, *shares_and_bounds))
    shown = table("Checks of the last look", (name, "result", *figures), cells, texts=2)
    hint = explanation_of(rows) or "The bounds hold at every look; a promotion needs each upper bound below its margin."
    return section("Checks", [shown], f"{hint} {_SHOCKS}")


def _funnels(report: RolloutReport) -> str:
    shown: list[str] = []
    verdicts = logged_verdicts(report.entries)
    for check in report.plan.checks:
        funnel = funnel_of(verdicts, check.name)
        if any(look.upper is not None for look in funnel.points):
            what = check.sentence
            if funnel.unit == "share":
                beyond = f"the control's {check.statistic} by more than {check.format_margin()}"
                what += f": share of turns slower than {beyond}"
            shown.append(f"<h3>{prose(what)}</h3>")
            shown += [pictures.funnel(check.name, funnel, size) for size in (WIDE, NARROW)]
    if not shown:
        return ""
    keys = legend(
        [
            ("candidate", "share of turns, or difference"),
            ("funnel", "its bounds"),
            ("decision-open", "hold"),
            ("decision-met", "promote"),
            ("decision-missed", "roll back"),
        ]
    )
    hint = "Bounds that are wider than the picture run along its edge."
    return section("Bounds over time", [keys, *shown], hint)


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
