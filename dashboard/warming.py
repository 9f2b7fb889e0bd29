"""What is done before the first viewer comes, and before the first one opens each page of a large store."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules
from typing import Final

from dashboard.filters import DIMENSION_OF, Choice
from dashboard.open_readers import reader_of
from telemetry.model.errors import TelemetryError
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.library import KEPT_VALUES

# Of a run of fewer turns than that every page is answered within a second or so.
LARGE_TURNS: Final = 50_000
# The viewer for whom the dashboard was started comes first, and whoever looks between two questions.
BEFORE_S: Final = 5.0
BETWEEN_S: Final = 1.0
# What is not listed after so many looks is left to the page of runs: there may be hundreds of stores.
_MOST_LOOKS: Final = 30
# The selectors by whose values a run is narrowed, beside its cohorts, which the pages have in sight.
_OF_DIMENSIONS: Final = ("noise", "length", "route")


def warm_up() -> None:
    """Do what the first viewer would wait for: import the pages, ask the store once, build each chart once."""
    from dashboard import pages, palette, source
    from dashboard.charts import lines_spec
    from dashboard.pages import turns

    for page in iter_modules(pages.__path__):
        import_module(f"dashboard.pages.{page.name}")
    lines_spec(palette.LIGHT, ("all turns",), 800.0, is_dark=False)
    with contextlib.suppress(TelemetryError):  # the page itself says what is wrong with a store
        opened = source.source_of({})
        opened.now(Choice())
        # Of a large store the first answer to this takes longest: it looks at every turn.
        turns.ask(opened, {})
    _keep()


def _keep() -> None:
    """What is there now stays: the garbage collector looks at it no more, which would take 0.2 s of a page of a large
    run each time."""
    gc.collect()
    gc.freeze()


def ask_ahead(wait_s: Callable[[float], None] = time.sleep) -> None:
    """Ask of a large run what its other pages ask, as the first answer reads every segment; and read the list of runs,
    bit by bit. What was read is kept."""
    from dashboard import runs_source, source
    from dashboard.pages import cache, cohorts, instrument, objectives, runs

    wait_s(BEFORE_S)
    with contextlib.suppress(TelemetryError):
        store = source.store_of({})
        opened = source.current_source(store)
        with _patiently(store):
            shown = opened.now(Choice())
            if shown.summary is not None and shown.summary.turns.total >= LARGE_TURNS:
                # One of these turns is what a viewer of the first page opens next.
                for slowest in shown.slowest[:1]:
                    opened.turn_view(slowest.trace_id, slowest.turn_index)
                for page in (cohorts, objectives, cache, instrument):
                    page.ask(opened, {})
                    wait_s(BETWEEN_S)
                # What is read for one value tells the turns of every other.
                for choice in islice(_narrowed(shown.choices, _OF_DIMENSIONS), 1):
                    objectives.ask(opened, choice.query())
                    wait_s(BETWEEN_S)
                # Some filters have hundreds of values; the sums of more would not be kept.
                for choice in islice(_narrowed(shown.choices, ("cohort", *_OF_DIMENSIONS)), KEPT_VALUES):
                    opened.now(choice)
                    wait_s(BETWEEN_S)
                _keep()
        for _ in range(_MOST_LOOKS):
            listing = runs_source.run_listing(runs_source.NEXT_LOOK_S)
            if listing.is_whole:
                for shown_first in runs.newest(listing.entries):
                    runs_source.details(shown_first)
                return
            wait_s(BETWEEN_S)


def _narrowed(choices: Mapping[str, Sequence[str]], names: Sequence[str]) -> Iterator[Choice]:
    """The views of one value each that a viewer may choose, by these selectors in turn."""
    for name in names:
        for value in choices.get(DIMENSION_OF[name], ()):
            yield Choice(**{name: value})


def _patiently(store: str) -> AbstractContextManager[object]:
    """Let viewers' questions come first; a sidecar that is asked answers several at a time."""
    reader = reader_of(store)
    return reader.patiently() if isinstance(reader, StoreReader) else contextlib.nullcontext()
