"""The Instrument page: whether the load generator kept its pace, and which telemetry is missing."""

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import draw, gauge_lines, has_far_limit
from dashboard.components import frame
from dashboard.components.frame import PageContext
from dashboard.components.markup import Html, nothing, pairs, section, table
from dashboard.links import Choice
from dashboard.pages.cache import counted
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.generator_health import GAUGES, NOT_REPORTED, SUMMARY_FIGURES
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.instrument import SERIES, GaugeSeries, LossOfProcess
from telemetry.store.questions.pages import InstrumentPage

_FAR_ABOVE: Final = "That limit is far above these values and not drawn."


def ask(source: Source, link: Mapping[str, str]) -> InstrumentPage:
    """Answer a link. Raises StoreError if the store cannot be read."""
    return source.reader.instrument_page(Choice.of(link)[0].view())


def _figures(view: InstrumentPage, run: RunRecord, summary: Summary, context: PageContext) -> None:
    instrument = view.instrument
    with st.container(key="halves"):
        left, right = st.columns(2)
    for place, gauge in enumerate(SERIES):
        with (left, right)[place % 2]:
            _gauge(gauge, instrument.series.get(gauge), context)
    with left:
        total = formatting.turns(summary.turns.total)
        remark = f"{formatting.number(summary.turns.invalid)} of {total}; a turn may have several reasons"
        counted("Invalid turns by reason", remark, instrument.invalid, context, f"No invalid turn in {total}")
        st.html(loss(instrument.loss))
    with right:
        st.html(section("Calibration") + nothing(descriptions.describe_calibration(run)))
        st.html(figures(summary))
        rows = [(f"stamp of received chunks: {name}", formatting.number(n)) for name, n in instrument.stamps.items()]
        rows += [(f"timer of sent frames: {name}", formatting.number(n)) for name, n in instrument.pacers.items()]
        title = "Time stamps and timers"
        st.html(section(title, "turns of the callers") + table(title, ("what", "#turns"), rows))


def _gauge(gauge: str, series: GaugeSeries | None, context: PageContext) -> None:
    figure = GAUGES[gauge]
    remarks = [figure.definition, figure.limit_sentence]
    if series is not None and has_far_limit(figure, series):
        remarks.append(_FAR_ABOVE)
    if series is not None and series.processes > len(series.values):
        remarks.append(f"The worst {len(series.values)} of {series.processes} processes.")
    heading = section(figure.chart_heading or figure.label, " ".join(filter(None, remarks)))
    if series is None:
        st.html(heading + nothing(NOT_REPORTED))
        return
    st.html(heading)
    draw(gauge_lines(figure, series, context.zone))


def figures(summary: Summary) -> Html:
    """A table of the load generator's health over all turns, each figure with its definition."""
    generator = summary.generator
    processes = formatting.count(generator.processes, "process", "processes")
    rows = [(generator.describe(figure), figure.definition) for figure in SUMMARY_FIGURES]
    return pairs("Over all turns", rows, Html(f'<span class="hint">{processes}</span>'))


def loss(losses: Sequence[LossOfProcess]) -> Html:
    """A table of the telemetry that arrived from each process."""
    title = "Telemetry by process"
    heading = section(title, "turns; missing are those whose number never arrived")
    if not losses:
        return Html(heading + nothing(NOT_REPORTED))
    rows = [
        (
            process.process_id,
            NOT_REPORTED if process.emitted is None else formatting.number(process.emitted),
            formatting.number(process.received),
            formatting.number(process.missing),
        )
        for process in losses
    ]
    return Html(heading + table(title, ("process", "#emitted", "#received", "#missing"), rows))


PAGE: Final = frame.run_page("Instrument", ask, _figures)
page: Final = PAGE.show
