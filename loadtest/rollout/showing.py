"""Shows a rollout while it goes on: redrawn in place on a terminal, as lines elsewhere."""

import re
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live

from loadtest.reports.rollout_progress import needed_sentence, rollout_view
from loadtest.rollout.steps import ChangeShare, RolloutEnded
from telemetry.model.formatting import NS_PER_S
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan

PRINT_EVERY_S: Final = 10.0
_FIGURES: Final = re.compile(r"[-+\d.,:]+|(?<=\d )turns?\b")
_NOTES: Final = 6  # below the checks, the newest last


class RolloutView(Protocol):
    """Is given what happens to a rollout."""

    def verdict(self, verdict: GateVerdict) -> None:
        """One look."""
        ...

    def changed(self, step: ChangeShare, done: str) -> None:
        """The shares were changed; `done` says how."""
        ...

    def trouble(self, sentence: str) -> None:
        """Something did not succeed, and is tried again."""
        ...

    def ended(self, step: RolloutEnded) -> None:
        """Nothing is left to do."""
        ...


class RolloutLines:
    """A line for every change, and every ten seconds."""

    def __init__(self, plan: RolloutPlan, console: Console, unix_ns: Callable[[], int]) -> None:
        self._plan, self._console, self._unix_ns = plan, console, unix_ns
        self._key: tuple[str, str, str] | None = None
        self._printed_unix_ns = 0

    def verdict(self, verdict: GateVerdict) -> None:
        """See `RolloutView`."""
        needed = needed_sentence(self._plan, verdict)
        counts = f"{verdict.candidate_turns} and {verdict.control_turns} turns"
        text = f"{verdict.sentence} [{counts}{'; ' + needed if needed else ''}]"
        self.look((verdict.verdict, verdict.stage.name, verdict.reasons[0]), text)

    def look(self, what: tuple[str, str, str], text: str) -> None:
        """Print the text of a look whose decision, stage and reason are `what`, unless it says nothing new yet."""
        # Figures change with every look; what is reported at once is another decision or another cause.
        key = (what[0], what[1], _FIGURES.sub("", what[2]))
        now = self._unix_ns()
        if key == self._key and 0 <= now - self._printed_unix_ns < PRINT_EVERY_S * NS_PER_S:
            return
        self._key, self._printed_unix_ns = key, now
        self.line(text)

    def changed(self, step: ChangeShare, done: str) -> None:
        """See `RolloutView`."""
        self.line(f"{change_sentence(step)}: {done}")

    def trouble(self, sentence: str) -> None:
        """See `RolloutView`."""
        self.line(sentence)

    def ended(self, step: RolloutEnded) -> None:
        """See `RolloutView`."""
        self.line(ended_sentence(self._plan, step))

    def line(self, text: str) -> None:
        """Print a line with its time."""
        at = datetime.fromtimestamp(self._unix_ns() / NS_PER_S, UTC).strftime("%H:%M:%S")
        self._console.print(f"{at}  {text}", soft_wrap=True, markup=False, highlight=False)


class _InPlace:
    """The newest verdict, redrawn; below it what happened last."""

    def __init__(self, plan: RolloutPlan, live: Live, unix_ns: Callable[[], int]) -> None:
        self._plan, self._live, self._unix_ns = plan, live, unix_ns
        self._notes: deque[str] = deque(maxlen=_NOTES)
        self._verdict: GateVerdict | None = None

    def verdict(self, verdict: GateVerdict) -> None:
        """See `RolloutView`."""
        before = self._verdict
        if before is not None and (before.verdict, before.stage) != (verdict.verdict, verdict.stage):
            self._note(verdict.sentence)
        self._verdict = verdict
        self._draw()

    def changed(self, step: ChangeShare, done: str) -> None:
        """See `RolloutView`."""
        self._note(f"{change_sentence(step)}: {done}")

    def trouble(self, sentence: str) -> None:
        """See `RolloutView`."""
        self._note(sentence)

    def ended(self, step: RolloutEnded) -> None:
        """See `RolloutView`."""
        self._note(ended_sentence(self._plan, step))

    def _note(self, sentence: str) -> None:
        at = datetime.fromtimestamp(self._unix_ns() / NS_PER_S, UTC).strftime("%H:%M:%S")
        self._notes.append(f"{at}  {sentence}")
        self._draw()

    def _draw(self) -> None:
        if self._verdict is not None:
            self._live.update(rollout_view(self._plan, self._verdict, tuple(self._notes)), refresh=True)


@contextmanager
def live_rollout(plan: RolloutPlan, console: Console, unix_ns: Callable[[], int]) -> Generator[RolloutView]:
    """A view for as long as it is entered; on a terminal the last state stays."""
    if not console.is_terminal:
        yield RolloutLines(plan, console, unix_ns)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield _InPlace(plan, live, unix_ns)


def change_sentence(step: ChangeShare) -> str:
    """What a change of shares is for."""
    return "the candidate is taken back" if step.is_back else f"stage {step.stage.name} is prepared"


def ended_sentence(plan: RolloutPlan, step: RolloutEnded) -> str:
    """How a rollout ended."""
    if step.state == "complete":
        return f"complete: {plan.candidate} was promoted through every stage"
    return f"rolled back: {plan.candidate} gets no callers any more"
