"""The lines of a rollout's log: what each holds, and whether they are the ones that were written. Pure.

A line holds the SHA-256 of the one before it; the first holds that of the plan. The head holds the number and the
SHA-256 of the last line. So a line that was edited, removed or moved is found, and so is another plan. Whoever writes
every line and the head anew is not found: a copy on another machine is what shows that.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from telemetry.rollout.plan import Decision, Look, RolloutHistory
from telemetry.rollout.progress import LoggedVerdict

# A log that is not of ours has a fault in every line.
_NAMED_MAX: Final = 10
LINE_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class RolloutEntry:
    """One line: a verdict, or where `verdict` is None, a stage that began. `verdict` is the object of
    `verdict_document`. `stage` and `since_unix_ns` are where the rollout is after it, `fingerprint` is the plan's."""

    sequence: int
    at_unix_ns: int
    fingerprint: str
    stage: str
    since_unix_ns: int | None
    verdict: Mapping[str, Any] | None = None

    @property
    def decision(self) -> Decision | None:
        """What the verdict says; None for a stage that began."""
        return None if self.verdict is None else self.verdict["verdict"]


class LogHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last line that counts."""

    sequence: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckedLines:
    """What a log holds. `whole_bytes` end with its last line; what is behind them was not written to its end.
    `head` is of the last line, None where there is none."""

    entries: tuple[RolloutEntry, ...]
    faults: tuple[str, ...]
    whole_bytes: int
    head: LogHead | None


class _Cohort(msgspec.Struct):
    name: str
    turns: int


class _Cohorts(msgspec.Struct):
    candidate: _Cohort
    control: _Cohort


class _Verdict(msgspec.Struct):
    """What the history is made of; the rest of a verdict is for readers."""

    verdict: Decision
    stage: str
    cohorts: _Cohorts


class _WrittenLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sequence: int
    at_unix_ns: int
    previous_sha256: str
    fingerprint: str
    stage: str
    since_unix_ns: int | None
    verdict: dict[str, Any] | None


def logged_verdicts(entries: Iterable[RolloutEntry]) -> list[LoggedVerdict]:
    """The verdicts among the entries of a log."""
    return [
        LoggedVerdict(each.at_unix_ns, each.verdict["stage"], each.since_unix_ns, each.verdict)
        for each in entries
        if each.verdict is not None
    ]


def sha256_of(content: bytes) -> str:
    """The digest that links the lines."""
    return hashlib.sha256(content).hexdigest()


def encoded_line(entry: RolloutEntry, previous_sha256: str) -> bytes:
    """An entry as a line, without the line's end."""
    verdict = None if entry.verdict is None else dict(entry.verdict)
    return msgspec.json.encode(
        _WrittenLine(
            sequence=entry.sequence,
            at_unix_ns=entry.at_unix_ns,
            previous_sha256=previous_sha256,
            fingerprint=entry.fingerprint,
            stage=entry.stage,
            since_unix_ns=entry.since_unix_ns,
            verdict=verdict,
        )
    )


def checked_lines(content: bytes, plan: bytes, head: LogHead | None) -> CheckedLines:
    """The entries of a log, with a sentence for each line that is not what was written."""
    entries: list[RolloutEntry] = []
    faults: list[str] = []
    whole, last = 0, None
    previous: str | None = sha256_of(plan)
    for number, text in enumerate(_lines(content), 1):
        try:
            line = msgspec.json.decode(text, type=_WrittenLine)
            if line.verdict is not None:
                msgspec.convert(line.verdict, type=_Verdict)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            faults.append(f"line {number} is not one of this log ({error})")
            previous, last = None, None
        else:
            faults += _misplaced(line, number, entries, previous)
            entries.append(
                RolloutEntry(
                    line.sequence, line.at_unix_ns, line.fingerprint, line.stage, line.since_unix_ns, line.verdict
                )
            )
            last = LogHead(line.sequence, sha256_of(text))
            previous = last.sha256
        whole += len(text) + 1
    faults += _beyond(head, entries, last, content)
    return CheckedLines(tuple(entries), tuple(faults[:_NAMED_MAX]), whole, last)


def history_of(plan: str, entries: Sequence[RolloutEntry]) -> RolloutHistory | None:
    """What the gate takes from earlier looks; None before the first line. Looks at an edited plan, which can only have
    held, are not part of it."""
    if not entries:
        return None
    fingerprint, newest = entries[0].fingerprint, entries[-1]
    looks = tuple(look_of(each) for each in entries if each.verdict is not None and each.fingerprint == fingerprint)
    return RolloutHistory(
        plan=plan,
        fingerprint=fingerprint,
        stage=newest.stage,
        stage_since_unix_ns=newest.since_unix_ns,
        looks=looks,
    )


def look_of(entry: RolloutEntry) -> Look:
    """The look that an entry with a verdict keeps."""
    verdict = msgspec.convert(entry.verdict, type=_Verdict)
    return Look(
        at_unix_ns=entry.at_unix_ns,
        stage=verdict.stage,
        candidate_turns=verdict.cohorts.candidate.turns,
        control_turns=verdict.cohorts.control.turns,
        verdict=verdict.verdict,
    )


def thinned(entries: Sequence[RolloutEntry], most: int) -> tuple[RolloutEntry, ...]:
    """At most about `most` entries: the newest, every one at which the decision or the stage changed, and of the others
    evenly many."""
    if len(entries) <= most:
        return tuple(entries)
    step = -(-len(entries) // max(1, most))
    last = len(entries) - 1
    return tuple(
        entry
        for place, entry in enumerate(entries)
        if place in (0, last) or place % step == 0 or _changed(entries[place - 1], entry)
    )


def _changed(before: RolloutEntry, entry: RolloutEntry) -> bool:
    return (before.decision, before.stage) != (entry.decision, entry.stage)


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines that end; what is behind the last end was not written to its own."""
    start = 0
    while (end := content.find(LINE_END, start)) >= 0:
        yield content[start:end]
        start = end + 1


def _misplaced(line: _WrittenLine, number: int, before: Sequence[RolloutEntry], previous: str | None) -> Iterator[str]:
    if previous is None:
        return  # behind a line that cannot be read, nothing is known of the order
    expected = before[-1].sequence + 1 if before else 0
    if line.sequence > expected:
        is_one = line.sequence == expected + 1
        missing = f"entry {expected} was" if is_one else f"entries {expected} to {line.sequence - 1} were"
        yield f"before line {number} the {missing} removed"
    elif line.sequence < expected:
        yield f"line {number} with entry {line.sequence} stands behind entry {expected - 1}"
    elif line.previous_sha256 != previous:
        yield "the plan beside the log was edited" if number == 1 else f"line {number - 1} was edited"


def _beyond(
    head: LogHead | None, entries: Sequence[RolloutEntry], last: LogHead | None, content: bytes
) -> Iterator[str]:
    """What the head says of the end. The log may be one line ahead: its writer ended between the two."""
    ends = entries[-1].sequence if entries else -1
    if head is None:
        if ends > 0:
            yield "the file that names its last line was removed"
    elif head.sequence > ends:
        yield f"its end is missing: the last entry is {ends if entries else 'gone'}, and {head.sequence} was written"
    elif ends > head.sequence + 1:
        yield f"{ends - head.sequence} entries were added behind the last one that was written, {head.sequence}"
    elif last is not None and head.sequence == last.sequence and head.sha256 != last.sha256:
        yield f"line {content.count(LINE_END)} was edited"
