"""Whether a run goes on, and whether its load generator was what limited it; from what its processes say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from telemetry.model.formatting import number
from telemetry.store.answers import SHARE_LIMIT, GeneratorLimit, ProcessInfo, StartCounts

# A process reports its health every second or so, and a busy machine or a spool may hold that up.
RECENT_S: Final = 30.0
# Turns that ended so long after its last report may have begun after it.
_REPORTED_WITHIN_S: Final = 2.0
NOT_AS_ASKED: Final = "the load was not what was asked for"
AS_MANY_AS_ALLOWED: Final = "as many as are allowed were under way"
# Outcomes of turns in which the service kept its caller waiting to the end.
KEPT_OUTCOMES: Final = ("no_reply", "timeout", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostProcess:
    """A process of the generator that ended without saying so; None is not known (it may never have begun)."""

    worker: str = ""  # "2 of 4", as it named itself
    after_s: float | None = None  # from its beginning to its last sign of life
    calls_cut: int | None = None  # under way at its last report


@dataclass(frozen=True, slots=True)
class LimitTurns:
    """Turns, and those in which the service kept its caller: it did not answer, or did not read what was said."""

    total: int
    kept: int = 0

    @property
    def is_service_slow(self) -> bool:
        """Whether the service kept so many callers that calls stayed under way for its doing."""
        return self.kept > SHARE_LIMIT * self.total


def kept_turns(by_outcome: Mapping[str, int], did_not_read: int) -> int:
    """In how many turns the service kept its caller to the end, or did not read what was said."""
    return max(sum(by_outcome.get(outcome, 0) for outcome in KEPT_OUTCOMES), did_not_read)


def calls_not_begun(starts: StartCounts | None) -> str | None:
    """How many calls that were due never began, as half a sentence; None where all did. Each is an open turn."""
    if starts is None or not starts.dropped:
        return None
    return f"{number(starts.dropped)} of {number(starts.planned)} calls that were due never began"


@dataclass(frozen=True, slots=True)
class LimitEvidence:
    """What shows whether the load generator was the limit. `asked` is how many processes the run was to have, None
    where that is not declared."""

    known: Sequence[ProcessInfo]
    asked: int | None


def is_at_work(process: ProcessInfo, now_unix_ns: int | None) -> bool:
    """Whether a process has not ended and was heard of lately; `now_unix_ns` is None where the run is known to be
    over. A moment that has not come, by more than clocks may differ, shows nothing."""
    if now_unix_ns is None or process.ended:
        return False
    return abs(now_unix_ns - process.last_seen_unix_ns) / 1e9 <= RECENT_S


def is_under_way(known: Sequence[ProcessInfo], now_unix_ns: int | None) -> bool:
    """Whether any of a run's processes is at work."""
    return any(is_at_work(process, now_unix_ns) for process in known)


def last_heard(known: Sequence[ProcessInfo]) -> int | None:
    """The last sign of life of the process that has been quiet for longest, of those that have not announced their end;
    None where all have."""
    return min((process.last_seen_unix_ns for process in known if not process.ended), default=None)


def calls_in_flight_now(known: Sequence[ProcessInfo]) -> int | None:
    """How many calls were in flight by the newest report of each process that has not ended; None where one of them has
    reported nothing, or nothing since turns of it that came in."""
    running = [process for process in known if not process.ended]
    if not known or any(_is_outdated(process) for process in running):
        return None
    return sum(process.calls_in_flight or 0 for process in running)


def _is_outdated(process: ProcessInfo) -> bool:
    reported = process.calls_reported_unix_ns
    return reported is None or process.last_seen_unix_ns - reported > _REPORTED_WITHIN_S * 1e9


def lost_processes(known: Sequence[ProcessInfo], asked: int, now_unix_ns: int | None = None) -> tuple[LostProcess, ...]:
    """The processes that began and never said that they had ended, and, of a run that is over, those of `asked` that
    never began. Ask when the telemetry of the run is delivered; while it is under way, those at work are not lost."""
    lost = [
        LostProcess(
            worker=process.worker,
            after_s=None
            if process.began_unix_ns is None
            else max(0.0, (process.last_seen_unix_ns - process.began_unix_ns) / 1e9),
            calls_cut=process.calls_in_flight,
        )
        for process in known
        if not process.ended and not is_at_work(process, now_unix_ns)
    ]
    never_began = 0 if is_under_way(known, now_unix_ns) else asked - len(known)
    return (*lost, *(LostProcess() for _ in range(never_began)))


def loss_of_processes(lost: Sequence[LostProcess], processes: int) -> str:
    """Which of so many processes were lost and what they took along, as half a sentence."""
    of = max(processes, len(lost))
    verb, whose = ("was", "its") if len(lost) == 1 else ("were", "their")
    text = f"{len(lost)} of {of} generator process{'es' if of > 1 else ''} {verb} lost"
    times = [f"{process.after_s:.0f} s" for process in lost if process.after_s is not None]
    if times:
        text += f" after {' and '.join(times)}"
    cut = sum(process.calls_cut or 0 for process in lost)
    if cut:
        text += f": of {whose} {cut} call{'s' if cut > 1 else ''} in flight only the finished turns count"
    return text


def generator_limit(evidence: LimitEvidence, now_unix_ns: int) -> GeneratorLimit | None:
    """Why the figures say nothing about the service; None where they do."""
    asked = evidence.asked or max(1, len(evidence.known))
    if lost := lost_processes(evidence.known, asked, now_unix_ns):
        return GeneratorLimit(f"{loss_of_processes(lost, asked)}; {NOT_AS_ASKED}")
    return None
