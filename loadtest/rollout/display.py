"""Shows a rollout by its clocks: redrawn in place on a terminal, as lines elsewhere."""

import re
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.live import Live

from loadtest.reports.rollout import needed_sentence, rollout_view
from loadtest.run.interruption import Interruption
from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.plan import Look, RolloutPlan
from telemetry.rollout.progress import LoggedVerdict
from telemetry.rollout.verdict import RolloutVerdict


class InterruptedRolloutError(Exception):
    """Somebody interrupted a wait."""


@dataclass(slots=True)
class RolloutClock:
    """The system's clocks; tests replace them."""

    interruption: Interruption

    def unix_ns(self) -> int:
        """The wall clock."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """A clock for intervals."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait; whether somebody interrupted it."""
        return self.interruption.wait(seconds)


PRINT_EVERY_S: Final = 10.0
_FIGURES: Final = re.compile(r"[-+\d.,:]+|(?<=\d )turns?\b")
_NOTES: Final = 6  # below the checks, the newest last


class RolloutView:
    """A line for every change, and every ten seconds; with `live`, the newest verdict redrawn in place and below it
    what happened last."""

    def __init__(
        self, plan: RolloutPlan, console: Console, unix_ns: Callable[[], int], live: Live | None = None
    ) -> None:
        self._plan, self._console, self._unix_ns, self._live = plan, console, unix_ns, live
        self._looks: deque[Look] = deque(maxlen=1000)
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self._verdict: RolloutVerdict | None = None
        self._key: tuple[str, str, str] | None = None
        self._printed_unix_ns = 0

    def verdict(self, verdict: RolloutVerdict) -> None:
        """Show one look."""
        now, before = self._unix_ns(), self._verdict
        self._looks.append(LoggedVerdict(now, verdict.stage, None, verdict).look)
        self._verdict = verdict
        # Figures change with every look; what is reported at once is another decision or another cause.
        key = (verdict.verdict, verdict.stage, _FIGURES.sub("", verdict.reasons[0] if verdict.reasons else ""))
        is_new = key != self._key or not 0 <= now - self._printed_unix_ns < PRINT_EVERY_S * NS_PER_S
        if self._live is not None:
            if before is not None and (before.verdict, before.stage) != key[:2]:
                self.line(verdict.sentence)
            self._draw()
        elif is_new:
            self._key, self._printed_unix_ns = key, now
            cohorts = verdict.cohorts
            counts = "" if cohorts is None else f"{cohorts.candidate.turns} and {cohorts.control.turns} turns"
            more = "; ".join(text for text in (counts, needed_sentence(verdict, self._looks)) if text)
            self.line(f"{verdict.sentence} [{more}]" if more else verdict.sentence)

    def line(self, text: str) -> None:
        """Show what happened, with its time."""
        at = datetime.fromtimestamp(self._unix_ns() / NS_PER_S, UTC).strftime("%H:%M:%S")
        if self._live is None:
            self._console.print(f"{at}  {text}", soft_wrap=True, markup=False, highlight=False)
        else:
            self._notes.append(f"{at}  {text}")
            self._draw()

    def _draw(self) -> None:
        if self._live is not None and self._verdict is not None:
            view = rollout_view(self._plan, self._verdict, self._looks, tuple(self._notes))
            self._live.update(view, refresh=True)


@contextmanager
def live_rollout(plan: RolloutPlan, console: Console, unix_ns: Callable[[], int]) -> Generator[RolloutView]:
    """A view for as long as it is entered; on a terminal the last state stays."""
    if not console.is_terminal:
        yield RolloutView(plan, console, unix_ns)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield RolloutView(plan, console, unix_ns, live)
