"""Assignment of spans to turns: spans outside the turn's, services that share a trace, late spans."""

import random
from dataclasses import replace

import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.adapters.turn_assembly import ANSWER_WITHIN_NS, COMPLETE_AFTER_NS, TurnAssembly

from .made_spans import NOW_UNIX_NS, SECOND_NS, event, failed, livekit, pipecat_turn, span
from .stored_turns import StoredTurns, turns_of

CALL = 1
CONVERSATION = span("conversation", CALL, attributes={"conversation.id": "c"}, scope_name="pipecat.turn")


def silent_turn(span_id: int = 2, number: int = 3, start_s: float = -1.0, end_s: float = 0.0) -> SpanRow:
    """A turn of Pipecat that does not state its latency, as with Flux; seconds from now."""
    row = span("turn", span_id, CALL, {"turn.number": number, "conversation.id": "c"}, scope_name="pipecat.turn")
    return at(row, start_s, end_s)


def at(row: SpanRow, start_s: float, end_s: float) -> SpanRow:
    return replace(
        row,
        start_unix_ns=NOW_UNIX_NS + round(start_s * SECOND_NS),
        end_unix_ns=NOW_UNIX_NS + round(end_s * SECOND_NS),
    )


def stage(name: str, span_id: int, parent: int, start_s: float, end_s: float, ttfb_s: float = 0.1) -> SpanRow:
    return at(span(name, span_id, parent, {"metrics.ttfb": ttfb_s}, scope_name="pipecat"), start_s, end_s)


@pytest.mark.parametrize("parent", [2, CALL])
def test_turn_with_model_and_voice_is_answered_without_latency(parent: int) -> None:
    stages = [stage("stt", 3, parent, -1, -0.6), stage("llm", 4, parent, -0.6, -0.3), stage("tts", 5, parent, -0.3, 0)]
    (turn,) = turns_of([*stages, silent_turn(), CONVERSATION])
    assert (turn.outcome, turn.failure_kind, turn.first_audio_perf_ns) == ("ok", None, None)
    assert METRICS["voice_to_voice"].value(turn) is None
    assert turn.contradicted_metrics == ()
    assert METRICS["tts_first_chunk_latency"].value(turn) == 300_000_000


def test_a_model_alone_is_no_answer() -> None:
    (turn,) = turns_of([stage("llm", 4, 2, -0.6, -0.3), silent_turn()])
    assert turn.outcome == "no_reply"


def test_a_voice_that_failed_is_no_answer() -> None:
    voice = failed(stage("tts", 5, 2, -0.3, 0))
    (turn,) = turns_of([stage("llm", 4, 2, -0.6, -0.3), voice, silent_turn()])
    assert turn.outcome == "error"


def test_voice_interrupted_before_first_chunk_is_no_answer() -> None:
    voice = replace(stage("tts", 5, 2, -0.3, 0), attributes={"tts.interrupted": True})
    ended = replace(silent_turn(), attributes={**silent_turn().attributes, "turn.ended_by_conversation_end": True})
    (turn,) = turns_of([voice, ended])
    assert turn.outcome == "abandoned"


def test_turn_ended_by_timer_before_reply_gets_following_reply() -> None:
    """Pipecat's timer of the turn before can end a turn that has just begun: what follows hangs under the conversation,
    and `turn.duration_seconds` is below zero."""
    short = replace(silent_turn(2, 3, -9.0, -8.9), attributes={
        **silent_turn().attributes, "turn.duration_seconds": -0.4, "turn.was_interrupted": False,
    })  # fmt: skip
    later = replace(pipecat_turn(6, **{"turn.number": 4}), parent_span_id=f"{CALL:016x}")
    stages = [
        stage("stt", 3, CALL, -9.0, -7.6),
        stage("llm", 4, CALL, -7.6, -7.2),
        stage("tts", 5, CALL, -7.2, -4.0),
    ]
    turns = turns_of([short, *stages, later, CONVERSATION])
    assert [(turn.turn_index, turn.outcome) for turn in turns] == [(2, "ok"), (3, "ok")]
    assert METRICS["voice_to_voice"].value(turns[0]) is None
    assert METRICS["asr_final_latency"].value(turns[0]) == 100_000_000
    assert turns[0].contradicted_metrics == ()


def test_stages_of_conversation_belong_to_turn_they_began_in() -> None:
    turns = [silent_turn(2, 3, -30, -29), silent_turn(3, 4, -20, -19), silent_turn(4, 5, -10, -9)]
    stages = [
        stage("tts", 10, CALL, -19.5, -19),
        stage("llm", 11, CALL, -19.8, -19.5),
        stage("llm", 12, CALL, -9.5, -9),
    ]
    for seed in range(5):
        spans = [*turns, *stages, CONVERSATION]
        random.Random(seed).shuffle(spans)
        assert [turn.outcome for turn in turns_of(spans)] == ["no_reply", "ok", "no_reply"]


def test_voice_between_two_turns_leaves_answered_one_unchanged() -> None:
    """ "Are you still there?", while no turn is under way."""
    answered = replace(pipecat_turn(2), parent_span_id=f"{CALL:016x}")
    answered = at(answered, -30, -25)
    (turn,) = turns_of([answered, stage("tts", 3, CALL, -15, -12), CONVERSATION])
    assert turn.tts_first_chunk_perf_ns is None


def test_late_stages_under_the_conversation_find_their_turn() -> None:
    stored = StoredTurns()
    stored.add([silent_turn()], NOW_UNIX_NS)
    stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS)
    (turn,) = stored.turns
    assert turn.outcome == "no_reply"
    stages = [stage("llm", 4, CALL, -0.6, -0.3), stage("tts", 5, CALL, -0.3, 0)]
    (change,) = stored.add(stages, NOW_UNIX_NS + 2 * COMPLETE_AFTER_NS)
    assert (change.is_revised, change.stored) == (True, turn)
    (revised,) = stored.turns
    assert (revised.span_id, revised.outcome, revised.late_spans) == (turn.span_id, "ok", 2)
    assert (stored.assembly.late, stored.assembly.open_spans) == (2, 0)


def own_turn(span_id: int, parent: int | None, service: str, call: str | None = None, ms: int = 500) -> SpanRow:
    attributes = {} if call is None else {"gen_ai.conversation.id": call}
    events = (event("voice.speech.end", 100), event("voice.tts.first_chunk", 100 + ms))
    return span("voice.turn", span_id, parent, attributes, scope_name="mine", service=service, events=events)


@pytest.mark.parametrize("seed", range(4))
def test_turn_of_other_service_in_trace_is_its_own(seed: int) -> None:
    """A gateway, and the agent that it calls."""
    spans = [
        own_turn(2, None, "gateway", ms=500),
        span("voice.llm", 3, 2, scope_name="mine", service="gateway"),
        own_turn(4, 3, "agent", ms=50),
        span("voice.llm", 5, 4, {"gen_ai.request.model": "m"}, scope_name="mine", service="agent"),
    ]
    random.Random(seed).shuffle(spans)
    turns = turns_of(spans)
    assert sorted((turn.run_id.split(":")[1], turn.span_id[-1], turn.model) for turn in turns) == [
        ("agent", "4", "m"),
        ("gateway", "2", None),
    ]
    values = {turn.span_id[-1]: METRICS["voice_to_voice"].value(turn) for turn in turns}
    assert values == {"2": 500_000_000, "4": 50_000_000}


def test_turn_of_other_conversation_in_trace_is_its_own() -> None:
    turns = turns_of([own_turn(2, None, "bot", "one"), own_turn(4, 2, "bot", "two", ms=50)])
    assert sorted((turn.call_id, METRICS["voice_to_voice"].value(turn)) for turn in turns) == [
        ("one", 500_000_000),
        ("two", 50_000_000),
    ]


def test_turn_of_other_framework_in_same_service_is_part_of_it() -> None:
    """A service that reports its turns itself, and lets a framework report them as well."""
    inner = replace(pipecat_turn(4), parent_span_id=f"{2:016x}")
    for spans in ([own_turn(2, None, "bot"), inner], [inner, own_turn(2, None, "bot")]):
        assert [turn.span_id[-1] for turn in turns_of(spans)] == ["2"]


@pytest.mark.parametrize("inner", ["pipecat", "livekit", "agent"])
def test_turn_of_other_service_is_its_own_for_any_framework(inner: str) -> None:
    made = {
        "pipecat": replace(pipecat_turn(4), parent_span_id=f"{2:016x}", service="other"),
        "livekit": livekit("agent_turn", 4, 2, attributes={"lk.e2e_latency": 0.7}, service="other"),
        "agent": span("invoke_agent a", 4, 2, scope_name="any", service="other"),
    }[inner]
    turns = turns_of([own_turn(2, None, "bot"), made])
    assert sorted((turn.span_id[-1], turn.run_id.split(":")[1]) for turn in turns) == [("2", "bot"), ("4", "other")]


def test_request_of_other_service_within_turn_is_its_stage() -> None:
    request = span("chat m", 4, 3, {"gen_ai.request.model": "m"}, scope_name="any", service="models")
    turns = turns_of([own_turn(2, None, "bot"), span("voice.llm", 3, 2, scope_name="mine"), request])
    assert [turn.span_id[-1] for turn in turns] == ["2"]


def test_stored_inner_turn_becomes_part_of_later_outer_one() -> None:
    inner = replace(pipecat_turn(4), parent_span_id=f"{2:016x}")
    stored = StoredTurns()
    (first,) = stored.add([inner], NOW_UNIX_NS)
    (change,) = stored.add([own_turn(2, None, "bot")], NOW_UNIX_NS + 20)
    assert first.is_first
    assert (change.is_first, change.is_revised) == (False, True)
    assert [turn.span_id for turn in stored.turns] == [f"{2:016x}"]


def test_a_late_stage_takes_what_hangs_under_it_along() -> None:
    stored = StoredTurns()
    stored.add([silent_turn()], NOW_UNIX_NS)
    stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS)
    request = span(
        "openai.chat", 6, 4, {"gen_ai.request.model": "m"}, scope_name="opentelemetry.instrumentation.openai"
    )
    later_ns = NOW_UNIX_NS + 2 * COMPLETE_AFTER_NS
    assert stored.add([request], later_ns) == []
    stored.add([stage("llm", 4, 2, -0.6, -0.3), stage("tts", 5, 2, -0.3, 0)], later_ns)
    (revised,) = stored.turns
    assert (revised.outcome, revised.model, revised.late_spans) == ("ok", "m", 3)
    assert stored.assembly.open_spans == 0


def test_late_stages_of_a_first_turn_that_was_none_make_it_one() -> None:
    """Nothing shows that the caller spoke in the first turn of a call until its stages arrive."""
    stored = StoredTurns()
    assert stored.add([silent_turn(number=1)], NOW_UNIX_NS) == []
    assert stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS) == []
    stages = [stage("stt", 3, 2, -1, -0.6), stage("tts", 5, 2, -0.3, 0)]
    (change,) = stored.add(stages, NOW_UNIX_NS + ANSWER_WITHIN_NS)
    (turn,) = stored.turns
    assert (change.is_first, turn.outcome, turn.turn_index) == (True, "ok", 0)


def test_spans_in_memory_are_bounded_and_late_one_joins_its_turn() -> None:
    stored = StoredTurns(TurnAssembly(spans_max=20))
    for number in range(200):
        answered = replace(pipecat_turn(), trace_id=f"{number:032x}")
        stored.add([answered], NOW_UNIX_NS + number)
        assert len(stored.assembly.forgotten([f"{place:032x}" for place in range(200)])) == max(0, number - 19)
    late = replace(stage("llm", 5, 2, -0.6, -0.3), trace_id=f"{0:032x}")
    (change,) = stored.add([late], NOW_UNIX_NS + 86_399 * SECOND_NS)
    assert change.is_revised
    assert change.turn is not None
    assert (change.turn.trace_id, change.turn.late_spans) == (late.trace_id, None)
    assert len(stored.turns) == 200


QUESTION = livekit("user_turn", 2, CALL, attributes={"lk.end_of_turn_delay": 0.2})
ANSWER = livekit("agent_turn", 3, CALL, attributes={"lk.e2e_latency": 0.7, "lk.interrupted": False})
SESSION = livekit("agent_session", CALL)


@pytest.mark.parametrize("first", [QUESTION, ANSWER])
def test_late_other_half_of_livekit_turn_completes_it(first: SpanRow) -> None:
    """After the session's end, when the first half was a turn of its own already."""
    second = ANSWER if first is QUESTION else QUESTION
    stored = StoredTurns()
    stored.add([first, SESSION], NOW_UNIX_NS)
    stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS)
    (turn,) = stored.turns
    assert (turn.outcome, turn.span_id) == ("abandoned" if first is QUESTION else "ok", first.span_id)
    (change,) = stored.add([second], NOW_UNIX_NS + 2 * COMPLETE_AFTER_NS)
    assert change.is_revised
    (revised,) = stored.turns
    assert (revised.outcome, revised.span_id, revised.late_spans) == ("ok", ANSWER.span_id, 1)
    assert METRICS["voice_to_voice"].value(revised) == 700_000_000
    assert METRICS["endpointing"].value(revised) == 200_000_000


def test_reply_never_played_leaves_caller_without_answer() -> None:
    discarded = livekit("agent_turn", 3, CALL, attributes={"lk.interrupted": True})
    stored = StoredTurns()
    stored.add([QUESTION, SESSION], NOW_UNIX_NS)
    stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS)
    assert [turn.outcome for turn in stored.turns] == ["abandoned"]
    stored.add([discarded], NOW_UNIX_NS + 2 * COMPLETE_AFTER_NS)
    (turn,) = stored.turns
    assert turn.outcome in ("abandoned", "interrupted")


STAGES = [stage("stt", 3, 2, -1, -0.6), stage("llm", 4, 2, -0.6, -0.3), stage("tts", 5, 2, -0.3, 0)]


def test_a_turn_of_which_only_stages_have_come_is_pending() -> None:
    stored = StoredTurns()
    stored.add(STAGES[:1], NOW_UNIX_NS)
    (turn,) = stored.turns
    assert (turn.outcome, turn.span_id, turn.failure_kind) == ("pending", f"{2:016x}", None)
    assert stored.add(STAGES, NOW_UNIX_NS + 5)[0].stored == turn
    assert stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS, is_last=True) == [], "its own span never came"
    assert [turn.outcome for turn in stored.turns] == ["pending"]
    (change,) = stored.add([silent_turn()], NOW_UNIX_NS + ANSWER_WITHIN_NS)
    assert change.is_first
    assert [(turn.outcome, turn.turn_index, turn.late_spans) for turn in stored.turns] == [("ok", 2, None)]


def test_stages_under_unseen_conversation_are_no_turn_of_it() -> None:
    """Before the first turn they look like one; then it shows that turns hang there."""
    stored = StoredTurns()
    stored.add([stage("stt", 3, CALL, -9, -8)], NOW_UNIX_NS)
    assert [turn.span_id for turn in stored.turns] == [f"{CALL:016x}"]
    stored.add([replace(pipecat_turn(6), parent_span_id=f"{CALL:016x}")], NOW_UNIX_NS)
    assert [(turn.span_id, turn.outcome) for turn in stored.turns] == [(f"{6:016x}", "ok")]


def test_lone_model_request_makes_no_turn_of_web_request() -> None:
    request = span("chat m", 4, 3, {"gen_ai.request.model": "m"}, scope_name="any")
    stored = StoredTurns()
    stored.add([request], NOW_UNIX_NS)
    assert [(turn.span_id, turn.outcome) for turn in stored.turns] == [(f"{4:016x}", "pending")]
    stored.look(NOW_UNIX_NS + ANSWER_WITHIN_NS)
    assert [(turn.span_id, turn.outcome) for turn in stored.turns] == [(f"{4:016x}", "ok")]


def test_stages_over_a_day_old_make_no_turn_without_own_span() -> None:
    """The trace may have been forgotten with the turn in the store."""
    stored = StoredTurns()
    assert stored.add(STAGES, NOW_UNIX_NS + 86_401 * SECOND_NS) == []
    stored.add([silent_turn()], NOW_UNIX_NS + 86_401 * SECOND_NS)
    assert [turn.outcome for turn in stored.turns] == ["ok"]


def test_a_complete_turn_stays_complete_whatever_comes_of_it() -> None:
    stored = StoredTurns()
    stored.add([silent_turn()], NOW_UNIX_NS)
    stored.look(NOW_UNIX_NS + COMPLETE_AFTER_NS)
    (change,) = stored.add([stage("llm", 4, 2, -0.6, -0.3)], NOW_UNIX_NS + COMPLETE_AFTER_NS)
    assert (change.is_revised, [turn.outcome for turn in stored.turns]) == (True, ["no_reply"])
    taken_up = StoredTurns()
    taken_up.assembly.take_up([silent_turn(), stage("llm", 4, 2, -0.6, -0.3)], stored.turns, NOW_UNIX_NS)
    taken_up.by_id = dict(stored.by_id)
    assert taken_up.look(NOW_UNIX_NS) == []


def test_turn_whose_own_span_expired_stays_unchanged() -> None:
    stored = StoredTurns()
    stored.add([silent_turn(), *STAGES], NOW_UNIX_NS)
    again = StoredTurns()
    again.by_id = dict(stored.by_id)
    again.assembly.take_up(STAGES[1:], stored.turns, NOW_UNIX_NS)
    assert again.look(NOW_UNIX_NS + ANSWER_WITHIN_NS, is_last=True) == []
