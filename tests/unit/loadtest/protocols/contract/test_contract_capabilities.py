"""Capabilities, built-in objectives and neutral options of every registered protocol are true of its wire."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

import pytest

from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, EventKind, TransportKind, TurnControl
from loadtest.protocols.built_in import METRIC_OF
from loadtest.protocols.registry import make_caller
from telemetry.model.metrics import DEFINITIONS, is_withheld
from telemetry.objectives.observable import built_in_objectives, observed
from telemetry.objectives.openslo import parse_objectives
from telemetry.objectives.slo import default_objectives
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line, kinds
from tests.unit.loadtest.protocols.contract.scripted_call import ScriptedCall
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
def test_capabilities_name_metrics_reasons_and_whole_frames(name: str) -> None:
    capabilities = Line(name).caller.capabilities
    assert capabilities.transport in get_args(TransportKind)
    assert capabilities.frame_ms > 0
    assert capabilities.input_rate_hz * capabilities.frame_ms % 1000 == 0, "a frame is a whole number of samples"
    for metric, reason in capabilities.not_observable.items():
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
    others = frozenset[str]().union(*(metrics for name, (_, metrics) in STAGES.items() if name != stage))
    needs_more = frozenset({"tokens_per_s", "tokens_per_s_wall", "tokens_per_chunk", "barge_in_stop", "wer"})
    return STAGES[stage][1] - others - needs_more


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


# By hand, of wires whose callers hear least.
EXPECTED = {
    "twilio": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "vonage": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "tts": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "llm": {"llm-first-token", "connect", "good-turns"},
    "asr": {"asr-final", "connect", "good-turns"},
    "vllm-realtime": {"asr-final", "connect", "good-turns"},
}


@every_wire
def test_the_set_follows_what_the_wire_cannot_show(name: str) -> None:
    not_observable = Line(name).caller.capabilities.not_observable
    chosen = built_in_objectives(not_observable)
    assert parse_objectives(chosen.text, "objectives.yaml") == chosen.objectives, "as they are kept in a file"
    built_in = default_objectives()
    assert [objective.name for objective in chosen.objectives] == [
        o.name for o in built_in if o.metric not in not_observable
    ]
    left_out = {objective.name: reason for objective, reason in chosen.left_out}
    assert left_out == {o.name: not_observable[o.metric] for o in built_in if o.metric in not_observable}
    assert {objective.name for objective in chosen.objectives} == EXPECTED.get(
        name, {o.name for o in built_in} - set(left_out)
    )
    assert {"good-turns"} < {objective.name for objective in chosen.objectives}, "something of every wire is judged"


@every_wire
def test_turns_withhold_exactly_the_metrics_that_were_left_out(name: str) -> None:
    call = ScriptedCall(name)
    call.ask()
    call.answer()
    call.after(3_000)
    turn = call.turns[0]
    not_observable = call.line.caller.capabilities.not_observable
    withheld = {o.name for o in default_objectives() if o.metric is not None and is_withheld(turn, o.metric)}
    assert withheld == {objective.name for objective, _ in built_in_objectives(not_observable).left_out}


def test_one_line_names_what_was_left_out_and_why() -> None:
    not_observable = Line("twilio").caller.capabilities.not_observable
    sentence = built_in_objectives(not_observable).sentence("twilio") or ""
    assert sentence.startswith("not observable on twilio: asr-final, llm-first-token, tts-first-chunk (")
    assert "\n" not in sentence
    assert built_in_objectives({}).sentence("openai-realtime") is None


def test_built_in_objectives_follow_wire_where_none_were_kept() -> None:
    built_in = default_objectives()
    of_a_file = parse_objectives(built_in_objectives({}).text, "mine.yaml")
    assert of_a_file == built_in

    def withholds(names: set[str]) -> set[str]:
        return {objective.name for objective in observed(built_in, lambda objective: objective.name in names)}

    assert withholds({"asr-final", "tts-first-chunk"}) == {o.name for o in built_in} - {"asr-final", "tts-first-chunk"}
    assert observed(of_a_file, lambda _: True) == tuple(of_a_file), "a user's objective stays, undecided"


# Values that occur in no message by themselves.
OPTIONS: dict[str, Any] = {
    "model": "marked-model",
    "transcription_model": "marked-recognizer",
    "silence_duration_ms": 4711,
}


def sent_with(name: str, **options: Any) -> str:
    """Everything that a caller sends in a call of one turn, from the address on."""
    script = SCRIPTS[name]()
    script.options = replace(script.options, **options)  # type: ignore[misc]
    line = Line(name, script)
    line.open()
    line.turn()
    return repr((line.upgrade, line.sent))


def refusal_of(name: str, option: str) -> str | None:
    """Why a caller with the option is refused; None if it is not."""
    options = replace(SCRIPTS[name]().options, **{option: OPTIONS[option]})
    try:
        make_caller(name, options)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_an_option_reaches_the_wire_or_is_refused(name: str, option: str) -> None:
    refusal = refusal_of(name, option)
    if refusal is None:
        value = str(OPTIONS[option])
        assert value in sent_with(name, **{option: OPTIONS[option]})
        assert value not in sent_with(name)
    else:
        assert name in refusal
        assert "leave" in refusal or "set eot_threshold" in refusal
        assert option in refusal.replace(" ", "_") or option == "silence_duration_ms"


@pytest.mark.parametrize(("name", "setting"), [("asr", "asr_model"), ("llm", "llm_model"), ("tts", "tts_model")])
def test_the_model_of_a_wire_of_one_stage_is_that_of_its_stage(name: str, setting: str) -> None:
    assert "marked-model" in sent_with(name, model="marked-model")
    assert "marked-model" in sent_with(name, settings={setting: "marked-model"})
    assert "marked-model" in sent_with(name, model="marked-model", settings={setting: "marked-model"})
    with pytest.raises(UsageError, match=f"{name}: 'model' and '{setting}' exclude each other"):
        sent_with(name, model="marked-model", settings={setting: "another"})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("asr", {"model": "a", "transcription_model": "b"}),
        ("vllm-realtime", {"model": "a", "transcription_model": "b"}),
        ("http-cascade", {"transcription_model": "a", "settings": {"asr_model": "b"}}),
        ("wyoming", {"transcription_model": "a", "settings": {"asr_model": "b"}}),
    ],
)
def test_two_different_values_of_one_thing_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="exclude each other; leave out all but one of them"):
        sent_with(name, **options)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("asr", {"tts_model": "a"}),
        ("asr", {"llm_max_tokens": 5}),
        ("llm", {"asr_language": "en"}),
        ("tts", {"history": False}),
        ("wyoming", {"stages": ["tts"], "asr_model": "a"}),
        ("wyoming", {"stages": ["asr"], "speaker": "a"}),
    ],
)
def test_setting_of_stage_absent_from_wire_is_refused(name: str, setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="leave it out"):
        sent_with(name, settings=setting)


def test_a_spec_without_a_place_for_the_model_refuses_one() -> None:
    done = {"when": {"$.type": "done"}, "is": "reply_done"}
    spec = {"name": "small", "turn": {"control": "manual"}, "events": [done]}
    options = CallerOptions(model="marked-model", settings={"spec": spec})
    with pytest.raises(UsageError, match=r"'model' has no effect on this wire: the spec has no place \{model\}"):
        make_caller("declared", options)
