"""What every registered protocol declares of itself is true: a stage it cannot show never comes, any other does."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, get_args

import pytest

from loadtest.protocols import registry
from loadtest.protocols.base import EventKind, TransportKind, TurnControl
from loadtest.protocols.built_in import METRIC_OF
from telemetry.model.metrics import DEFINITIONS
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line, kinds
from tests.unit.loadtest.protocols.contract.wire_script import Stage

every_wire = pytest.mark.parametrize("name", sorted(SCRIPTS))

# A stage of a turn, the event that shows it, and the metrics that cannot be without it.
STAGES: Final[Mapping[Stage, tuple[EventKind, frozenset[str]]]] = {
    "partial": (EventKind.ASR_PARTIAL, frozenset({"asr_partial_latency"})),
    "speech_stopped": (EventKind.SPEECH_STOPPED, frozenset({"endpointing"})),
    "final": (EventKind.ASR_FINAL, frozenset({"asr_final_latency", "llm_ttft", "wer"})),
    "text": (
        EventKind.LLM_TEXT,
        frozenset(
            {"llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency", "itl", "time_to_first_sentence"}
            | {"tokens_per_s", "tokens_per_s_wall", "tokens_per_chunk"}
        ),
    ),
    "audio": (
        EventKind.AUDIO,
        frozenset(
            {"voice_to_voice", "tts_first_chunk_latency", "leading_silence", "barge_in_stop", "talk_over"}
            | {"underrun_worst", "underrun_total", "underrun_count", "audio_rtfx"}
        ),
    ),
}
# Where packets with silence come all the time, the silence at the beginning of a reply is nobody's to see.
NEVER_OVER_RTP: Final = frozenset({"leading_silence"})


def turn(name: str) -> tuple[Line, set[EventKind]]:
    line = Line(name)
    line.open()
    return line, set(kinds(line.turn()))


@every_wire
def test_what_is_declared_not_observable_exists_and_has_a_reason(name: str) -> None:
    for metric, reason in Line(name).caller.capabilities.not_observable.items():
        assert metric in DEFINITIONS
        assert reason.strip()
        assert "\n" not in reason


@pytest.mark.parametrize("stage", STAGES)
@every_wire
def test_a_stage_comes_exactly_if_its_metrics_are_observable(name: str, stage: Stage) -> None:
    line, came = turn(name)
    kind, metrics = STAGES[stage]
    missing = metrics & set(line.caller.capabilities.not_observable)
    if line.caller.capabilities.transport in ("webrtc", "livekit-room"):
        metrics -= NEVER_OVER_RTP
        assert set(line.caller.capabilities.not_observable) >= NEVER_OVER_RTP
        missing -= NEVER_OVER_RTP
    if kind in came:
        # A metric may have another reason to be missing; that of the stage alone has none.
        assert not _alone(stage) & metrics & missing, f"{kind} comes, yet {sorted(missing)} count as not observable"
    else:
        assert metrics == missing, f"{kind} never comes, yet {sorted(metrics - missing)} count as observable"


def _alone(stage: Stage) -> frozenset[str]:
    """The metrics that need this stage and no other."""
    others = frozenset[str]().union(*(metrics for each, (_, metrics) in STAGES.items() if each != stage))
    needs_more = frozenset({"tokens_per_s", "tokens_per_s_wall", "tokens_per_chunk", "barge_in_stop", "wer"})
    return STAGES[stage][1] - others - needs_more


@every_wire
def test_the_end_of_a_reply_is_what_is_declared(name: str) -> None:
    line, came = turn(name)
    assert (EventKind.RESPONSE_DONE in came) == (line.caller.capabilities.reply_end == "event")


@every_wire
def test_the_kind_of_transport_and_of_frames(name: str) -> None:
    capabilities = Line(name).caller.capabilities
    assert capabilities.transport in get_args(TransportKind)
    assert capabilities.frame_ms > 0
    assert capabilities.input_rate_hz * capabilities.frame_ms % 1000 == 0, "a frame is a whole number of samples"


@every_wire
def test_every_declared_turn_control_can_be_had(name: str) -> None:
    script = SCRIPTS[name]()
    declared = registry.make_caller(name, script.options).capabilities.turn_controls
    assert declared
    assert declared <= set(get_args(TurnControl))
    for control in declared:
        assert registry.make_caller(name, replace(script.options, turn_control=control)).capabilities.frame_ms
    assert script.options.turn_control in declared


@every_wire
def test_the_description_says_what_the_caller_declares(name: str) -> None:
    description, capabilities = registry.describe(name), Line(name).caller.capabilities
    assert description.name == name
    assert description.transport == capabilities.transport
    observable = [stage for stage, metric in METRIC_OF.items() if metric not in capabilities.not_observable]
    assert list(description.shows) == observable
