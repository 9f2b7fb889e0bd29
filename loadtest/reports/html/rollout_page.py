"""The report of a rollout as one HTML file: the verdict first, then where it is, the bounds over time, and the curves.

It loads nothing, has no script, and reads on a phone, on paper, in light and in dark. Pure; foreign text is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadtest.reports.html.elements import document, folded, prose, section, table, text_of
from loadtest.reports.rollout import HEADINGS, check_rows, row_cells
from telemetry.charts.compared import curves
from telemetry.charts.drawing import Picture
from telemetry.charts.over_time import funnel
from telemetry.charts.static import PAGE, both_sizes
from telemetry.model.formatting import declared_percent, in_milliseconds, number, turns
from telemetry.rollout.plan import RolloutPlan, moment
from telemetry.rollout.progress import explanation_of, funnel_of
from telemetry.rollout.verdict import RolloutVerdict
from telemetry.store.rollout_rows import RolloutEntry

_WORDS: Final = {"promote": "Promote", "hold": "Hold", "roll_back": "Roll back"}
_CLASSES: Final = {"promote": "met", "hold": "undecided", "roll_back": "missed"}
_CURVE_POINTS: Final = 200
# The curves leave out a larger share of the slowest turns, which are not compared.
_SHOWN_SHARE: Final = 0.995
_NEWEST_CHANGES: Final = 200
_SHOCKS: Final = "What happens to the hosts, the region or the deployment of one cohort alone counts as that cohort's."


@dataclass(frozen=True, slots=True)
class CohortCurve:
    """Voice-to-voice of a cohort's turns in order, in ns; `turns` counts those that got no answer too."""

    name: str
    values_ns: tuple[float, ...]
    turns: int


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """The content of the page. `here` is the stage where the rollout is now, which its last promotion may have begun.
    `entries` are the rows of the rollout."""

    plan: RolloutPlan
    verdict: RolloutVerdict
    at_unix_ns: int
    here: str
    entries: Sequence[RolloutEntry]
    candidate: CohortCurve
    control: CohortCurve


def rollout_as_html(report: RolloutReport) -> str:
    """The whole file."""
    title = f"{_WORDS[report.verdict.verdict]} · rollout {report.plan.name}"
    body = [_head(report), _stages(report), _checks(report), _funnels(report), _curves(report), _history(report)]
    return document(title, body, "Made by voiceprobe from the store; times are UTC.")


def _head(report: RolloutReport) -> str:
    plan, verdict = report.plan, report.verdict
    cohorts, needed = verdict.cohorts, verdict.needed_sentence
    both = () if cohorts is None else (cohorts.candidate, cohorts.control)
    counts = ", ".join(f"{turns(cohort.turns)} of {cohort.name}" for cohort in both)
    figures = [counts, f"error level {declared_percent(plan.error_level)}", needed or ""]
    shown = "".join(f"<p>{prose(line)}</p>" for line in (*verdict.other_reasons, *verdict.notes))
    return (
        f'<header><p class="hint">voiceprobe · rollout {text_of(plan.name)}</p>'
        f"<h1>{text_of(plan.candidate)} in place of <span>{text_of(plan.control)}</span></h1>"
        f'<div class="verdict {_CLASSES[verdict.verdict]}"><p class="badge">{_WORDS[verdict.verdict]}</p>'
        f"<p>{prose(verdict.sentence)}</p>{shown}</div>"
        f'<p class="hint">{moment(report.at_unix_ns)} · {prose(" · ".join(filter(None, figures)))}</p></header>'
    )


def _stages(report: RolloutReport) -> str:
    """The stages in their order: those behind, the one where the rollout is with its verdict, and those to come."""
    names = [stage.name for stage in report.plan.stages]
    here = names.index(report.here)
    verdict = report.verdict.verdict if report.verdict.stage == report.here else "begins"
    items: list[str] = []
    for place, stage in enumerate(report.plan.stages):
        word = "done" if place < here else "ahead" if place > here else verdict.replace("_", " ")
        css = "chip met" if place < here else f"chip {_CLASSES.get(verdict, '')}" if place == here else "hint"
        current = ' aria-current="step"' if place == here else ""
        items.append(
            f"<li{current}><b>{declared_percent(stage.share)}</b> {prose(stage.name)} "
            f'<span class="{css}">{word}</span></li>'
        )
    return section("Stages", [f'<ol class="stages">{"".join(items)}</ol>'])


def _checks(report: RolloutReport) -> str:
    rows = check_rows(report.verdict.checks, report.plan)
    if not rows:
        return ""
    # The result second, and the margin next to the name: a wide table scrolls, and its last columns are out of sight.
    name, *figures, _, _ = HEADINGS
    cells: list[tuple[str, ...]] = []
    for row in rows:
        of, *shares_and_bounds, margin, result = row_cells(row.name, row)
        cells.append((f"{of}, margin {margin}", result, *shares_and_bounds))
    shown = table("Checks of the last look", (name, "result", *figures), cells, texts=2)
    hint = explanation_of(rows) or "The bounds hold at every look; a promotion needs each upper bound below its margin."
    return section("Checks", [shown], f"{hint} {_SHOCKS}")


def _funnels(report: RolloutReport) -> str:
    shown: list[str] = []
    verdicts = [verdict for entry in report.entries if (verdict := entry.logged) is not None]
    for check in report.plan.checks:
        of = funnel_of(verdicts, check.name)
        if of.limit is None or not any(look.upper is not None for look in of.points):
            continue
        what = check.sentence
        if of.unit == "share":
            beyond = f"the control's {check.statistic} by more than {check.format_margin()}"
            what += f": share of turns slower than {beyond}"
        rows = [
            {
                "time": in_milliseconds(look.at_unix_ns),
                "stage": look.stage,
                "lower": look.lower,
                "upper": look.upper,
                "estimate": look.estimate,
                "verdict": look.decision.replace("_", " "),
            }
            for look in of.points
        ]
        alternative = f"Bounds of {check.name} over time; the table has the last ones"
        picture = Picture(rows, funnel(PAGE, of.unit, of.limit, of.limit_text), alternative)
        shown += [f"<h3>{prose(what)}</h3>", both_sizes(picture)]
    hint = "The line is the estimate, the band its bounds; what is beyond the picture runs along its edge."
    return section("Bounds over time", shown, hint) if shown else ""


def _curves(report: RolloutReport) -> str:
    both = (report.control, report.candidate)
    if not all(cohort.values_ns for cohort in both):
        return ""
    most = max(
        cohort.values_ns[min(len(cohort.values_ns) - 1, int(_SHOWN_SHARE * len(cohort.values_ns)))] for cohort in both
    )
    rows: list[dict[str, Any]] = []
    for cohort in both:
        step = max(1, len(cohort.values_ns) // _CURVE_POINTS)
        rows += [
            {"cohort": cohort.name, "ms": in_milliseconds(cohort.values_ns[place]), "share": (place + 1) / cohort.turns}
            for place in (*range(0, len(cohort.values_ns), step), len(cohort.values_ns) - 1)
            if cohort.values_ns[place] <= most
        ]
    names = [cohort.name for cohort in both]
    alternative = f"Cumulative curves of voice to voice: {names[1]} and {names[0]}"
    drawn = both_sizes(Picture(rows, curves(names, PAGE), alternative))
    hint = f"Share of turns answered within a time, at stage {report.verdict.stage}; a turn without an answer never is."
    return section("Voice to voice of both cohorts", [drawn], hint)


def _history(report: RolloutReport) -> str:
    rows: list[tuple[str, ...]] = []
    before: tuple[str, str] | None = None
    for entry in report.entries:
        by = entry.decided_by or ""
        if entry.verdict is None:
            rows.append((moment(entry.at_unix_ns), entry.stage, "begins", by, ""))
            before = None
        elif (key := (entry.stage, entry.decision or "")) != before:
            before = key
            words = entry.verdict.sentence
            decision = (entry.decision or "").replace("_", " ")
            rows.append((moment(entry.at_unix_ns), entry.stage, decision, by, words))
    if not rows:
        return ""
    looks = sum(entry.verdict is not None for entry in report.entries)
    parts = [table("Changes of the verdict", ("at", "stage", "verdict", "by", "why"), rows[-_NEWEST_CHANGES:], texts=5)]
    hint = f"{number(looks)} looks; a row for each change."
    return section("History", [folded("What was decided when", "".join(parts))], hint)
