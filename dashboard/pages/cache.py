"""The Cache page: which cache, route or model answered, the latency of each, and the time that caches save."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.charts import count_bars, draw
from dashboard.components import frame
from dashboard.components.figures import tile, tile_row
from dashboard.components.frame import PageContext
from dashboard.components.markup import NOT_OBSERVABLE, Html, nothing, section, table
from dashboard.links import Choice
from dashboard.source import Source
from telemetry.model import formatting
from telemetry.model.foreign_text import one_line
from telemetry.store.answers import RunRecord, Summary
from telemetry.store.questions.caches import CacheAnswer, FalseAnswers, WaitOfGroup
from telemetry.store.questions.pages import CachePage
from telemetry.store.questions.timelines import CountsOverTime

_TITLES: Final = {"cache": "By cache", "route": "By route", "model": "By model", "fallback": "By fallback"}
_LONGEST_NAME: Final = 40
_COLUMNS: Final = ("answered by", "#turns", "#p50", "#p95", "#p99", "#n")


def ask(source: Source, link: Mapping[str, str]) -> CachePage:
    """Answer a link. Raises StoreError if the store cannot be read."""
    return source.reader.cache_page(Choice.of(link)[0].view())


def _figures(view: CachePage, _run: RunRecord, _summary: Summary, context: PageContext) -> None:
    cache = view.cache
    st.html(tiles(cache))
    with st.container(key="halves"):
        left, right = st.columns(2)
    with left:
        fallback = f"No fallback reported in {formatting.turns(cache.turns)}"
        for title, remark, counts, missing in (
            ("Cache hits by tier", "turns that report hit or miss", cache.tiers, f"Cache: {NOT_OBSERVABLE}"),
            ("Fallbacks by kind", "turns that a fallback answered", cache.fallbacks, fallback),
        ):
            counted(title, remark, counts, context, missing)
    with right:
        st.html(splits(cache))


def counted(title: str, remark: str, counts: CountsOverTime, context: PageContext, missing: str) -> None:
    """Draw counts over time below their heading; `missing` says why there are none."""
    st.html(section(title, remark))
    if counts.starts_unix_ns:
        draw(count_bars(title, counts, context.zone))
    else:
        st.html(nothing(missing))


def tiles(cache: CacheAnswer) -> Html:
    """Hit rate, the time that hits save, and how often a cache gave a wrong answer."""
    rate = NOT_OBSERVABLE if cache.hit_rate is None else formatting.percent(cache.hit_rate)
    of = f"{formatting.number(cache.hits)} of {formatting.turns(cache.reported)} with a hit or a miss reported"
    parts = [tile("Cache hits", rate, of, known=cache.hit_rate is not None)]
    if cache.saved is None:
        why = "needs 20 answered hits and 20 misses" if cache.reported else NOT_OBSERVABLE
        parts.append(tile("Time saved", "not known", why, known=False))
    else:
        mean = f"{formatting.milliseconds(cache.saved.per_hit_ns)} a hit on average over"
        sub = f"{mean} {formatting.turns(cache.saved.hits)}: hits against misses, not the same questions"
        parts.append(tile("Time saved", formatting.seconds(cache.saved.total_ns), sub))
    parts.append(tile("Money saved", NOT_OBSERVABLE, "no wire reports what an answer costs", known=False))
    return tile_row([*parts, _false(cache.false_hits, cache.false_misses)])


def _false(hits: FalseAnswers, misses: FalseAnswers) -> Html:
    if hits.share is None:
        return tile("False hits", NOT_OBSERVABLE, "needs hits with the script's intent and the endpoint's", known=False)
    misses_text = f"; misses {formatting.percent(misses.share)}" if misses.share is not None else ""
    sub = f"another intent in {formatting.number(hits.other_intent)} of {formatting.number(hits.judged)} hits"
    return tile("False hits", formatting.percent(hits.share), sub + misses_text)


def splits(cache: CacheAnswer) -> Html:
    """Voice to voice by cache, route, model and fallback."""
    parts = [section("Voice to voice by what answered", "ms, exact; over the answered turns (n)")]
    for what, title in _TITLES.items():
        groups = cache.waits.get(what)
        parts.append(section(title) if groups else section(title, NOT_OBSERVABLE))
        rows = [_row(group) for group in groups or ()]
        parts += [table(f"Voice to voice {title.lower()}", _COLUMNS, rows)] if rows else []
    return Html("".join(parts))


def _row(group: WaitOfGroup) -> tuple[str, ...]:
    values = (group.p50_ns, group.p95_ns, group.p99_ns)
    texts = (f"too few ({group.n})" if ns is None else formatting.milliseconds(ns, unit=False) for ns in values)
    name = one_line(group.name, _LONGEST_NAME)
    return (name, formatting.number(group.turns), *texts, formatting.number(group.n))


PAGE: Final = frame.run_page("Cache and routing", ask, _figures)
page: Final = PAGE.show
