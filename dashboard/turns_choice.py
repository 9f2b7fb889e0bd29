"""Which turns the Turns page lists, and its form in a link beside the filters: `?find=…&outcome=…&order=…`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from dashboard.filters import Choice
from telemetry.model.formatting import NS_PER_MS, NS_PER_S
from telemetry.store.questions.turns import MOST_CHARS, MOST_PAGED, ORDERS, PAGE_SIZES, TurnSearch, TurnsQuestion

_NUMBERS: Final = ("from_ms", "below_ms", "since_s", "until_s", "at_page", "rows")
_LARGEST: Final = 10**12


@dataclass(frozen=True, slots=True)
class TurnsChoice:
    """None means any. Latencies in ms; `since_s` and `until_s` bound when turns began, in Unix seconds.

    `at_page` counts from 0.
    """

    find: str | None = None
    outcome: str | None = None
    model: str | None = None
    from_ms: int | None = None
    below_ms: int | None = None
    since_s: int | None = None
    until_s: int | None = None
    order: str | None = None
    at_page: int | None = None
    rows: int | None = None

    def question(self, choice: Choice) -> TurnsQuestion:
        """What the page asks of the store."""
        search = TurnSearch(
            text=self.find or "",
            outcome=self.outcome,
            model=self.model,
            from_ns=None if self.from_ms is None else self.from_ms * NS_PER_MS,
            below_ns=None if self.below_ms is None else self.below_ms * NS_PER_MS,
            since_unix_ns=None if self.since_s is None else self.since_s * NS_PER_S,
            until_unix_ns=None if self.until_s is None else self.until_s * NS_PER_S,
        )
        asked = choice.view()
        return TurnsQuestion(
            filter=asked.filter,
            window_ns=asked.window_ns if self.since_s is None else None,
            search=search,
            order=self.order or next(iter(ORDERS)),
            page=self.at_page or 0,
            page_size=self.rows or PAGE_SIZES[0],
        )

    def query(self) -> dict[str, str]:
        """The parameters of a link to this list."""
        return {each.name: str(value) for each in fields(self) if (value := getattr(self, each.name)) is not None}

    @property
    def narrows(self) -> bool:
        """Whether it leaves out turns."""
        return any(
            value is not None
            for value in (self.find, self.outcome, self.model, self.from_ms, self.below_ms, self.since_s, self.until_s)
        )


def turns_choice_of(query: Mapping[str, str]) -> tuple[TurnsChoice, list[str]]:
    """Read a link. A value that cannot be meant is left out, with a sentence that says so."""
    faults: list[str] = []
    chosen: dict[str, str | int] = {}
    for each in fields(TurnsChoice):
        value = query.get(each.name)
        if not value:
            continue
        fault = _fault(each.name, value)
        if fault is None:
            chosen[each.name] = int(value) if each.name in _NUMBERS else value[:MOST_CHARS]
        else:
            faults.append(f"the link asks for {each.name} {value[:60]!r}, {fault}: left out")
    return TurnsChoice(**chosen), faults  # pyright: ignore[reportArgumentType] - numbers where numbers belong


def _fault(name: str, value: str) -> str | None:
    if name == "order":
        return None if value in ORDERS else f"not one of {', '.join(ORDERS)}"
    if name not in _NUMBERS:
        return None
    digits = value.removeprefix("-") if name == "from_ms" else value
    if not (digits.isascii() and digits.isdigit() and len(digits) < 13 and int(digits) <= _LARGEST):
        return "not a whole number"
    if name == "rows" and int(value) not in PAGE_SIZES:
        return f"not one of {', '.join(map(str, PAGE_SIZES))}"
    if name == "at_page" and int(value) > MOST_PAGED:
        return "too large"
    return None
