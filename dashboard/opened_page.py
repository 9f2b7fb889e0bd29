"""What a page is besides Streamlit's script of it: its title, its question, and what it shows first, as HTML.

The same HTML is drawn by the script and sent to a browser that still loads the program which runs scripts, so both show
one answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, Generic, Literal, TypeVar

from dashboard.filters import Choice, choice_of
from dashboard.markup import escape
from dashboard.source import Source

# Stands in the last part of what a page shows first. The browser takes away what it showed before once that is drawn,
# which `script/first_figures.js` looks for.
_END: Final = '<i class="vp-first-end" hidden></i>'

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class PageContext:
    """What a page draws with besides its answer. `zone` is the viewer's."""

    link: Mapping[str, str]
    zone: tzinfo
    now_unix_ns: int

    @property
    def choice(self) -> Choice:
        """What the link chooses of all turns."""
        return choice_of(self.link)[0]


@dataclass(frozen=True, slots=True)
class OpenedPage(Generic[_Answer]):
    """A page by what is asked when it is opened. `ask` raises TelemetryError; `first` is pure, and gives nothing where
    the page has no figure to show. `selectors_in_sight` is how many selectors stand beside the title and "Filters":
    on a phone each of them takes a line. 0 means that the page has no such row."""

    title: str
    ask: Callable[[Source, Mapping[str, str]], _Answer]
    first: Callable[[_Answer, PageContext], Sequence[str]]
    selectors_in_sight: Literal[0, 2, 3] = 0

    def first_html(self, answer: _Answer, context: PageContext) -> str:
        """What the page shows first, beneath its title; empty where it has no figure to show. The row of selectors has
        its room, so that nothing moves when it is drawn."""
        parts = self.first(answer, context)
        beside = " vp-first-selectors" if self.selectors_in_sight else ""
        beside += " vp-two-in-sight" if self.selectors_in_sight == 2 else ""
        return f'<div class="vp{beside}"><h1>{escape(self.title)}</h1></div>{"".join(parts)}' if parts else ""


AnyPage = OpenedPage[Any]


def title_of(page_title: str) -> str:
    """What the browser's tab shows of a page with this heading."""
    return f"{page_title} · voiceprobe"


def ended(parts: Sequence[str]) -> list[str]:
    """The parts that a page's script draws first, the last of them marked as the last."""
    return [*parts[:-1], parts[-1] + _END] if parts else []
