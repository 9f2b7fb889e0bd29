"""Turns to look at one by one: all that a filter means while they are few, of many a sample spread over their time.

A sample is the first turns of row groups that lie evenly over the filter's time: stretches of turns one after the
other, so that the turns of a call stay together. It is the same whenever the same segments are asked; what was read of
a segment, and what was worked out of a sample, is kept, as a segment never changes.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeVar

import pyarrow as pa

from telemetry.store.answers import Filter
from telemetry.store.connection import StoreConnection
from telemetry.store.first_turns import FirstTurns
from telemetry.store.manifest import Segment
from telemetry.store.open_segments import RowGroup
from telemetry.store.queries import Condition, judged, valid
from telemetry.store.schema import SCHEMAS

# More turns than that take longer than a page may.
MOST_TURNS: Final = 120_000
# So many stretches make a sample, of so many turns each at most.
STRETCHES: Final = 24
STRETCH_TURNS: Final = 2_048

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class TurnsToLookAt:
    """A name of a table or view with the turns, the condition that the wanted ones of it meet, and whether they are a
    sample only."""

    table: str
    where: Condition
    is_sample: bool


def asked_of_turns(
    connection: StoreConnection,
    f: Filter,
    columns: Sequence[str],
    question: Hashable,
    ask: Callable[[TurnsToLookAt], _Answer],
) -> _Answer:
    """What `ask` says of the valid turns of a filter, all of them or a sample with these columns of the turn.

    Of a sample the answer is kept: `question` says all that it depends on besides the turns.
    """
    where = judged(f) & valid(f)
    segments = [segment for segment in connection.segments("turns", f.run_id) if _is_near(segment, f)]
    if sum(segment.rows for segment in segments) <= MOST_TURNS:
        return ask(TurnsToLookAt("turns", where, is_sample=False))
    connection.verify(segments)
    groups = _stretches(connection.first_turns, segments, f)

    def ask_sample() -> _Answer:
        schema = pa.schema([SCHEMAS["turns"].field(name) for name in dict.fromkeys(columns)])
        tables = [connection.first_turns.of(segment, group.number, schema, STRETCH_TURNS) for group, segment in groups]
        connection.show("sampled_turns", pa.concat_tables([schema.empty_table(), *tables]))
        return ask(TurnsToLookAt("sampled_turns", where, is_sample=True))

    places = [(segment.file, group.number) for group, segment in groups]
    return connection.sample_answers.of(places, (question, f), ask_sample)


def _is_near(segment: Segment, f: Filter) -> bool:
    starts_late = f.until_unix_ns is not None and (segment.first_unix_ns or 0) >= f.until_unix_ns
    ends_early = f.since_unix_ns is not None and (segment.last_unix_ns or 2**62) < f.since_unix_ns
    return not (starts_late or ends_early)


def _stretches(turns: FirstTurns, segments: Sequence[Segment], f: Filter) -> list[tuple[RowGroup, Segment]]:
    groups = [
        (group, segment)
        for segment in segments
        for group in turns.files.row_groups(segment)
        if group.first_unix_ns < (f.until_unix_ns or 2**63) and group.last_unix_ns >= (f.since_unix_ns or 0)
    ]
    groups.sort(key=lambda each: each[0].first_unix_ns)
    return _evenly(groups)


def _evenly(groups: Sequence[tuple[RowGroup, Segment]]) -> list[tuple[RowGroup, Segment]]:
    """Row groups at the middle of STRETCHES equal parts of all rows."""
    total = sum(group.rows for group, _ in groups)
    wanted = [total * (2 * place + 1) // (2 * STRETCHES) for place in range(STRETCHES)]
    ends = list(accumulate(group.rows for group, _ in groups))
    return [
        groups[place] for place in dict.fromkeys(bisect_right(ends, each) for each in wanted) if place < len(groups)
    ]
