"""Whatever a sender states, the assembly raises nothing, and every turn that it gives can be stored and read back."""

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
from telemetry.sidecar.adapters.turn_assembly import ANSWER_WITHIN_NS
from telemetry.store.schema import turn_from_row, turns_table
from tests.unit.telemetry.sidecar.adapters.recorded_spans import NOW_UNIX_NS, recorded_files, recorded_spans
from tests.unit.telemetry.sidecar.adapters.stored_turns import StoredTurns

pytestmark = pytest.mark.slow

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
@settings(max_examples=300, deadline=None)
def test_whatever_is_stated_makes_turns_or_none(spans: Sequence[SpanRow], at_once: int) -> None:
    stored = StoredTurns()
    for start in range(0, len(spans), at_once):
        stored.add(spans[start : start + at_once], NOW_UNIX_NS + start)
    stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS, is_last=True)
    assert not stored.assembly.faults
    found = stored.turns
    for turn in found:
        assert msgspec.convert(msgspec.to_builtins(turn), Turn) == turn
        assert turn.source == "service"
        assert len(turn.withheld_metrics) == len(turn.withheld_reasons)
        answered = turn.first_audio_perf_ns is not None
        assert turn.outcome in ("ok", "pending") or not answered
    assert [turn_from_row(row) for row in turns_table(found).to_pylist()] == found
