"""Latencies of recorded conversations, made impossible: they are withheld with their cause, and all else stays.

Each value is changed in a recording, so that what is expected is the recording's own turn without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from telemetry.model.metrics import METRICS
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn

from .made_spans import NOW_UNIX_NS, SECOND_NS, pipecat_turn, span
from .recorded_spans import recorded_spans, recorded_turns
from .stored_turns import turns_of

LIVEKIT = ("livekit-agents-1.6.10", "livekit-agents-1.7.1", "livekit-agents-1.8.9")
Change = Callable[[SpanRow], SpanRow]


def changed(name: str, attribute: str, value: float, spans_named: str) -> list[Turn]:
    """The turns of a recording in which every span of a name that states an attribute states another value."""
    return turns_of(
        [
            replace(recorded_span, attributes={**recorded_span.attributes, attribute: value})
            if attribute in recorded_span.attributes and recorded_span.name == spans_named
            else recorded_span
            for recorded_span in recorded_spans(name)
        ]
    )


def causes(turn: Turn) -> dict[str, str]:
    return dict(zip(turn.contradicted_metrics, turn.contradicted_causes, strict=True))


def values(turn: Turn) -> dict[str, float | None]:
    return {name: metric.value(turn) for name, metric in METRICS.items()}


def assert_only(before: Sequence[Turn], after: Sequence[Turn], metric: str, cause: str) -> None:
    """Check that only this metric is withheld, from each turn that had it; outcomes are unchanged."""
    assert [turn.outcome for turn in after] == [turn.outcome for turn in before]
    affected = 0
    for was, turn in zip(before, after, strict=True):
        if METRICS[metric].value(was) is None:
            assert causes(turn) == {}
            continue
        affected += 1
        assert causes(turn).get(metric) == cause
        for name, value in values(turn).items():
            assert value in (None, values(was)[name]), name
            assert name not in causes(turn) or value is None
    assert affected >= 1


@pytest.mark.parametrize("version", LIVEKIT)
@pytest.mark.parametrize("spans_named", ["user_turn", "agent_turn"])
def test_livekits_end_of_turn_delay_of_203_s_in_a_turn_of_1_s(version: str, spans_named: str) -> None:
    name = f"{version}/talk"
    states = any(
        "lk.end_of_turn_delay" in recorded_span.attributes
        for recorded_span in recorded_spans(name)
        if recorded_span.name == spans_named
    )
    if not states:
        assert (version, spans_named) != (LIVEKIT[-1], "agent_turn")
        return
    after = changed(name, "lk.end_of_turn_delay", 203.0, spans_named)
    withheld = [turn for turn in after if causes(turn) == {"endpointing": "longer_than_span"}]
    assert len(withheld) >= len(after) - 1
    assert all(METRICS["endpointing"].value(turn) is None for turn in withheld)
    before = recorded_turns(name)
    assert [METRICS["voice_to_voice"].value(turn) for turn in after] == [
        METRICS["voice_to_voice"].value(turn) for turn in before
    ]


@pytest.mark.parametrize("seconds", [700.0, -700.0, 405.0])
def test_pipecats_latency_that_is_longer_than_its_turn(seconds: float) -> None:
    """The last one is in milliseconds."""
    name = "pipecat-1.14.0/talk"
    after = changed(name, "turn.user_bot_latency_seconds", seconds, "turn")
    assert_only(recorded_turns(name), after, "voice_to_voice", "longer_than_span")


def test_a_recognition_of_less_than_no_time() -> None:
    name = "pipecat-1.14.0/talk"
    after = changed(name, "metrics.ttfb", -0.4, "stt")
    assert_only(recorded_turns(name), after, "asr_final_latency", "before_request")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("pipecat-1.14.0/talk", "metrics.ttfb"),
        ("openinference-pipecat-2.0.9/late-hang-up", "service.ttfb_seconds"),
        ("livekit-agents-1.8.9/talk", "lk.response.ttft"),
    ],
)
@pytest.mark.parametrize(("seconds", "cause"), [(-0.4, "before_request"), (41.0, "longer_than_span")])
def test_first_token_before_request_or_after_span_is_withheld(
    name: str, attribute: str, seconds: float, cause: str
) -> None:
    spans_named = {"p": "llm", "o": "pipecat.llm", "l": "llm_node"}[name[0]]
    spans_named = "llm" if name.startswith("pipecat") else spans_named
    after = changed(name, attribute, seconds, spans_named)
    assert_only(recorded_turns(name), after, "llm_first_token_latency", cause)


@pytest.mark.parametrize(
    ("name", "spans_named"), [("pipecat-1.14.0/talk", "llm"), ("livekit-agents-1.8.9/talk", "llm_node")]
)
@pytest.mark.parametrize(("seconds", "cause"), [(-41, "before_turn"), (41, "after_turn")])
def test_a_stage_of_a_machine_with_another_clock(name: str, spans_named: str, seconds: int, cause: str) -> None:
    def skewed(row: SpanRow) -> SpanRow:
        if row.name != spans_named:
            return row
        return replace(
            row,
            start_unix_ns=row.start_unix_ns + seconds * SECOND_NS,
            end_unix_ns=row.end_unix_ns + seconds * SECOND_NS,
        )

    after = turns_of([skewed(recorded_span) for recorded_span in recorded_spans(name)])
    before = recorded_turns(name)
    for was, turn in zip(before, after, strict=True):
        assert (turn.outcome, METRICS["voice_to_voice"].value(turn)) == (
            was.outcome,
            METRICS["voice_to_voice"].value(was),
        )
        assert METRICS["llm_first_token_latency"].value(turn) is None
        if METRICS["llm_first_token_latency"].value(was) is not None:
            assert causes(turn)["llm_first_token_latency"] == cause


def test_a_recognizer_with_another_clock_moves_no_other_stage() -> None:
    def skewed(row: SpanRow) -> SpanRow:
        moved_ns = -41 * SECOND_NS if row.name == "stt" else 0
        return replace(row, start_unix_ns=row.start_unix_ns + moved_ns, end_unix_ns=row.end_unix_ns + moved_ns)

    name = "pipecat-1.14.0/talk"
    for was, turn in zip(recorded_turns(name), turns_of([*map(skewed, recorded_spans(name))]), strict=True):
        for metric in ("voice_to_voice", "asr_final_latency"):
            assert METRICS[metric].value(turn) == METRICS[metric].value(was)
        if METRICS["llm_first_token_latency"].value(was) is not None:
            assert METRICS["llm_first_token_latency"].value(turn) is None
            assert causes(turn)["llm_first_token_latency"] == "before_turn"


@pytest.mark.parametrize("factor", [1, 60])
def test_slowness_alone_is_kept(factor: int) -> None:
    """A slow service in a slow turn: everything takes sixty times as long."""
    latency_s = 0.7 * factor
    long_ns = factor * SECOND_NS
    turn = replace(
        pipecat_turn(2, **{"turn.user_bot_latency_seconds": latency_s}), start_unix_ns=NOW_UNIX_NS - 2 * long_ns
    )
    asr = span("stt", 3, 2, {"metrics.ttfb": 0.1 * factor}, scope_name="pipecat")
    asr = replace(asr, start_unix_ns=NOW_UNIX_NS - 2 * long_ns, end_unix_ns=NOW_UNIX_NS - long_ns)
    llm = span("llm", 4, 2, {"metrics.ttfb": 0.4 * factor}, scope_name="pipecat")
    llm = replace(llm, start_unix_ns=NOW_UNIX_NS - long_ns)
    tts = span("tts", 5, 2, {"metrics.ttfb": 0.1 * factor}, scope_name="pipecat")
    tts = replace(tts, start_unix_ns=NOW_UNIX_NS - long_ns // 2)
    (assembled,) = turns_of([asr, llm, tts, turn])
    assert assembled.contradicted_metrics == ()
    assert METRICS["voice_to_voice"].value(assembled) == round(latency_s * 1e9)
    assert METRICS["llm_first_token_latency"].value(assembled) == factor * SECOND_NS // 2


def test_a_first_token_before_the_end_of_speech_is_kept() -> None:
    """A service that starts speculatively."""
    turn = replace(pipecat_turn(2), start_unix_ns=NOW_UNIX_NS - 4 * SECOND_NS)
    asr = replace(span("stt", 3, 2, {"metrics.ttfb": 0.2}, scope_name="pipecat"), start_unix_ns=turn.start_unix_ns)
    llm = replace(
        span("llm", 4, 2, {"metrics.ttfb": 0.1}, scope_name="pipecat"), start_unix_ns=NOW_UNIX_NS - 2 * SECOND_NS
    )
    tts = span("tts", 5, 2, {"metrics.ttfb": 0.1}, scope_name="pipecat")
    (assembled,) = turns_of([asr, llm, tts, turn])
    assert METRICS["llm_first_token_latency"].value(assembled) == -1_700_000_000
    assert assembled.contradicted_metrics == ()


def test_turn_with_clock_set_back_keeps_what_its_spans_state() -> None:
    """Pipecat's turn of a duration below zero."""
    turn = pipecat_turn(2, **{"turn.duration_seconds": -1.0})
    turn = replace(turn, start_unix_ns=NOW_UNIX_NS, end_unix_ns=NOW_UNIX_NS - SECOND_NS)
    (assembled,) = turns_of([turn])
    assert (assembled.outcome, METRICS["voice_to_voice"].value(assembled)) == ("ok", SECOND_NS // 2)


def test_latency_claimed_by_service_is_kept_by_its_own_name() -> None:
    (assembled,) = turns_of([pipecat_turn(2, **{"turn.user_bot_latency_seconds": 700.0})])
    assert (assembled.service_reported, assembled.service_reported_ns) == (
        ("turn: turn.user_bot_latency_seconds",),
        (700 * SECOND_NS,),
    )
