"""The golden answers about a day of three runs, a service and a bot: about a thousand turns that callers heard."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests.fixtures_frameworks import PipecatTurn
from tests.goldens import asking
from tests.goldens.calls import MINUTE, MORNING_UNIX_NS, RUNS, turns_of
from tests.goldens.exports import arrivals
from tests.goldens.feeding import NOW_UNIX_NS, feed, keep_rollout

FILE: Final = Path(__file__).with_name("answers_1k.json")
# Single turns are asked for of calls of which the service reported in the caller's trace, in one of its own under the
# call's name, under a name with the digits of the caller's trace, and not at all; and of the bot's first call.
_CALLS: Final = (0, 1, 3, 6)


def asked() -> asking.Asked:
    """Return the questions about the day."""
    calls = turns_of(RUNS[0])
    turns = [(calls[number][0].trace_id, 0) for number in _CALLS]
    turns += [(calls[6][-1].trace_id, len(calls[6]) - 1), (PipecatTurn(0, 1).trace, 1), ("0" * 31 + "9", 3)]
    return asking.Asked(
        run="morning",
        other="evening",
        service="service:assistant:2026-11-11",
        cohorts=("canary", "fast", "stable"),
        since_unix_ns=MORNING_UNIX_NS + 5 * MINUTE,
        until_unix_ns=MORNING_UNIX_NS + 9 * MINUTE,
        turns=tuple(turns),
    )


def fill(directory: Path, changed: Callable[[Turn], Turn] = lambda turn: turn) -> str:
    """Store the day and give its page of `/metrics`."""
    page = feed(directory, arrivals(changed))
    keep_rollout(directory)
    return page


def answered(directory: Path, page: str, only: Sequence[str] = ()) -> dict[str, object]:
    """All answers, or those to questions of these names alone."""
    with StoreReader(directory, wall_clock_ns=lambda: NOW_UNIX_NS) as reader:
        answers = asking.answers(asking.of_reader(reader), asked(), only)
        if not only:
            answers |= asking.reports(reader, asked(), NOW_UNIX_NS)
    return answers | asking.exposed(page)
