"""The parts of the report's page below its pictures: single turns, failures, cohorts, evidence, the run. Pure."""

from loadtest.reports.html import waterfalls
from loadtest.reports.html.elements import folded, pairs, prose, section, table
from loadtest.reports.rows import evidence_rows, happened_rows, run_rows
from loadtest.reports.run_report import RunReport, SlowTurn
from loadtest.reports.tables import ReportTable, run_tables


def sections(report: RunReport) -> list[str]:
    """All parts that there is something to say in, in the order of the page."""
    run, summary = report.run, report.summary
    return [
        _slowest(report),
        section("What happened", [pairs(happened_rows(summary))]),
        *(section(below.title, [listed(below)]) for below in run_tables(run, summary)),
        section("How well this was measured", [pairs(evidence_rows(run, summary))]),
        section("The run", [pairs(run_rows(run, summary))]),
    ]


def listed(shown: ReportTable) -> str:
    """A table with what is said below it. A row begins with a text: a figure there goes to the end."""
    heading, rows, texts = shown.heading, shown.rows, shown.texts
    if 0 not in texts:
        heading, rows = (*heading[1:], heading[0]), [(*row[1:], row[0]) for row in rows]
        texts = frozenset(place - 1 for place in texts)
    below = "".join(f'<p class="hint">{prose(line)}</p>' for line in (*shown.notes, *shown.warnings))
    return table(shown.caption or shown.title, heading, rows, texts=texts) + below


def _slowest(report: RunReport) -> str:
    slowest = report.pictures.slowest
    if not slowest:
        return ""
    hint = "each turn on one clock, in ms from the end of the caller's speech; the slowest first"
    if any(slow.has_both_sides for slow in slowest):
        hint += "; full bars are heard by the caller, pale ones below them reported by the service"
    return section("The slowest turns", [_turn(slow, place) for place, slow in enumerate(slowest, start=1)], hint)


def _turn(slow: SlowTurn, place: int) -> str:
    head = f"<h3>{place}. {prose(waterfalls.heading(slow))}</h3>"
    about = "".join(f"<span>{prose(name)} <b>{prose(value)}</b></span> " for name, value in waterfalls.about(slow))
    drawn = waterfalls.draw(slow.waterfall)
    heading, rows = ("stage", "side", "begins", "ends", "took"), waterfalls.rows(slow.waterfall)
    cells = folded("The turn as a table", table(f"Turn {place}", heading, rows, texts=2))
    return f'<article>{head}<p class="about">{about}</p>{drawn}{cells}</article>'
