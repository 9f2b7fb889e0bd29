"""The page about the instrument itself: whether the load generator kept its pace, and what telemetry is missing."""

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts.over_time import Limit, limit_of
from dashboard.components import frame
from dashboard.components.chart import counts_chart, lines_chart, nothing, plain_table, section
from dashboard.components.frame import PageContext
from dashboard.components.markup import escape
from dashboard.links import choice_of
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.formatting import NOT_REPORTED
from telemetry.model.generator_health import GAUGES, SUMMARY_FIGURES, HealthFigure, Unit
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.instrument import SERIES, GaugeSeries, LossOfProcess
from telemetry.store.questions.pages import InstrumentPage

_FAR_ABOVE: Final = "That limit is far above these values and not drawn."
_AXES: Final[dict[Unit, str]] = {"ns": "ms", "bytes": "bytes", "share of a core": "cores"}


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> InstrumentPage:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.reader.instrument_page(choice_of(link)[0].view())


def _figures(view: InstrumentPage, run: RunRecord, summary: Summary, context: PageContext) -> None:
    instrument = view.instrument
    with st.container(key="halves"):
        columns = st.columns(2)
    for place, gauge in enumerate(SERIES):
        with columns[place % 2]:
            _gauge(gauge, instrument.series.get(gauge), context)
    with columns[0]:
        total = formatting.turns(summary.turns.total)
        hint = f"{formatting.number(summary.turns.invalid)} of {total}; a turn may have several reasons"
        none = f"No invalid turn in {total}"
        counts_chart("Invalid turns by reason", hint, instrument.invalid, context.zone, none)
        st.html(loss(instrument.loss))
    with columns[1]:
        st.html(section("Calibration") + nothing(descriptions.describe_calibration(run)))
        st.html(figures(summary))
        st.html(
            section("Time stamps and timers", "turns of the callers")
            + plain_table(
                "Time stamps and timers",
                ("what", "turns"),
                [(f"stamp of received chunks: {name}", formatting.number(n)) for name, n in instrument.stamps.items()]
                + [(f"timer of sent frames: {name}", formatting.number(n)) for name, n in instrument.pacers.items()],
            )
        )


def _gauge(gauge: str, series: GaugeSeries | None, context: PageContext) -> None:
    figure = GAUGES[gauge]
    heading = figure.chart_heading or figure.label
    if series is None:
        st.html(section(heading, f"{figure.definition} {figure.limit_sentence}".rstrip()))
        st.html(nothing(NOT_REPORTED))
        return
    drawn = {process: [_drawn(figure.unit, value) for value in values] for process, values in series.values.items()}
    limit = _limit(figure, drawn)
    hints = [figure.definition, figure.limit_sentence, "" if limit is None or limit.is_drawn else _FAR_ABOVE]
    if series.processes > len(series.values):
        hints.append(f"The worst {len(series.values)} of {series.processes} processes.")
    st.html(section(heading, " ".join(filter(None, hints))))
    lines_chart(
        heading,
        _AXES[figure.unit],
        series.starts_unix_ns,
        drawn,
        texts=[[_text(figure.unit, value) for value in values] for values in series.values.values()],
        zone=context.zone,
        limit=limit,
    )


def _limit(figure: HealthFigure, drawn: Mapping[str, Sequence[float | None]]) -> Limit | None:
    if figure.limit_ns is None:
        return None
    at, text = formatting.in_milliseconds(figure.limit_ns), formatting.declared_milliseconds(figure.limit_ns)
    return limit_of(at, text, drawn.values())


def _drawn(unit: Unit, value: float | None) -> float | None:
    return None if value is None else formatting.in_milliseconds(value) if unit == "ns" else value


def _text(unit: Unit, value: float | None) -> str:
    if value is None:
        return NOT_REPORTED
    if unit == "ns":
        return formatting.fine_milliseconds(value)
    return formatting.percent(value) if unit == "share of a core" else f"{formatting.number(value)} bytes"


def figures(summary: Summary) -> str:
    """The figures of the generator's health over all turns, each with what it is, as HTML."""
    generator = summary.generator
    rows = "".join(
        f'<span>{escape(generator.describe(figure))}</span><span class="key">{escape(figure.definition)}</span>'
        for figure in SUMMARY_FIGURES
    )
    processes = formatting.count(generator.processes, "process", "processes")
    return f'{section("Over all turns", processes)}<div class="vp vp-pairs">{rows}</div>'


def loss(found: Sequence[LossOfProcess]) -> str:
    """What telemetry of each process arrived, as HTML."""
    heading = section("Telemetry by process", "turns; missing are those whose number never arrived")
    if not found:
        return heading + nothing(NOT_REPORTED)
    rows = [
        (
            each.process_id,
            NOT_REPORTED if each.emitted is None else formatting.number(each.emitted),
            formatting.number(each.received),
            formatting.number(each.missing),
        )
        for each in found
    ]
    return heading + plain_table("Telemetry by process", ("process", "emitted", "received", "missing"), rows)


PAGE: Final = frame.RunPage("Instrument", ask, _figures)
