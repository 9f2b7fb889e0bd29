"""Turns from the spans of frameworks: when a turn closes, what is counted, and what memory is held."""

from dataclasses import replace

import pytest

from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.adapters.frameworks import is_foreign
from telemetry.sidecar.adapters.turn_assembly import ANSWER_WITHIN_NS, COMPLETE_AFTER_NS, TurnAssembly

from .made_spans import NOW_UNIX_NS, SECOND_NS, livekit, pipecat_turn, span
from .stored_turns import StoredTurns, turns_of

COMMITTED = {"lk.end_of_turn_delay": 0.2}


def in_trace(number: int, made: SpanRow) -> SpanRow:
    return replace(made, trace_id=f"{number:032x}")


def test_an_answered_turn_is_complete_with_its_own_span() -> None:
    stored = StoredTurns()
    (change,) = stored.add([pipecat_turn()], NOW_UNIX_NS)
    (turn,) = stored.turns
    assert (change.is_first, change.stored, change.turn) == (True, None, turn)
    assert (turn.run_id, turn.call_id, turn.turn_index) == ("service:bot:2026-11-10", "c", 2)
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    assert turn.first_audio_perf_ns - turn.speech_end_perf_ns == SECOND_NS // 2
    assert stored.look(NOW_UNIX_NS + 11) == []


def test_unanswered_turn_is_complete_after_quiet_time() -> None:
    stored = StoredTurns()
    unanswered = replace(pipecat_turn(), attributes={"turn.number": 3})
    stored.add([unanswered], NOW_UNIX_NS)
    assert [turn.outcome for turn in stored.turns] == ["pending"]
    stored.add([span("llm", 3, 2, scope_name="pipecat")], NOW_UNIX_NS + 5)
    assert stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS) == []
    (change,) = stored.look(NOW_UNIX_NS + 5 + COMPLETE_AFTER_NS)
    assert (change.is_first, change.is_revised) == (True, False)
    assert [turn.outcome for turn in stored.turns] == ["no_reply"]


def test_a_turn_is_complete_whatever_its_own_clock_says() -> None:
    stored = StoredTurns()
    shifted = replace(pipecat_turn(), start_unix_ns=NOW_UNIX_NS * 2, end_unix_ns=NOW_UNIX_NS * 2 + SECOND_NS)
    stored.add([shifted, in_trace(2, replace(pipecat_turn(3), start_unix_ns=0, end_unix_ns=0))], NOW_UNIX_NS)
    assert [turn.outcome for turn in stored.turns] == ["ok", "ok"]


def test_spans_that_no_adapter_knows_are_of_no_turn() -> None:
    other = span("GET /", 3, 2, scope_name="http")
    assert len(turns_of([pipecat_turn(), other, span("strange", 4, 2, scope_name="pipecat")])) == 1
    assert turns_of([other]) == []


def test_our_own_whole_turns_are_none_of_a_framework() -> None:
    whole = span("voice.turn", 2, attributes={"voice.schema_version": 3}, scope_name="other")
    stored = StoredTurns()
    assert stored.add([whole, span("voice.turn", 3, scope_name="voiceprobe")], NOW_UNIX_NS) == []
    assert not is_foreign("voiceprobe", "voice.turn")


@pytest.mark.parametrize("scope", ["pipecat.turn", "pipecat.other"])
def test_scope_decides_whether_span_is_foreign(scope: str) -> None:
    assert is_foreign(scope, "turn") is (scope == "pipecat.turn")


def test_a_turn_is_stored_once_however_often_its_spans_come() -> None:
    stored = StoredTurns()
    stage = span("tts", 3, 2, scope_name="pipecat")
    stored.add([pipecat_turn(), stage, stage, pipecat_turn()], NOW_UNIX_NS)
    assert len(stored.turns) == 1
    assert stored.add([pipecat_turn(), stage], NOW_UNIX_NS + 20) == []
    (change,) = stored.add([span("llm", 4, 2, scope_name="pipecat")], NOW_UNIX_NS + 20)
    assert change.is_revised
    assert (stored.assembly.late, stored.assembly.open_spans) == (1, 0)


def test_a_trace_without_end_is_bounded_and_keeps_its_turns() -> None:
    stored = StoredTurns(TurnAssembly(trace_spans_max=30))
    turns = [
        replace(pipecat_turn(2 * at), start_unix_ns=NOW_UNIX_NS + at, end_unix_ns=NOW_UNIX_NS + at)
        for at in range(1, 101)
    ]
    for at, turn in enumerate(turns):
        own = replace(turn, attributes={**turn.attributes, "turn.number": None})
        stored.add([own, span("llm", 1_000 + at, 2 * at + 2, scope_name="pipecat")], NOW_UNIX_NS + at)
    assert sorted(turn.turn_index for turn in stored.turns) == list(range(100))
    assert stored.add([span("tts", 5_000, 2, scope_name="pipecat")], NOW_UNIX_NS + 200) == []
    assert (stored.assembly.late, len(stored.turns), stored.assembly.given_up) == (1, 100, 0)


def test_spans_of_one_trace_without_turn_are_bounded() -> None:
    stored = StoredTurns(TurnAssembly(trace_spans_max=30))
    stages = [span("llm", 1_000 + at, 1_000 + at - 1, scope_name="pipecat") for at in range(1, 101)]
    stored.add(stages, NOW_UNIX_NS)
    assert stored.assembly.given_up == 70


def test_the_spans_of_all_traces_are_bounded() -> None:
    stored = StoredTurns(TurnAssembly(spans_max=50))
    for number in range(200):
        stored.add([in_trace(number, span("llm", number + 10, 1_000 + number, scope_name="pipecat"))], NOW_UNIX_NS)
        assert stored.assembly.open_spans <= 50
    assert stored.assembly.left_over == 150
    stored.add([in_trace(199, pipecat_turn(1_199)), in_trace(0, pipecat_turn(1_000))], NOW_UNIX_NS + 200)
    assert [int(turn.trace_id, 16) for turn in stored.turns if turn.outcome == "ok"] == [0, 199]


def test_spans_whose_turn_never_comes_are_forgotten_and_counted() -> None:
    stored = StoredTurns()
    call = span("conversation", 1, scope_name="pipecat.turn")
    stored.add([span("llm", 3, 2, scope_name="pipecat"), call], NOW_UNIX_NS)
    assert (stored.turns, stored.assembly.open_spans) == ([], 2)
    for minute in range(20):
        assert stored.look(NOW_UNIX_NS + minute * 60 * SECOND_NS) == []
    assert (stored.assembly.open_spans, stored.assembly.left_over) == (0, 1)


def test_a_callers_turn_without_an_answer_waits_for_one() -> None:
    stored = StoredTurns()
    stored.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    assert [turn.outcome for turn in stored.turns] == ["pending"]
    assert stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS - 1) == []
    stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS)
    assert [(turn.outcome, turn.span_id) for turn in stored.turns] == [("no_reply", f"{2:016x}")]


def test_a_callers_turn_without_an_answer_ends_with_its_call() -> None:
    stored = StoredTurns()
    stored.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    stored.add([livekit("agent_session", 1)], NOW_UNIX_NS + 5)
    assert stored.look(NOW_UNIX_NS + 5 + COMPLETE_AFTER_NS - 1) == []
    stored.look(NOW_UNIX_NS + 5 + COMPLETE_AFTER_NS)
    assert [turn.outcome for turn in stored.turns] == ["abandoned"]


def test_a_late_answer_belongs_to_its_question() -> None:
    stored = StoredTurns()
    stored.add([livekit("user_turn", 2, 1, attributes=COMMITTED)], NOW_UNIX_NS)
    answer = livekit("agent_turn", 3, 1, attributes={"lk.e2e_latency": 0.7, "lk.interrupted": False})
    (change,) = stored.add([answer], NOW_UNIX_NS + 60 * SECOND_NS)
    (turn,) = stored.turns
    assert change.is_first
    assert (turn.outcome, turn.span_id, turn.cut_short) == ("ok", f"{3:016x}", False)
    assert turn.endpoint_perf_ns is not None


def test_unclosed_caller_turn_is_no_turn() -> None:
    assert turns_of([livekit("user_turn", 2, 1), livekit("agent_session", 1)]) == []


def test_a_reply_that_was_thought_of_and_never_spoken_is_no_turn() -> None:
    """A preemptive generation that another one replaced."""
    discarded = livekit("agent_turn", 3, 1, attributes={"lk.interrupted": True, "lk.speech_id": "a"})
    answer = livekit(
        "agent_turn", 4, 1, attributes={"lk.interrupted": False, "lk.speech_id": "b", "lk.e2e_latency": 0.5}
    )
    question = livekit("user_turn", 2, 1, attributes=COMMITTED)
    later = replace(answer, start_unix_ns=answer.start_unix_ns + 1)
    (turn,) = turns_of([question, discarded, later])
    assert (turn.outcome, turn.span_id) == ("ok", f"{4:016x}")


def test_model_request_within_voice_turn_is_no_separate_turn() -> None:
    stage = span("llm", 3, 2, {"gen_ai.usage.output_tokens": 4}, scope_name="pipecat")
    request = span(
        "openai.chat", 4, 3, {"gen_ai.request.model": "m"}, scope_name="opentelemetry.instrumentation.openai"
    )
    stored = StoredTurns()
    stored.add([request], NOW_UNIX_NS)
    stored.add([stage], NOW_UNIX_NS)
    assert all(turn.outcome == "pending" for turn in stored.turns)
    stored.add([pipecat_turn()], NOW_UNIX_NS + 1_000)
    (turn,) = stored.turns
    assert (turn.span_id, turn.model, turn.llm_tokens) == (f"{2:016x}", "m", 4)


def test_a_request_within_an_unknown_span_waits_for_an_agents() -> None:
    request = span("chat m", 4, 3, {"gen_ai.response.time_to_first_chunk": 0.25}, scope_name="any")
    agent = span("invoke_agent a", 3, None, {"gen_ai.conversation.id": "call"}, scope_name="any")
    stored = StoredTurns()
    stored.add([request], NOW_UNIX_NS)
    assert [turn.outcome for turn in stored.turns] == ["pending"]
    (change,) = stored.add([agent], NOW_UNIX_NS + 2 * COMPLETE_AFTER_NS)
    (turn,) = stored.turns
    assert change.is_first
    assert (turn.outcome, turn.call_id, turn.span_id) == ("ok", "call", f"{3:016x}")
    assert turn.llm_first_token_perf_ns == request.start_unix_ns + SECOND_NS // 4


@pytest.mark.parametrize("where", ["attributes", "resource_attributes"])
def test_a_run_that_the_service_names_is_the_turns(where: str) -> None:
    named = {**getattr(pipecat_turn(), where), "voice.run_id": "night"}
    assert [turn.run_id for turn in turns_of([replace(pipecat_turn(), **{where: named})])] == ["night"]


def test_invalid_latency_makes_no_reply() -> None:
    """Another version of the framework may state such values."""
    for value in ("0.5", True, None, [0.5]):
        stated: dict[str, object] = {"turn.user_bot_latency_seconds": value}
        (turn,) = turns_of([pipecat_turn(2, **stated)])
        assert (turn.outcome, turn.first_audio_perf_ns) == ("no_reply", None)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e9, -1e9])
def test_latency_that_is_no_duration_is_withheld_from_its_reply(value: float) -> None:
    (turn,) = turns_of([pipecat_turn(2, **{"turn.user_bot_latency_seconds": value})])
    assert (turn.outcome, turn.first_audio_perf_ns) == ("ok", None)
    assert (turn.contradicted_metrics, turn.contradicted_causes) == (("voice_to_voice",), ("not_a_number",))


def test_spans_that_are_below_each_other_end_nothing_else() -> None:
    """Ids that a broken sender repeats must not make the assembly look for ever."""
    one, other = span("chat m", 3, 4, scope_name="any"), span("chat m", 4, 3, scope_name="any")
    turns = turns_of([one, other, replace(pipecat_turn(5), parent_span_id=f"{5:016x}")])
    assert [turn.span_id for turn in turns] == [f"{5:016x}"]
