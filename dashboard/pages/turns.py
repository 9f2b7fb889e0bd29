"""The Turns page: every turn of a run in a heat map over time, their distribution, a search, and a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts import turn_charts
from dashboard.charts.style import palette
from dashboard.components import frame, header
from dashboard.components.chart import chart
from dashboard.components.explanation import explanation
from dashboard.components.frame import PageContext
from dashboard.components.markup import escape, short
from dashboard.components.selectors import linked_select
from dashboard.descriptions import Clock
from dashboard.links import Choice, TurnsChoice, choice_of, turns_choice_of
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.turns import (
    MOST_CHARS,
    MOST_PAGED,
    ORDERS,
    HeatCell,
    ListedTurn,
    TurnsAnswer,
    band_limits_ms,
)

_KEY: Final = "turns_"
_ANY: Final = ""
_ORDER_LABELS: Final = {
    "slowest": "slowest first",
    "fastest": "fastest first",
    "newest": "newest first",
    "oldest": "oldest first",
}
_HEAT_ALT: Final = "Turns by the time when they began and by voice to voice; the slowest ones as points"
_BANDS_ALT: Final = "How many turns each band of voice to voice has"


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> TurnsAnswer:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.reader.turns_page(turns_choice_of(link)[0].question(choice_of(link)[0]))


def _draw(answer: TurnsAnswer, run: RunRecord, summary: Summary, context: PageContext) -> None:
    """Everything below the head, from one state of the store."""
    del summary
    clock = descriptions.clock_of(run, context.zone)
    listed, faults = turns_choice_of(st.query_params)
    if faults:
        st.html(header.notes(faults, "the link"))
    _search(answer, listed)
    st.html(narrowed(answer, context.choice, listed, clock))
    if not answer.total:
        st.html(header.empty("No turn matches the search", "Take away what narrows it, above."))
        return
    with st.container(key="halves"):
        left, right = st.columns([2.6, 1])
    bands, colors = turn_charts.shown_bands(answer), palette(st.context.theme.type)
    hint = "click a cell to list its turns and see what sets them apart, a point to open the turn"
    with left:
        st.html(f'<div class="vp vp-head"><h2>Over time <span class="hint">{hint}</span></h2></div>')
        if bands:
            spec = turn_charts.heat_spec(colors, bands)
            table = turn_charts.heat_table(answer, clock, lambda cell: _to_cell(context.choice, listed, cell, answer))
            _follow(chart(turn_charts.heat_rows(answer), spec, _HEAT_ALT, table, key="heat"), answer)
        else:
            st.html('<div class="vp hint">No turn of these has a voice-to-voice latency.</div>')
    if bands:
        with right:
            st.html('<div class="vp vp-head"><h2>Distribution</h2></div>')
            rows, spec = turn_charts.distribution_rows(answer), turn_charts.distribution_spec(colors, bands)
            table = turn_charts.distribution_table(answer, lambda band: _to_band(context.choice, listed, band))
            chart(rows, spec, _BANDS_ALT, table)
    if answer.explanation is not None:
        st.html(explanation(answer.explanation, "turns that are searched for"))
    st.html(turns_table(answer.turns, context.choice, listed, clock))
    st.html(pages(answer, context.choice, listed) or "<div></div>")
    without = answer.total - answer.with_value
    if without:
        text = f"{formatting.turns(without)} without a latency, or invalid: listed, and not in the pictures"
        st.html(f'<div class="vp hint">{escape(text)}</div>')


def _search(answer: TurnsAnswer, listed: TurnsChoice) -> None:
    """The fields of the search. A change rewrites the link and runs the page again."""
    outcomes, models = answer.values.get("outcome", ()), answer.values.get("model", ())
    with st.container(key="search"):
        fields = st.columns([2.2, 1.1, 1.3, 0.9, 0.9, 1.1], vertical_alignment="bottom")
    find, outcome, model, low, high, order = fields
    with find:
        _hold("find", listed.find or "")
        st.text_input(
            "Find",
            key=f"{_KEY}find",
            on_change=_rewrite,
            max_chars=MOST_CHARS,
            placeholder="trace, call, utterance, or words where kept",
        )
    with outcome:
        _choose("outcome", "Outcome", outcomes, listed.outcome, lambda name: _outcome_label(name) or "any outcome")
    with model:
        _choose("model", "Model", models, listed.model, lambda name: name or "any model")
    for column, name, label in ((low, "from_ms", "From, ms"), (high, "below_ms", "Below, ms")):
        with column:
            _hold(name, getattr(listed, name))
            st.number_input(label, key=_KEY + name, on_change=_rewrite, value=None, min_value=0, step=100)
    with order:
        _choose("order", "Order", tuple(ORDERS)[1:], listed.order, lambda name: _ORDER_LABELS[name or "slowest"])


def _outcome_label(name: str) -> str:
    return OUTCOME_LABELS.get(name, name)


def _hold(name: str, value: Any) -> None:
    """The link decides what a field holds, also when it changed under the page."""
    if st.session_state.get(_KEY + name) != value:
        st.session_state[_KEY + name] = value


def _choose(name: str, label: str, options: Sequence[str], chosen: str | None, shown: Callable[[str], str]) -> None:
    every = [_ANY, *options, *([chosen] if chosen is not None and chosen not in options else [])]
    linked_select(label, every, chosen or _ANY, key=_KEY + name, label_of=shown, rewrite=_rewrite)


def _rewrite() -> None:
    listed = turns_choice_of(st.query_params)[0]
    names = ("find", "outcome", "model", "from_ms", "below_ms", "order")
    values = {name: st.session_state.get(_KEY + name) for name in names}
    chosen = {name: None if value in (None, _ANY) else value for name, value in values.items()}
    _to(replace(listed, **chosen, at_page=None))


def _to(listed: TurnsChoice, **more: str) -> None:
    """Write the link of this list: what else stands in it stays."""
    own = {*TurnsChoice.__dataclass_fields__}
    others = {name: value for name, value in st.query_params.items() if name not in own}
    st.query_params.from_dict({**others, **listed.query(), **more})


def _in_cell(listed: TurnsChoice, since_s: int, band: int, answer: TurnsAnswer) -> TurnsChoice:
    """The list of the turns of one cell."""
    low, high = band_limits_ms(band)
    until_s = since_s + answer.width_ns // formatting.NS_PER_S
    return replace(listed, since_s=since_s, until_s=until_s, from_ms=low, below_ms=high, at_page=None)


def _to_cell(choice: Choice, listed: TurnsChoice, cell: HeatCell, answer: TurnsAnswer) -> str:
    since_s = cell.start_unix_ns // formatting.NS_PER_S
    return choice.link("turns", **_in_cell(listed, since_s, cell.band, answer).query())


def _to_band(choice: Choice, listed: TurnsChoice, band: int) -> str:
    low, high = band_limits_ms(band)
    return choice.link("turns", **replace(listed, from_ms=low, below_ms=high, at_page=None).query())


def _follow(event: Any, answer: TurnsAnswer) -> None:
    """What was clicked in the heat map: a cell narrows the list to its turns, a point opens its turn."""
    selected: dict[str, list[dict[str, Any]]] = dict(event.selection) if event is not None and event.selection else {}
    listed = turns_choice_of(st.query_params)[0]
    points, cells = selected.get(turn_charts.OUTLIER) or [], selected.get(turn_charts.CELL) or []
    if points and points[0].get("trace"):
        _to(listed, trace=str(points[0]["trace"]), turn=str(points[0]["turn"]))
        st.rerun()
    if cells and cells[0].get("since") is not None:
        chosen = _in_cell(listed, int(cells[0]["since"]), int(cells[0]["number"]), answer)
        if chosen != listed and listed.since_s is None:
            _to(chosen)
            st.rerun()


PAGE: Final = frame.RunPage("Turns", ask, _draw)


_TURNS = "turns"
_COLUMNS = ("voice to voice", "began", "outcome", "utterance", "cohort", "route", "model", "noise", "cache", "fallback")
_CACHE = {None: formatting.DASH, True: "hit", False: "miss"}


def turns_table(turns: Sequence[ListedTurn], choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    """The rows of one page."""
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    rows = "".join(_row(turn, choice, listed, clock) for turn in turns)
    return (
        '<div class="vp vp-turns" role="region" aria-label="Turns" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(turn: ListedTurn, choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    link = choice.link(_TURNS, trace=turn.trace_id, turn=str(turn.turn_index), **listed.query())
    value = formatting.DASH if turn.value_ns is None else formatting.milliseconds(turn.value_ns)
    name = f"{value}, open the turn"
    cells = (
        clock(turn.started_unix_ns),
        OUTCOME_LABELS[turn.outcome],
        *(each or formatting.DASH for each in (turn.utterance_id, turn.cohort, turn.route, turn.model)),
        turn.noise_profile or formatting.DASH,
        _CACHE[turn.cache_hit],
        turn.fallback or formatting.DASH,
    )
    shown = "".join(f"<td>{short(cell)}</td>" for cell in cells)
    opening = f'<a href="{escape(link)}" target="_self" aria-label="{escape(name)}">{escape(value)} →</a>'
    return f'<tr><th scope="row">{opening}</th>{shown}</tr>'


def pages(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice) -> str:
    """Which page this is, with links to those before and after it."""
    if answer.pages <= 1:
        return ""
    before = _step(choice, listed, answer.page - 1, "← previous page", is_there=answer.page > 0)
    after = _step(choice, listed, answer.page + 1, "next page →", is_there=answer.page + 1 < answer.pages)
    is_cut = answer.total > MOST_PAGED
    capped = f"; the first {MOST_PAGED:,} can be listed, narrow the search for others" if is_cut else ""
    return (
        '<nav class="vp vp-neighbors" aria-label="Pages of the table">'
        f"{before}<span>page {answer.page + 1} of {answer.pages}{capped}</span>{after}</nav>"
    )


def _step(choice: Choice, listed: TurnsChoice, page: int, label: str, *, is_there: bool) -> str:
    if not is_there:
        return f'<span class="hint" aria-disabled="true">{label}</span>'
    link = choice.link(_TURNS, **replace(listed, at_page=page or None).query())
    return f'<a href="{escape(link)}" target="_self">{label}</a>'


def narrowed(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    """What is listed, in a sentence, with a link that takes each narrowing away."""
    parts: list[tuple[str, TurnsChoice]] = []
    if listed.find:
        parts.append((f"found by “{listed.find}”", replace(listed, find=None, at_page=None)))
    if listed.since_s is not None or listed.until_s is not None:
        begun = [clock(s * formatting.NS_PER_S) for s in (listed.since_s, listed.until_s) if s]
        parts.append((f"began {' to '.join(begun)}", replace(listed, since_s=None, until_s=None, at_page=None)))
    if listed.from_ms is not None or listed.below_ms is not None:
        low = f"from {_limit_text(listed.from_ms)}" if listed.from_ms is not None else ""
        high = f"below {_limit_text(listed.below_ms)}" if listed.below_ms is not None else ""
        parts.append((f"{low} {high}".strip(), replace(listed, from_ms=None, below_ms=None, at_page=None)))
    for name, value in (("outcome", listed.outcome), ("model", listed.model)):
        if value:
            parts.append((f"{name} {value}", replace(listed, **{name: None}, at_page=None)))  # pyright: ignore[reportArgumentType]
    chips = "".join(
        f'<a class="vp-without" href="{escape(choice.link(_TURNS, **without.query()))}" target="_self" '
        f'aria-label="{escape(f"remove: {text}")}">{escape(text)} ✕</a>'
        for text, without in parts
    )
    words = ""
    if listed.find and answer.words.calls:
        looked = "" if answer.words.is_all else "the first "
        words = f' <span class="hint">words of {looked}{answer.words.calls:,} kept calls were searched</span>'
    return f'<div class="vp vp-narrowed"><b>{escape(formatting.turns(answer.total))}</b> {chips}{words}</div>'


def _limit_text(ms: float) -> str:
    return formatting.declared_milliseconds(ms * formatting.NS_PER_MS)
