"""Turns from the spans of frameworks: when a turn closes, what is counted, and what memory is held."""

from dataclasses import replace

import pytest

from telemetry.model.spans import SpanRow
from telemetry.sidecar.adapters.turn_assembly import GRACE_NS, SUCCESSOR_NS, TurnAssembly, is_foreign

from .made_spans import NOW_UNIX_NS, SECOND_NS, livekit, pipecat_turn, span

COMMITTED = {"lk.end_of_turn_delay": 0.2}


def in_trace(number: int, made: SpanRow) -> SpanRow:
    return replace(made, trace_id=f"{number:032x}")


def test_a_turn_closes_when_its_grace_period_is_over() -> None:
    assembly = TurnAssembly(grace_ns=10)
    assembly.add([pipecat_turn()], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 9) == []
    (turn,) = assembly.due(NOW_UNIX_NS + 10)
    assert (turn.run_id, turn.call_id, turn.turn_index) == ("service:bot:2026-11-10", "c", 2)
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    assert turn.first_audio_perf_ns - turn.speech_end_perf_ns == SECOND_NS // 2
    assert assembly.due(NOW_UNIX_NS + 11) == []


def test_the_grace_period_begins_when_a_span_comes_whatever_its_own_clock_says() -> None:
    assembly = TurnAssembly(grace_ns=10)
    shifted = replace(pipecat_turn(), start_unix_ns=NOW_UNIX_NS * 2, end_unix_ns=NOW_UNIX_NS * 2 + SECOND_NS)
    assembly.add([shifted, in_trace(2, replace(pipecat_turn(3), start_unix_ns=0, end_unix_ns=0))], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 9) == []
    assert len(assembly.due(NOW_UNIX_NS + 10)) == 2


def test_a_receiver_whose_clock_is_set_back_waits_no_longer() -> None:
    assembly = TurnAssembly(grace_ns=10)
    assembly.add([pipecat_turn()], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS - 3600 * SECOND_NS) == []
    assert len(assembly.due(NOW_UNIX_NS - 3600 * SECOND_NS + 10)) == 1


def test_a_receiver_whose_clock_is_set_forward_forgets_no_stage() -> None:
    assembly = TurnAssembly(grace_ns=10)
    assembly.add([span("llm", 3, 2, {"gen_ai.request.model": "m"}, scope_name="pipecat")], NOW_UNIX_NS)
    later_ns = NOW_UNIX_NS + 86_400 * SECOND_NS
    assert assembly.due(later_ns) == []
    assembly.add([pipecat_turn()], later_ns)
    (turn,) = assembly.due(later_ns + 10)
    assert turn.model == "m"


def test_spans_that_no_adapter_knows_are_counted() -> None:
    assembly = TurnAssembly()
    other = span("GET /", 3, scope_name="http")
    assembly.add([pipecat_turn(), other, other, span("strange", 4, scope_name="pipecat")], NOW_UNIX_NS)
    assert assembly.unmapped == {"http/GET /": 2, "pipecat/strange": 1}
    assert len(assembly.flush()) == 1


def test_our_own_whole_turns_are_none_of_a_framework() -> None:
    whole = span("voice.turn", 2, attributes={"voice.schema_version": 3}, scope_name="other")
    assembly = TurnAssembly()
    assembly.add([whole, span("voice.turn", 3, scope_name="voiceprobe")], NOW_UNIX_NS)
    assert assembly.flush() == []
    assert not assembly.unmapped
    assert not is_foreign("voiceprobe", "voice.turn")


@pytest.mark.parametrize("scope", ["pipecat.turn", "pipecat.other"])
def test_the_scope_says_whose_a_span_is(scope: str) -> None:
    assert is_foreign(scope, "turn") is (scope == "pipecat.turn")


def test_a_turn_is_given_once_however_often_its_spans_come() -> None:
    assembly = TurnAssembly(grace_ns=10)
    stage = span("tts", 3, 2, scope_name="pipecat")
    assembly.add([pipecat_turn(), stage, stage, pipecat_turn()], NOW_UNIX_NS)
    assert len(assembly.due(NOW_UNIX_NS + 10)) == 1
    assembly.add([pipecat_turn(), stage], NOW_UNIX_NS + 20)
    assembly.add([span("llm", 4, 2, scope_name="pipecat")], NOW_UNIX_NS + 20)
    assert assembly.due(NOW_UNIX_NS + SUCCESSOR_NS) == []
    assert (assembly.late, assembly.open_spans) == (1, 0)


def test_open_spans_are_bounded_and_the_oldest_are_given_up() -> None:
    assembly = TurnAssembly(grace_ns=10, open_spans_max=50)
    for number in range(200):
        stage = span("llm", number + 10, 1_000 + number, scope_name="pipecat")
        assembly.add([in_trace(number, stage)], NOW_UNIX_NS + number)
        assert assembly.open_spans <= 50
    assert assembly.given_up == 150
    assembly.add([in_trace(199, pipecat_turn(1_199)), in_trace(0, pipecat_turn(1_000))], NOW_UNIX_NS + 200)
    newest, oldest = sorted(assembly.due(NOW_UNIX_NS + 210), key=lambda turn: -int(turn.trace_id, 16))
    assert (int(newest.trace_id, 16), int(oldest.trace_id, 16)) == (199, 0)


def test_open_turns_of_one_trace_are_bounded() -> None:
    assembly = TurnAssembly()
    assembly.add([pipecat_turn(number) for number in range(1, 1_501)], NOW_UNIX_NS)
    assert assembly.given_up == 500
    assert len(assembly.flush()) == 1_000


def test_spans_whose_turn_never_comes_are_forgotten_and_counted() -> None:
    assembly = TurnAssembly()
    call = span("conversation", 1, scope_name="pipecat.turn")
    assembly.add([span("llm", 3, 2, scope_name="pipecat"), call], NOW_UNIX_NS)
    for minute in range(20):
        assert assembly.due(NOW_UNIX_NS + minute * 60 * SECOND_NS) == []
    assert (assembly.open_spans, assembly.left_over) == (0, 1)


def test_a_callers_turn_without_an_answer_waits_for_one() -> None:
    assembly = TurnAssembly()
    assembly.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + SUCCESSOR_NS - 1) == []
    (turn,) = assembly.due(NOW_UNIX_NS + SUCCESSOR_NS)
    assert (turn.outcome, turn.span_id) == ("no_reply", f"{2:016x}")


def test_a_callers_turn_without_an_answer_ends_with_its_call() -> None:
    assembly = TurnAssembly()
    assembly.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    assembly.add([livekit("agent_session", 1)], NOW_UNIX_NS + 5)
    assert assembly.due(NOW_UNIX_NS + 5 + GRACE_NS - 1) == []
    (turn,) = assembly.due(NOW_UNIX_NS + 5 + GRACE_NS)
    assert turn.outcome == "abandoned"


def test_a_late_answer_belongs_to_its_question() -> None:
    assembly = TurnAssembly()
    assembly.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 60 * SECOND_NS) == []
    answer = livekit("agent_turn", 3, 1, attributes={"lk.e2e_latency": 0.7, "lk.interrupted": False})
    assembly.add([answer], NOW_UNIX_NS + 60 * SECOND_NS)
    (turn,) = assembly.due(NOW_UNIX_NS + 60 * SECOND_NS + GRACE_NS)
    assert (turn.outcome, turn.span_id, turn.cut_short) == ("ok", f"{3:016x}", False)
    assert turn.endpoint_perf_ns is not None


def test_a_callers_turn_that_was_never_closed_is_none() -> None:
    assembly = TurnAssembly()
    assembly.add([livekit("user_turn", 2, 1), livekit("agent_session", 1)], NOW_UNIX_NS)
    assert assembly.flush() == []


def test_a_reply_that_was_thought_of_and_never_spoken_is_no_turn() -> None:
    """A preemptive generation that another one replaced."""
    discarded = livekit("agent_turn", 3, 1, attributes={"lk.interrupted": True, "lk.speech_id": "a"})
    answer = livekit(
        "agent_turn", 4, 1, attributes={"lk.interrupted": False, "lk.speech_id": "b", "lk.e2e_latency": 0.5}
    )
    assembly = TurnAssembly()
    question = livekit("user_turn", 2, 1, attributes=COMMITTED)
    later = replace(answer, start_unix_ns=answer.start_unix_ns + 1)
    assembly.add([question, discarded, later], NOW_UNIX_NS)
    (turn,) = assembly.flush()
    assert (turn.outcome, turn.span_id) == ("ok", f"{4:016x}")


def test_a_request_to_a_model_within_a_voice_turn_is_no_turn_of_its_own() -> None:
    stage = span("llm", 3, 2, {"gen_ai.usage.output_tokens": 4}, scope_name="pipecat")
    request = span(
        "openai.chat", 4, 3, {"gen_ai.request.model": "m"}, scope_name="opentelemetry.instrumentation.openai"
    )
    assembly = TurnAssembly(grace_ns=10, successor_ns=20)
    assembly.add([request], NOW_UNIX_NS)
    assembly.add([stage], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 1_000) == []
    assembly.add([pipecat_turn()], NOW_UNIX_NS + 1_000)
    (turn,) = assembly.due(NOW_UNIX_NS + 1_010)
    assert (turn.span_id, turn.model, turn.llm_tokens) == (f"{2:016x}", "m", 4)


def test_a_request_within_an_unknown_span_waits_for_an_agents() -> None:
    request = span("chat m", 4, 3, {"gen_ai.response.time_to_first_chunk": 0.25}, scope_name="any")
    agent = span("invoke_agent a", 3, None, {"gen_ai.conversation.id": "call"}, scope_name="any")
    assembly = TurnAssembly()
    assembly.add([request], NOW_UNIX_NS)
    assert assembly.due(NOW_UNIX_NS + 2 * GRACE_NS) == []
    assembly.add([agent], NOW_UNIX_NS + 2 * GRACE_NS)
    (turn,) = assembly.due(NOW_UNIX_NS + 3 * GRACE_NS)
    assert (turn.call_id, turn.span_id) == ("call", f"{3:016x}")
    assert turn.llm_first_token_perf_ns == request.start_unix_ns + SECOND_NS // 4


@pytest.mark.parametrize("where", ["attributes", "resource_attributes"])
def test_a_run_that_the_service_names_is_the_turns(where: str) -> None:
    assembly = TurnAssembly()
    named = {**getattr(pipecat_turn(), where), "voice.run_id": "night"}
    assembly.add([replace(pipecat_turn(), **{where: named})], NOW_UNIX_NS)
    assert [turn.run_id for turn in assembly.flush()] == ["night"]


def test_a_latency_that_is_none_makes_no_reply() -> None:
    """What a framework of another version, or a liar, states."""
    for value in ("0.5", True, None, [0.5]):
        assembly = TurnAssembly()
        stated: dict[str, object] = {"turn.user_bot_latency_seconds": value}
        assembly.add([pipecat_turn(2, **stated)], NOW_UNIX_NS)
        (turn,) = assembly.flush()
        assert (turn.outcome, turn.first_audio_perf_ns) == ("no_reply", None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e9, -1e9])
def test_a_latency_that_is_no_duration_is_of_a_reply_and_withheld(value: float) -> None:
    assembly = TurnAssembly()
    assembly.add([pipecat_turn(2, **{"turn.user_bot_latency_seconds": value})], NOW_UNIX_NS)
    (turn,) = assembly.flush()
    assert (turn.outcome, turn.first_audio_perf_ns) == ("ok", None)
    assert (turn.contradicted_metrics, turn.contradicted_causes) == (("voice_to_voice",), ("not_a_number",))


def test_spans_that_are_below_each_other_end_nothing_else() -> None:
    """Ids that a broken sender repeats must not make the assembly look for ever."""
    assembly = TurnAssembly()
    one, other = span("chat m", 3, 4, scope_name="any"), span("chat m", 4, 3, scope_name="any")
    assembly.add([one, other, replace(pipecat_turn(5), parent_span_id=f"{5:016x}")], NOW_UNIX_NS)
    assert [turn.span_id for turn in assembly.flush()] == [f"{5:016x}"]
