"""Turns from the spans of frameworks: when a turn closes, and what is counted."""

from telemetry.model.spans import SpanRow
from telemetry.sidecar.adapters.turn_assembly import TurnAssembly

SECOND_NS = 1_000_000_000
NOW_UNIX_NS = 1_794_355_000 * SECOND_NS


def pipecat_turn(**attributes: object) -> SpanRow:
    return SpanRow(
        trace_id="1" * 32,
        span_id="2" * 16,
        parent_span_id=None,
        name="turn",
        service="bot",
        start_unix_ns=NOW_UNIX_NS - SECOND_NS,
        end_unix_ns=NOW_UNIX_NS,
        attributes={"turn.number": 3, "conversation.id": "c", **attributes},
        scope_name="pipecat.turn",
    )


def test_a_turn_closes_when_its_grace_period_is_over() -> None:
    assembly = TurnAssembly(grace_ns=10)
    assembly.add([pipecat_turn(**{"turn.user_bot_latency_seconds": 0.5})], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 9) == []
    (turn,) = assembly.due(NOW_UNIX_NS + 10)
    assert (turn.run_id, turn.call_id, turn.turn_index) == ("service:bot:2026-11-10", "c", 2)
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    assert turn.first_audio_perf_ns - turn.speech_end_perf_ns == SECOND_NS // 2
    assert assembly.due(NOW_UNIX_NS + 11) == []


def test_spans_that_no_adapter_knows_are_counted() -> None:
    assembly = TurnAssembly()
    span = pipecat_turn()
    other = SpanRow("1" * 32, "3" * 16, None, "GET /", "bot", 1, 2, {}, scope_name="http")
    assembly.add([span, other, other], NOW_UNIX_NS)
    assert assembly.unmapped == {"http/GET /": 2}
    assert len(assembly.flush()) == 1
