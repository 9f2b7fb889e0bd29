"""The turns of a call do not depend on how its spans arrive: in which order, in which batches, how often, how late."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.turn_assembly import REMEMBERED_NS, is_complete
from tests.unit.telemetry.sidecar.adapters.recorded_spans import recorded_files, recorded_spans
from tests.unit.telemetry.sidecar.adapters.stored_turns import StoredTurns, turns_of

NAMES = recorded_files()
SECOND_NS = 1_000_000_000


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[str, list[list[SpanRow]], list[int]]:
    """The spans of one call in any order, some of them twice, in batches, and the ns from each batch to the next."""
    name = draw(st.sampled_from(NAMES))
    spans = recorded_spans(name)
    again = draw(st.lists(st.sampled_from(spans), max_size=len(spans)))
    mixed = draw(st.permutations([*spans, *again]))
    cuts = sorted(draw(st.sets(st.integers(1, len(mixed) - 1), max_size=6)))
    batches = [list(mixed[start:end]) for start, end in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]
    gaps = [draw(st.integers(0, 30 * SECOND_NS) | st.just(REMEMBERED_NS - 1)) for _ in batches]
    return name, batches, gaps


@given(arrivals())
@settings(max_examples=150, deadline=None)
def test_any_order_and_any_batches_give_the_same_turns(arriving: tuple[str, list[list[SpanRow]], list[int]]) -> None:
    name, batches, gaps = arriving
    stored = StoredTurns()
    now_ns = max(span.end_unix_ns for span in recorded_spans(name))
    firsts = 0
    for batch, gap_ns in zip(batches, gaps, strict=True):
        firsts += sum(change.is_first for change in stored.add(batch, now_ns))
        now_ns += gap_ns
        firsts += sum(change.is_first for change in stored.look(now_ns))
    firsts += sum(change.is_first for change in stored.look(now_ns, is_last=True))
    assert without_late(stored.turns) == without_late(turns_of(recorded_spans(name)))
    assert firsts >= len(stored.turns)
    # What comes once more is known.
    assert stored.add(recorded_spans(name), now_ns + SECOND_NS) == []
    assert stored.look(now_ns + SECOND_NS, is_last=True) == []


@given(st.permutations(NAMES), st.data())
@settings(max_examples=20, deadline=None)
def test_calls_that_come_together_do_not_mix(names: list[str], data: st.DataObject) -> None:
    chosen = names[:4]
    mixed = data.draw(st.permutations([span for name in chosen for span in recorded_spans(name)]))
    expected = [turn for name in chosen for turn in turns_of(recorded_spans(name))]
    assert sorted(turns_of(mixed), key=_place) == sorted(expected, key=_place)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every_ns", [SECOND_NS // 10, SECOND_NS, 5 * SECOND_NS])
def test_an_answered_turn_is_stored_when_its_own_span_comes(name: str, every_ns: int) -> None:
    """Spans come when they have ended, as an exporter sends them: each turn is counted once, and none comes late."""
    spans = sorted(recorded_spans(name), key=lambda span: span.end_unix_ns)
    answered = [turn for turn in turns_of(spans) if turn.outcome == "ok"]
    stored, arrived, firsts = StoredTurns(), set[str](), 0
    now_ns = spans[0].start_unix_ns
    while spans:
        now_ns += every_ns
        ended = [span for span in spans if span.end_unix_ns <= now_ns]
        spans = spans[len(ended) :]
        arrived |= {span.span_id for span in ended}
        firsts += sum(change.is_first for change in stored.add(ended, now_ns))
        if "livekit" not in name and "genai" not in name:
            complete = {turn.span_id for turn in stored.turns if is_complete(turn)}
            assert {turn.span_id for turn in answered} & arrived <= complete
    firsts += sum(change.is_first for change in stored.look(now_ns, is_last=True))
    assert without_late(stored.turns) == without_late(turns_of(recorded_spans(name)))
    assert firsts == len(stored.turns)


def without_late(turns: Sequence[Turn]) -> list[Turn]:
    return sorted((msgspec.structs.replace(turn, late_spans=None) for turn in turns), key=_place)


def _place(turn: Turn) -> tuple[str, str]:
    return turn.trace_id, turn.span_id
