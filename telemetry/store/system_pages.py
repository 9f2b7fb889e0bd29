"""What the pages about caches and about the instrument show, each from one snapshot: the head of the page and its
figures."""

from dataclasses import dataclass

from telemetry.store.cache_pages import CacheAnswer
from telemetry.store.connection import StoreConnection
from telemetry.store.instrument_pages import InstrumentAnswer
from telemetry.store.views import HeadedAnswer, ViewHead, ViewQuestion, open_view


@dataclass(frozen=True, slots=True)
class CachePage(HeadedAnswer):
    """The head of the page and what is known of caches, routes and fallbacks."""

    cache: CacheAnswer = CacheAnswer()  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class InstrumentPage(HeadedAnswer):
    """The head of the page and what is known of the instrument."""

    instrument: InstrumentAnswer = InstrumentAnswer()  # noqa: RUF009 - immutable


def cache_page(connection: StoreConnection, asked: ViewQuestion, now_unix_ns: int) -> CachePage:
    """Answer the page about caches, routes and fallbacks."""
    view = open_view(connection, asked, now_unix_ns)
    return CachePage(view) if isinstance(view, ViewHead) else CachePage(view.head, view.about.cache())


def instrument_page(connection: StoreConnection, asked: ViewQuestion, now_unix_ns: int) -> InstrumentPage:
    """Answer the page about the instrument."""
    view = open_view(connection, asked, now_unix_ns)
    if isinstance(view, ViewHead):
        return InstrumentPage(view)
    return InstrumentPage(view.head, view.about.instrument(now_unix_ns))
