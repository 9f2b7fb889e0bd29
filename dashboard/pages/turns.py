"""The Turns page: every turn of a run in a heat map over time, their distribution, a search, and a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from dashboard import charts, descriptions
from dashboard.components import frame
from dashboard.components.figures import explanation
from dashboard.components.frame import PageContext
from dashboard.components.markup import Html, empty, escape, hint, link_to, note, section, short, table
from dashboard.components.selectors import hold, linked_select
from dashboard.descriptions import Clock
from dashboard.links import Choice, TurnsChoice
from dashboard.source import Source
from telemetry.charts.turns import CELL, OUTLIER
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.turns import (
    MOST_CHARS,
    MOST_PAGED,
    ORDERS,
    ListedTurn,
    TurnsAnswer,
    band_limits_ms,
)

_KEY: Final = "turns_"
_ANY: Final = ""
_TURNS: Final = "turns"
_SEARCH: Final = ("find", "outcome", "model", "from_ms", "below_ms", "order")
_PLACEHOLDER: Final = "trace, call, utterance, or words where kept"
_HINT: Final = "click a cell to list its turns and see what sets them apart, a point to open the turn"
_COLUMNS: Final = (
    *("voice to voice", "began", "outcome", "utterance", "cohort", "route", "model", "noise", "cache", "fallback"),
)
_CACHE: Final = {None: formatting.DASH, True: "hit", False: "miss"}


def ask(source: Source, link: Mapping[str, str]) -> TurnsAnswer:
    """Answer a link. Raises StoreError if the store cannot be read."""
    return source.reader.turns_page(TurnsChoice.of(link)[0].question(Choice.of(link)[0]))


def _draw(answer: TurnsAnswer, run: RunRecord, _summary: Summary, context: PageContext) -> None:
    """Draw everything below the head from one snapshot of the store."""
    clock, choice = descriptions.clock_of(run, context.zone), context.choice
    listed, faults = TurnsChoice.of(st.query_params)
    if faults:
        st.html(note("the link", faults))
    _search(answer, listed)
    st.html(narrowed(answer, choice, listed, clock))
    if not answer.total:
        st.html(empty("No turn matches the search", "Take away what narrows it, above."))
        return
    with st.container(key="halves"):
        left, right = st.columns([2.6, 1])

    def to(narrowed: TurnsChoice) -> str:
        return choice.link(_TURNS, **narrowed.query())

    with left:
        st.html(section("Over time", _HINT))
        if answer.with_value:
            cells = charts.heat_map(
                answer,
                clock,
                lambda cell: to(_in_cell(listed, cell.start_unix_ns // formatting.NS_PER_S, cell.band, answer)),
            )
            _follow(charts.draw(cells, key="heat"), answer)
        else:
            st.html(hint("No turn of these has a voice-to-voice latency."))
    if answer.with_value:
        with right:
            st.html(section("Distribution"))
            charts.draw(charts.distribution(answer, lambda band: to(_in_band(listed, band))))
    if answer.explanation is not None:
        st.html(explanation(answer.explanation, "turns that are searched for"))
    st.html(turns_table(answer.turns, choice, listed, clock))
    st.html(pages(answer, choice, listed) or "<div></div>")
    if without := answer.total - answer.with_value:
        st.html(hint(f"{formatting.turns(without)} without a latency, or invalid: listed, and not in the pictures"))


def _search(answer: TurnsAnswer, listed: TurnsChoice) -> None:
    """Draw the fields of the search. A change rewrites the link and runs the page again."""
    with st.container(key="search"):
        find, outcome, model, low, high, order = st.columns([2.2, 1.1, 1.3, 0.9, 0.9, 1.1], vertical_alignment="bottom")
    with find:
        hold(f"{_KEY}find", listed.find or "")
        st.text_input("Find", key=f"{_KEY}find", on_change=_rewrite, max_chars=MOST_CHARS, placeholder=_PLACEHOLDER)
    labels = {**OUTCOME_LABELS, _ANY: "any outcome"}
    with outcome:
        _choose("outcome", answer.values.get("outcome", ()), listed.outcome, lambda name: labels.get(name, name))
    with model:
        _choose("model", answer.values.get("model", ()), listed.model, lambda name: name or "any model")
    for column, name, label in ((low, "from_ms", "From, ms"), (high, "below_ms", "Below, ms")):
        with column:
            hold(_KEY + name, getattr(listed, name))
            st.number_input(label, key=_KEY + name, on_change=_rewrite, value=None, min_value=0, step=100)
    with order:
        _choose("order", tuple(ORDERS)[1:], listed.order, lambda name: f"{name or next(iter(ORDERS))} first")


def _choose(name: str, options: Sequence[str], chosen: str | None, label_of: Callable[[str], str]) -> None:
    every = [_ANY, *options, *([chosen] if chosen is not None and chosen not in options else [])]
    linked_select(name.capitalize(), every, chosen or _ANY, key=_KEY + name, label_of=label_of, rewrite=_rewrite)


def _rewrite() -> None:
    values = {name: st.session_state.get(_KEY + name) for name in _SEARCH}
    chosen = {name: None if value in (None, _ANY) else value for name, value in values.items()}
    _to(replace(TurnsChoice.of(st.query_params)[0], **chosen, at_page=None))


def _to(listed: TurnsChoice, **more: str) -> None:
    """Write a new list into the link; its other parameters stay."""
    others = {name: value for name, value in st.query_params.items() if name not in TurnsChoice.names()}
    st.query_params.from_dict({**others, **listed.query(), **more})


def _in_band(listed: TurnsChoice, band: int) -> TurnsChoice:
    low, high = band_limits_ms(band)
    return replace(listed, from_ms=low, below_ms=high, at_page=None)


def _in_cell(listed: TurnsChoice, since_s: int, band: int, answer: TurnsAnswer) -> TurnsChoice:
    """The list narrowed to the turns of one cell."""
    until_s = since_s + answer.width_ns // formatting.NS_PER_S
    return replace(_in_band(listed, band), since_s=since_s, until_s=until_s)


def _follow(event: Any, answer: TurnsAnswer) -> None:
    """Follow a click in the heat map: a cell narrows the list to its turns, a point opens its turn."""
    selected: dict[str, list[dict[str, Any]]] = dict(event.selection) if event is not None and event.selection else {}
    listed = TurnsChoice.of(st.query_params)[0]
    points, cells = selected.get(OUTLIER) or [], selected.get(CELL) or []
    if points and points[0].get("trace"):
        _to(listed, trace=str(points[0]["trace"]), turn=str(points[0]["turn"]))
        st.rerun()
    if cells and cells[0].get("since") is not None:
        chosen = _in_cell(listed, int(cells[0]["since"]), int(cells[0]["number"]), answer)
        if chosen != listed and listed.since_s is None:
            _to(chosen)
            st.rerun()


def turns_table(turns: Sequence[ListedTurn], choice: Choice, listed: TurnsChoice, clock: Clock) -> Html:
    """The rows of one page."""
    return table("Turns", _COLUMNS, (_row(turn, choice, listed, clock) for turn in turns), css="vp-turns")


def _row(turn: ListedTurn, choice: Choice, listed: TurnsChoice, clock: Clock) -> list[str]:
    link = choice.link(_TURNS, trace=turn.trace_id, turn=str(turn.turn_index), **listed.query())
    value = formatting.DASH if turn.value_ns is None else formatting.milliseconds(turn.value_ns)
    cells = (
        *(clock(turn.started_unix_ns), OUTCOME_LABELS[turn.outcome], turn.utterance_id, turn.cohort, turn.route),
        *(turn.model, turn.noise_profile, _CACHE[turn.cache_hit], turn.fallback),
    )
    return [link_to(link, f"{value} →", f"{value}, open the turn"), *(short(cell or formatting.DASH) for cell in cells)]


def pages(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice) -> Html:
    """The page number, with links to the previous and the next page."""
    if answer.pages <= 1:
        return Html()

    def step(page: int, label: str) -> str:
        if not 0 <= page < answer.pages:
            return f'<span class="hint" aria-disabled="true">{label}</span>'
        return link_to(choice.link(_TURNS, **replace(listed, at_page=page or None).query()), label)

    is_cut = answer.total > MOST_PAGED
    capped = f"; the first {MOST_PAGED:,} can be listed, narrow the search for others" if is_cut else ""
    return Html(
        f'<nav class="vp vp-neighbors" aria-label="Pages of the table">{step(answer.page - 1, "← previous page")}'
        f"<span>page {answer.page + 1} of {answer.pages}{capped}</span>{step(answer.page + 1, 'next page →')}</nav>"
    )


def narrowed(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice, clock: Clock) -> Html:
    """A sentence on what the list is narrowed to, with a link to remove each restriction."""
    begun = [clock(s * formatting.NS_PER_S) for s in (listed.since_s, listed.until_s) if s]
    limits = (("from", listed.from_ms), ("below", listed.below_ms))
    shown = (
        (name, formatting.declared_milliseconds(ms * formatting.NS_PER_MS)) for name, ms in limits if ms is not None
    )
    latency = " ".join(f"{name} {limit}" for name, limit in shown)
    narrowings = (
        (f"found by “{listed.find}”" if listed.find else "", ("find",)),
        (f"began {' to '.join(begun)}" if begun else "", ("since_s", "until_s")),
        (latency, ("from_ms", "below_ms")),
        (f"outcome {listed.outcome}" if listed.outcome else "", ("outcome",)),
        (f"model {listed.model}" if listed.model else "", ("model",)),
    )
    chips: list[str] = []
    for text, names in narrowings:
        if text:
            without = choice.link(_TURNS, **replace(listed, **dict.fromkeys(names), at_page=None).query())
            chips.append(link_to(without, f"{text} ✕", f"remove: {text}"))
    words = ""
    if listed.find and answer.words.calls:
        searched = "" if answer.words.is_all else "the first "
        words = f' <span class="hint">words of {searched}{answer.words.calls:,} kept calls were searched</span>'
    many = escape(formatting.turns(answer.total))
    return Html(f'<div class="vp vp-narrowed"><b>{many}</b> {"".join(chips)}{words}</div>')


PAGE: Final = frame.run_page("Turns", ask, _draw)
page: Final = PAGE.show
