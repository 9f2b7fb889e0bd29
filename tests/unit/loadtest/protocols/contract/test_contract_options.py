"""Every neutral option reaches the wire of every protocol, or is refused: none is accepted and ignored."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line

# Values that occur in no message by themselves.
OPTIONS: dict[str, Any] = {
    "model": "marked-model",
    "transcription_model": "marked-recognizer",
    "voice": "marked-voice",
    "instructions": "Marked instructions.",
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
        ("http-cascade", {"voice": "a", "settings": {"tts_voice": "b"}}),
        ("wyoming", {"transcription_model": "a", "settings": {"asr_model": "b"}}),
        ("wyoming", {"voice": "a", "settings": {"voice": "b"}}),
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
def test_the_setting_of_a_stage_that_a_wire_does_not_have_is_refused(name: str, setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="leave it out"):
        sent_with(name, settings=setting)


def test_a_spec_without_a_place_for_the_model_refuses_one() -> None:
    done = {"when": {"$.type": "done"}, "is": "reply_done"}
    spec = {"name": "small", "turn": {"control": "manual"}, "events": [done]}
    options = CallerOptions(model="marked-model", settings={"spec": spec})
    with pytest.raises(UsageError, match=r"'model' has no effect on this wire: the spec has no place \{model\}"):
        make_caller("declared", options)
