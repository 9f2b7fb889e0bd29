"""The built-in objectives of every registered protocol are those that its wire can show."""

import pytest

from loadtest.protocols import registry
from telemetry.model.metrics import is_withheld
from telemetry.objectives.observable import built_in_objectives, observed
from telemetry.objectives.openslo import parse_objectives
from telemetry.objectives.slo import default_objectives
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, Line
from tests.unit.loadtest.protocols.contract.scripted_call import ScriptedCall

every_wire = pytest.mark.parametrize("name", sorted(SCRIPTS))
# By hand, of wires whose callers hear least.
EXPECTED = {
    "twilio": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "vonage": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "tts": {"voice-to-voice", "continuous-audio", "connect", "good-turns"},
    "llm": {"llm-first-token", "connect", "good-turns"},
    "asr": {"asr-final", "connect", "good-turns"},
    "vllm-realtime": {"asr-final", "connect", "good-turns"},
}


def test_every_registered_protocol_is_asked() -> None:
    assert set(SCRIPTS) == set(registry.names())


@every_wire
def test_the_set_follows_what_the_wire_cannot_show(name: str) -> None:
    not_observable = Line(name).caller.capabilities.not_observable
    chosen = built_in_objectives(not_observable)
    built_in = default_objectives()
    assert [each.name for each in chosen.objectives] == [o.name for o in built_in if o.metric not in not_observable]
    left_out = {objective.name: reason for objective, reason in chosen.left_out}
    assert left_out == {o.name: not_observable[o.metric] for o in built_in if o.metric in not_observable}
    assert {each.name for each in chosen.objectives} == EXPECTED.get(name, {o.name for o in built_in} - set(left_out))
    assert {"good-turns"} < {each.name for each in chosen.objectives}, "something of every wire is judged"


@every_wire
def test_the_turns_of_a_call_withhold_what_was_left_out_and_nothing_else(name: str) -> None:
    call = ScriptedCall(name)
    call.ask()
    call.answer()
    call.after(3_000)
    turn = call.turns[0]
    not_observable = call.line.caller.capabilities.not_observable
    withheld = {o.name for o in default_objectives() if o.metric is not None and is_withheld(turn, o.metric)}
    assert withheld == {objective.name for objective, _ in built_in_objectives(not_observable).left_out}


@every_wire
def test_the_kept_file_has_the_chosen_objectives_as_they_are_written(name: str) -> None:
    chosen = built_in_objectives(Line(name).caller.capabilities.not_observable)
    assert parse_objectives(chosen.text, "objectives.yaml") == chosen.objectives


def test_one_line_names_what_was_left_out_and_why() -> None:
    not_observable = Line("twilio").caller.capabilities.not_observable
    sentence = built_in_objectives(not_observable).sentence("twilio") or ""
    assert sentence.startswith("not observable on twilio: asr-final, llm-first-token, tts-first-chunk (")
    assert "\n" not in sentence
    assert built_in_objectives({}).sentence("openai-realtime") is None


def test_of_runs_whose_choice_was_not_kept_the_built_in_set_alone_follows_the_wire() -> None:
    built_in = default_objectives()
    of_a_file = parse_objectives(built_in_objectives({}).text, "mine.yaml")
    assert of_a_file == built_in

    def withholds(names: set[str]) -> set[str]:
        return {each.name for each in observed(built_in, lambda objective: objective.name in names)}

    assert withholds({"asr-final", "tts-first-chunk"}) == {o.name for o in built_in} - {"asr-final", "tts-first-chunk"}
    assert observed(of_a_file, lambda _: True) == tuple(of_a_file), "a user's objective stays, undecided"
