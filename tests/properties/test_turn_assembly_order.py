"""The turns of a call do not depend on how its spans arrive: in which order, in which batches, how often."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import GRACE_NS, SUCCESSOR_NS, TurnAssembly
from tests.unit.telemetry.sidecar.adapters.recorded_spans import NOW_UNIX_NS, recorded_files, recorded_spans

NAMES = recorded_files()
SECOND_NS = 1_000_000_000


def in_order(spans: Sequence[SpanRow]) -> list[Turn]:
    """What comes of all spans at once."""
    assembly = TurnAssembly()
    assembly.add(spans, NOW_UNIX_NS)
    return assembly.flush()


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[str, list[list[SpanRow]], list[int]]:
    """The spans of one call in any order, some of them twice, in batches, and the ns from each batch to the next: all
    come within the grace period."""
    name = draw(st.sampled_from(NAMES))
    spans = recorded_spans(name)
    again = draw(st.lists(st.sampled_from(spans), max_size=len(spans)))
    mixed = draw(st.permutations([*spans, *again]))
    cuts = sorted(draw(st.sets(st.integers(1, len(mixed) - 1), max_size=6)))
    batches = [list(mixed[start:end]) for start, end in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]
    gaps = [draw(st.integers(0, GRACE_NS // 8)) for _ in batches]
    return name, batches, gaps


@given(arrivals())
@settings(max_examples=150, deadline=None)
def test_any_order_and_any_batches_give_the_same_turns(arriving: tuple[str, list[list[SpanRow]], list[int]]) -> None:
    name, batches, gaps = arriving
    assembly = TurnAssembly()
    now_unix_ns = NOW_UNIX_NS
    found: list[Turn] = []
    for batch, gap_ns in zip(batches, gaps, strict=True):
        assembly.add(batch, now_unix_ns)
        now_unix_ns += gap_ns
        found += assembly.due(now_unix_ns)
    found += assembly.due(now_unix_ns + SUCCESSOR_NS)
    assert sorted(found, key=_place) == sorted(in_order(recorded_spans(name)), key=_place)
    # What comes once more is known.
    assembly.add(recorded_spans(name), now_unix_ns + SUCCESSOR_NS)
    assert assembly.due(now_unix_ns + 3 * SUCCESSOR_NS) == []
    assert assembly.flush() == []


@given(st.permutations(NAMES), st.data())
@settings(max_examples=20, deadline=None)
def test_calls_that_come_together_do_not_mix(names: list[str], data: st.DataObject) -> None:
    chosen = names[:4]
    mixed = data.draw(st.permutations([span for name in chosen for span in recorded_spans(name)]))
    expected = [turn for name in chosen for turn in in_order(recorded_spans(name))]
    assert sorted(in_order(mixed), key=_place) == sorted(expected, key=_place)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every_ns", [SECOND_NS // 10, SECOND_NS, 5 * SECOND_NS])
def test_a_call_under_way_gives_its_turns_as_they_end(name: str, every_ns: int) -> None:
    """Spans come when they have ended, as an exporter sends them; turns are asked for each time."""
    spans = sorted(recorded_spans(name), key=lambda span: span.end_unix_ns)
    assembly = TurnAssembly()
    now_unix_ns = spans[0].start_unix_ns
    found: list[Turn] = []
    while spans:
        now_unix_ns += every_ns
        ended = [span for span in spans if span.end_unix_ns <= now_unix_ns]
        spans = spans[len(ended) :]
        assembly.add(ended, now_unix_ns)
        found += assembly.due(now_unix_ns)
    found += assembly.due(now_unix_ns + SUCCESSOR_NS)
    assert sorted(found, key=_place) == sorted(in_order(recorded_spans(name)), key=_place)
    assert assembly.late == 0


def _place(turn: Turn) -> tuple[str, str]:
    return turn.trace_id, turn.span_id
