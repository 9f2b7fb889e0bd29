"""The page about caches and routing: what answered, how long that took, and what caches save."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.components import frame
from dashboard.components.chart import NOT_OBSERVABLE, counts_chart, plain_table, section
from dashboard.components.frame import PageContext
from dashboard.components.tiles import tile
from dashboard.links import choice_of
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.caches import CacheAnswer, FalseAnswers, WaitOfGroup
from telemetry.store.questions.pages import CachePage

_TITLES: Final = {"cache": "By cache", "route": "By route", "model": "By model", "fallback": "By fallback"}
_LONGEST_NAME: Final = 40
_COLUMNS: Final = ("answered by", "turns", "p50", "p95", "p99", "n")


def page() -> None:
    """Draw the page; its body refreshes by itself while the run lives."""
    PAGE.show()


def ask(source: Source, link: Mapping[str, str]) -> CachePage:
    """What a link asks for. Raises StoreError when the store cannot be read."""
    return source.reader.cache_page(choice_of(link)[0].view())


def _figures(view: CachePage, _run: RunRecord, _summary: Summary, context: PageContext) -> None:
    cache = view.cache
    st.html(tiles(cache))
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        counts_chart(
            "Cache hits by tier", "turns that report hit or miss", cache.tiers, context.zone, f"Cache: {NOT_OBSERVABLE}"
        )
        fallback = f"No fallback reported in {formatting.turns(cache.turns)}"
        counts_chart("Fallbacks by kind", "turns that a fallback answered", cache.fallbacks, context.zone, fallback)
    with right:
        st.html(splits(cache))


def tiles(cache: CacheAnswer) -> str:
    """Hit rate, what hits save, and how often a cache gave a wrong answer, as HTML."""
    rate = NOT_OBSERVABLE if cache.hit_rate is None else formatting.percent(cache.hit_rate)
    of = f"{formatting.number(cache.hits)} of {formatting.turns(cache.reported)} with a hit or a miss reported"
    parts = [tile("Cache hits", rate, of, known=cache.hit_rate is not None)]
    saved = cache.saved
    if saved is None:
        why = "needs 20 answered hits and 20 misses" if cache.reported else NOT_OBSERVABLE
        parts.append(tile("Time saved", "not known", why, known=False))
    else:
        each = formatting.milliseconds(saved.per_hit_ns)
        sub = (
            f"{each} a hit on average over {formatting.turns(saved.hits)}: hits against misses, not the same questions"
        )
        parts.append(tile("Time saved", formatting.seconds(saved.total_ns), sub))
    parts.append(tile("Money saved", NOT_OBSERVABLE, "no wire reports what an answer costs", known=False))
    parts.append(_false("False hits", cache.false_hits, cache.false_misses))
    return f'<div class="vp vp-tiles vp-tiles-4">{"".join(parts)}</div>'


def _false(name: str, hits: FalseAnswers, misses: FalseAnswers) -> str:
    if hits.share is None:
        return tile(name, NOT_OBSERVABLE, "needs hits with the script's intent and the endpoint's", known=False)
    beside = f"; misses {formatting.percent(misses.share)}" if misses.share is not None else ""
    sub = f"another intent in {formatting.number(hits.other_intent)} of {formatting.number(hits.judged)} hits{beside}"
    return tile(name, formatting.percent(hits.share), sub)


def splits(cache: CacheAnswer) -> str:
    """Voice to voice by cache, route, model and fallback, as HTML."""
    found = [section("Voice to voice by what answered", "ms, exact; over the answered turns (n)")]
    for what, title in _TITLES.items():
        groups = cache.waits.get(what)
        found.append(section(title) if groups else section(title, NOT_OBSERVABLE))
        if groups:
            found.append(plain_table(f"Voice to voice {title.lower()}", _COLUMNS, [_row(group) for group in groups]))
    return "".join(found)


def _row(group: WaitOfGroup) -> tuple[str, ...]:
    return (
        one_line(group.name, _LONGEST_NAME),
        formatting.number(group.turns),
        *(_text(value, group) for value in (group.p50_ns, group.p95_ns, group.p99_ns)),
        formatting.number(group.n),
    )


def _text(ns: float | None, group: WaitOfGroup) -> str:
    return f"too few ({group.n})" if ns is None else formatting.milliseconds(ns, unit=False)


PAGE: Final = frame.RunPage("Cache and routing", ask, _figures)
