"""One scripted conversation, held with each framework: the same turns, stages, interruptions and fallbacks come out.

What is expected is the script of the recorders (tests/integration/recorders/record_spans_*.py), not what the code
makes of their spans.
"""

from dataclasses import dataclass, replace

import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn

from .recorded_spans import recorded_files, recorded_spans, recorded_turns
from .stored_turns import turns_of

MS = 1_000_000
# The script's delays; every stage also passes a few queues, and the machine that recorded was shared.
VAD_STOP_MS, RECOGNITION_MS, ENDPOINTING_MS = 100, 50, 150
FIRST_TOKEN_MS, SYNTHESIS_MS, TOOL_MS, SPEECH_MS, PARTIAL_MS = 80, 60, 50, 400, 200
LATER_MS = 70  # at most, for each stage
LIVEKIT = ("livekit-agents-1.6.10", "livekit-agents-1.7.1", "livekit-agents-1.8.9")
PIPECAT = ("pipecat-1.14.0",)
OPENINFERENCE = ("openinference-pipecat-2.0.9",)
SPEAKING = (*LIVEKIT, *PIPECAT, *OPENINFERENCE)


@dataclass(frozen=True)
class Expected:
    """The expected turn of the script; `tool` for one with a tool call, and so with two generations."""

    outcome: str = "ok"
    cut_short: bool | None = False
    is_cached: bool | None = False
    cohort: str | None = None
    tool: bool = False


UNANSWERED = Expected(outcome="abandoned", cut_short=None, is_cached=None)
TALK = (
    Expected(),
    Expected(is_cached=True),
    Expected(tool=True),
    Expected(cohort="canary"),
    Expected(cut_short=True),
    Expected(),
    UNANSWERED,
)


@pytest.mark.parametrize("framework", SPEAKING)
def test_a_conversation_gives_the_same_turns(framework: str) -> None:
    turns = recorded_turns(f"{framework}/talk")
    assert [turn.turn_index for turn in turns] == list(range(len(TALK)))
    assert len({turn.call_id for turn in turns}) == 1
    assert len({turn.span_id for turn in turns}) == len(TALK)
    for turn, expected in zip(turns, TALK, strict=True):
        assert (turn.source, turn.outcome, turn.cut_short) == ("service", expected.outcome, expected.cut_short)
        assert turn.turn_kind is None
        # Pipecat's scripted model states no cache where the script does not; OpenInference's span cannot have an event.
        if expected.cohort is None or framework in LIVEKIT:
            cached = turn.llm_cached_tokens
            assert (None if cached is None else cached > 0) is expected.is_cached
            share = None if cached is None or not turn.llm_input_tokens else cached / turn.llm_input_tokens
            assert METRICS["prompt_cached"].value(turn) == share
            assert (share is None) is (expected.is_cached is None)
        assert (turn.cache_hit, turn.cache_tier) == (None, None), "a cached part of the prompt is no cached answer"
        assert turn.cohort == (None if framework in OPENINFERENCE else expected.cohort)
        assert turn.fallback is None
        if expected.outcome == "ok":
            # OpenInference has the model's name of a service of its own only under a name that is not stored.
            assert turn.model == (None if framework in OPENINFERENCE else "scripted-llm")
            assert turn.llm_tokens == 4


@pytest.mark.parametrize("framework", SPEAKING)
def test_the_headline_is_what_the_caller_waited(framework: str) -> None:
    """The wait from the end of speech: silence, recognition or endpointing, the model, the voice."""
    closed_ms = max(VAD_STOP_MS + RECOGNITION_MS, ENDPOINTING_MS)
    # Pipecat waits for the endpointing delay after it has found the silence.
    closed_ms += 0 if framework in LIVEKIT else VAD_STOP_MS
    for turn, expected in zip(recorded_turns(f"{framework}/talk"), TALK, strict=True):
        answer_ms = FIRST_TOKEN_MS + SYNTHESIS_MS + (FIRST_TOKEN_MS + TOOL_MS if expected.tool else 0)
        if expected.outcome == "ok":
            assert_about(turn, "voice_to_voice", closed_ms + answer_ms, stages=5)
        else:
            assert METRICS["voice_to_voice"].value(turn) is None
            assert turn.first_audio_perf_ns is None


@pytest.mark.parametrize("framework", [*LIVEKIT, *PIPECAT])
def test_every_stage_is_what_the_script_says(framework: str) -> None:
    for turn, expected in zip(recorded_turns(f"{framework}/talk"), TALK, strict=True):
        assert_about(turn, "asr_final_latency", VAD_STOP_MS + RECOGNITION_MS)
        assert turn.speech_end_perf_ns is not None
        assert turn.speech_start_perf_ns is not None
        assert_within(turn.speech_end_perf_ns - turn.speech_start_perf_ns, SPEECH_MS, stages=1)
        if expected.outcome == "ok":
            assert_about(turn, "tts_first_chunk_latency", SYNTHESIS_MS)
            assert turn.tts_first_chunk_perf_ns is not None
            assert turn.first_audio_perf_ns is not None
            assert_within(turn.first_audio_perf_ns - turn.tts_first_chunk_perf_ns, 0, stages=1)
        else:
            assert turn.llm_first_token_perf_ns is None or framework in LIVEKIT
            assert turn.hangup_perf_ns is not None


@pytest.mark.parametrize("framework", LIVEKIT)
def test_livekit_says_when_the_turn_was_closed(framework: str) -> None:
    for turn in recorded_turns(f"{framework}/talk"):
        assert_about(turn, "endpointing", ENDPOINTING_MS)
        if framework == "livekit-agents-1.8.9":
            assert_about(turn, "asr_partial_latency", PARTIAL_MS)
        else:
            assert METRICS["asr_partial_latency"].value(turn) is None


@pytest.mark.parametrize("framework", LIVEKIT)
def test_another_model_that_answers_is_a_fallback(framework: str) -> None:
    (turn,) = recorded_turns(f"{framework}/fallback")
    assert (turn.outcome, turn.fallback, turn.cut_short) == ("ok", "model", False)
    assert_about(turn, "voice_to_voice", ENDPOINTING_MS + FIRST_TOKEN_MS + SYNTHESIS_MS, stages=5)


@pytest.mark.parametrize("framework", SPEAKING)
def test_an_agent_that_speaks_first_was_not_asked(framework: str) -> None:
    """OpenInference's span of the caller's speech begins in the greeting's turn, which it is no part of."""
    greeting, turn = recorded_turns(f"{framework}/greeted")
    assert (greeting.turn_kind, greeting.outcome, greeting.speech_end_perf_ns) == ("silence", "ok", None)
    assert (turn.turn_kind, turn.outcome, turn.turn_index) == (None, "ok", 1)
    assert turn.cut_short is (framework in OPENINFERENCE)


@pytest.mark.parametrize("framework", LIVEKIT)
def test_a_model_that_fails_leaves_an_error(framework: str) -> None:
    (turn,) = recorded_turns(f"{framework}/silent")
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", "endpoint_error", "APIConnectionError")
    assert turn.llm_first_token_perf_ns is None


@pytest.mark.parametrize("framework", [*PIPECAT, *OPENINFERENCE])
def test_a_model_that_says_nothing_leaves_no_reply(framework: str) -> None:
    """Pipecat goes on measuring the first token when none came: that is no figure."""
    (turn,) = recorded_turns(f"{framework}/silent")
    assert (turn.outcome, turn.cut_short) == ("abandoned", None)
    assert turn.llm_first_token_perf_ns is None
    assert turn.first_audio_perf_ns is None


@pytest.mark.parametrize("framework", SPEAKING)
def test_a_call_that_ends_during_the_reply_interrupts_nothing(framework: str) -> None:
    (turn,) = recorded_turns(f"{framework}/late-hang-up")
    assert turn.outcome == "ok"
    # OpenInference's spans do not say when the call ended: see its limits in the table.
    assert turn.cut_short is (framework in OPENINFERENCE)
    assert (turn.hangup_perf_ns is None) is (framework in OPENINFERENCE)
    assert turn.cohort == (None if framework in LIVEKIT else "blue")


@pytest.mark.parametrize("framework", ["openllmetry-openai-0.62.4", "genai-openai-v2-2.4b0"])
def test_requests_to_a_model_are_turns_without_speech(framework: str) -> None:
    single, agent, failing = recorded_turns(f"{framework}/requests")
    assert [turn.outcome for turn in (single, agent, failing)] == ["ok", "ok", "error"]
    assert (agent.call_id, agent.cohort) == ("call-1", "canary")
    assert (failing.failure_kind, failing.failure_code) == ("endpoint_error", "NotFoundError")
    assert single.model == agent.model == "scripted-llm"
    for turn in (single, agent, failing):
        assert turn.turn_kind is None
        assert "voice_to_voice" in turn.withheld_metrics
        assert len(turn.withheld_metrics) == len(turn.withheld_reasons)
        assert METRICS["voice_to_voice"].value(turn) is None
    if framework.startswith("openllmetry"):
        assert (single.llm_cached_tokens, agent.llm_cached_tokens) == (0, 32)
        assert {turn.cache_hit for turn in (single, agent)} == {None}
        assert single.llm_first_token_perf_ns is not None
        assert_within(single.llm_first_token_perf_ns - single.started_perf_ns, FIRST_TOKEN_MS, stages=2)


@pytest.mark.parametrize("name", recorded_files())
def test_stated_latencies_are_kept_by_their_own_names(name: str) -> None:
    for turn in recorded_turns(name):
        assert len(turn.service_reported) == len(turn.service_reported_ns)
        if turn.first_audio_perf_ns is not None and turn.speech_end_perf_ns is not None:
            assert METRICS["voice_to_voice"].value(turn) == turn.service_reported_ns[0]


@pytest.mark.parametrize("framework", SPEAKING)
@pytest.mark.parametrize("call", ["talk", "greeted", "late-hang-up"])
def test_answered_turn_without_stated_latency_stays_answered(framework: str, call: str) -> None:
    """A turn that vanished with the value of a slow stage would leave a comparison to the quick ones."""
    spans = recorded_spans(f"{framework}/{call}")
    answered = _answered(recorded_turns(f"{framework}/{call}"))
    assert answered
    words = ("latency", "ttfb", "ttft", "delay", "first_chunk")
    latencies = {key for span in spans for key in span.attributes if any(word in key for word in words)}
    assert len(latencies) >= 2
    for latency in sorted(latencies):
        assert _answered(turns_of([_without(span, latency) for span in spans])) == answered, latency


def _answered(turns: list[Turn]) -> list[tuple[str, int, str | None]]:
    return [(turn.span_id, turn.turn_index, turn.turn_kind) for turn in turns if turn.outcome == "ok"]


def _without(span: SpanRow, attribute: str) -> SpanRow:
    return replace(span, attributes={key: value for key, value in span.attributes.items() if key != attribute})


def assert_about(turn: Turn, metric: str, ms: int, stages: int = 1) -> None:
    value = METRICS[metric].value(turn)
    assert isinstance(value, int), metric
    assert_within(value, ms, stages)


def assert_within(ns: int, ms: int, stages: int) -> None:
    assert (ms - 5) * MS <= ns <= (ms + stages * LATER_MS) * MS
