"""Turn assembly raises nothing and depends on no order: whatever a sender states, in whichever batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.sidecar.adapters.frameworks import frameworks
from telemetry.sidecar.adapters.turn_assembly import ANSWER_WITHIN_NS, REMEMBERED_NS, is_complete
from telemetry.store.schema import turn_from_row, turns_table
from tests.nightly import examples
from tests.unit.telemetry.sidecar.adapters.recorded_spans import NOW_UNIX_NS, recorded_files, recorded_spans
from tests.unit.telemetry.sidecar.adapters.stored_turns import StoredTurns, turns_of

NAMES = recorded_files()
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
JSON = st.sampled_from(
    ["[", "[{}]", '[{"type":"interim_transcript","received_at":-1}]', '{"prompt_cached_tokens":"x"}', "1e999"]
)
NUMBERS = st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e300, -1.0, 0.0, 2**63, -1, True])
# What is read: other attributes change nothing.
READ = {name.partition("#")[0] for framework in frameworks() for read in framework.reads for name in read.attributes}
STAMPS = st.sampled_from([0, 1, NOW_UNIX_NS, 2**62 - 1, 2**63 - 1]) | st.integers(0, 2**63 - 1)


@st.composite
def hostile(draw: st.DrawFn) -> list[SpanRow]:
    """A recorded call of which some spans state something else."""
    spans = list(recorded_spans(draw(st.sampled_from(NAMES))))
    ids = [span.span_id for span in spans]
    stating = [at for at, span in enumerate(spans) if READ & span.attributes.keys()]
    for _ in range(draw(st.integers(1, 12))):
        at = draw(st.sampled_from(stating) | st.integers(0, len(spans) - 1))
        span = spans[at]
        match draw(st.sampled_from(["attribute", "start", "end", "parent", "id", "status", "events"])):
            case "attribute" if span.attributes:
                name = draw(st.sampled_from(sorted(READ & span.attributes.keys()) or sorted(span.attributes)))
                spans[at] = replace(span, attributes={**span.attributes, name: draw(NUMBERS | JSON | JUNK)})
            case "start":
                spans[at] = replace(span, start_unix_ns=draw(STAMPS))
            case "end":
                spans[at] = replace(span, end_unix_ns=draw(STAMPS))
            case "parent":
                spans[at] = replace(span, parent_span_id=draw(st.none() | st.sampled_from(ids)))
            case "id":
                spans[at] = replace(span, span_id=draw(st.sampled_from(ids)))
            case "status":
                spans[at] = replace(span, status_code="Error")
            case _:
                spans[at] = replace(span, events=(), attributes={})
    return spans


@pytest.mark.slow
@given(hostile(), st.integers(1, 40))
@settings(max_examples=examples(120, 300), deadline=None)
def test_any_spans_make_valid_turns_or_none(spans: Sequence[SpanRow], at_once: int) -> None:
    stored = StoredTurns()
    for start in range(0, len(spans), at_once):
        stored.add(spans[start : start + at_once], NOW_UNIX_NS + start)
    stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS, is_last=True)
    assert not stored.assembly.faults
    turns = stored.turns
    for turn in turns:
        assert msgspec.convert(msgspec.to_builtins(turn), Turn) == turn
        assert turn.source == "service"
        assert len(turn.withheld_metrics) == len(turn.withheld_reasons)
        answered = turn.first_audio_perf_ns is not None
        assert turn.outcome in ("ok", "pending") or not answered
    assert [turn_from_row(row) for row in turns_table(turns).to_pylist()] == turns


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


@pytest.mark.slow
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
