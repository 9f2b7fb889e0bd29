"""Settings are checked as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loadtest.protocols.address import public_target
from loadtest.scenario.behavior import BargeIn, parse_patience, parse_point
from loadtest.scenario.file import parse_scenario
from loadtest.scenario.options import settings_from
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

GOOD = "ws://127.0.0.1:9/v1/realtime"


def test_good_settings_have_no_faults() -> None:
    assert SwarmSettings(host=GOOD, noise="babble", snr=10.0, patience=parse_patience(2)).faults() == []


def faults_of(**values: object) -> list[str]:
    """Every fault of flags by name: of single values first, then of the whole without these."""
    unreadable: list[str] = []
    settings = settings_from({"host": GOOD, **values}, unreadable)
    return unreadable + settings.faults()


def test_all_faults_are_reported_at_once_with_their_remedies() -> None:
    faults = faults_of(
        host="gopher://x",
        protocol="carrier-pigeon",
        noise="pinkk",
        snr=3.0,
        mask="carnival",
        onset="loud",
        turns=0,
        think=-1.0,
        patience=0.0,
    )
    assert len(faults) == 8
    named = ("ws://127.0.0.1", "openai-realtime", "babble", "fixed, random", "rms-10ms", "1 to 1000")
    for part in (*named, "--think -1", "--patience 0"):
        assert any(part in fault for fault in faults), part


@pytest.mark.parametrize("host", ["", "127.0.0.1:80", "ws://", "ws://h:99999/", "ftp://h/x"])
def test_invalid_address_is_refused(host: str) -> None:
    assert len(SwarmSettings(host=host).faults()) == 1


def test_a_token_comes_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEPROBE_TOKEN", "s3cret")
    settings = SwarmSettings(host=GOOD)
    assert settings.token == "s3cret"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://user:pass@host:8/v1?key=abc", "wss://host:8/v1"),
        ("ws://127.0.0.1:8765/v1/realtime", "ws://127.0.0.1:8765/v1/realtime"),
        ("wss://user:p@ss@host/x", "wss://host/x"),
        ("wss://host/v1?token=#part", "wss://host/v1"),
        ("wss://[::1]:80/v1", "wss://[::1]:80/v1"),
    ],
)
def test_the_target_is_shown_without_credentials_and_query(url: str, shown: str) -> None:
    assert public_target(url) == shown


def test_leader_of_swarm_needs_no_setting_of_callers() -> None:
    settings = SwarmSettings(host="wss://h/x", ca_file="no.pem", header=("X-Key=NOT_THERE",), rate=1.0)
    assert len(settings.faults()) == 3
    assert settings.faults(calls=False) == ["--rate requires --arrivals constant or poisson"]


def test_behavior_comes_from_flags_and_else_from_scenario() -> None:
    scenario = parse_scenario(
        """
        [callers]
        think = "constant:2s"
        patience = "lognormal:3s:0.4"
        silence = 0.1
        silence_for = "uniform:2s:4s"
        talk_over = 0.2
        conversations = true
        [[callers.barge_in]]
        share = 0.2
        after = "1.2s"
        [[callers.barge_in]]
        share = 0.1
        after = "random"
        """
    )
    asked = SwarmSettings(host=GOOD).with_scenario(scenario, ())
    assert asked.faults() == []
    behavior = asked.behavior
    assert (str(behavior.think), str(behavior.patience)) == ("constant:2s", "lognormal:3s:0.4")
    assert (behavior.silence, str(behavior.silence_for), behavior.talk_over) == (0.1, "uniform:2s:4s", 0.2)
    assert behavior.conversations
    assert behavior.barge_in == [
        BargeIn(share=0.2, after=parse_point("1.2s")),
        BargeIn(share=0.1, after=parse_point("random")),
    ]
    given = SwarmSettings(host=GOOD).replaced(barge_in=0.5, barge_in_after="40%", think="0.5")
    behavior = given.with_scenario(scenario, {"barge_in", "barge_in_after", "think"}).behavior
    assert behavior.barge_in == [BargeIn(share=0.5, after=parse_point("40%"))]
    assert str(behavior.think) == "uniform:250ms:750ms"


def test_every_fault_of_the_behavior_is_reported() -> None:
    faults = faults_of(
        think="often",
        patience="none",
        barge_in=1.5,
        barge_in_after="soon",
        talk_over=-0.1,
        silence=float("nan"),
        endpointing="1s",
        manual_turns=True,
    )
    for begins in (
        "--think 'often' is not a duration",
        "--patience 'none' is not supported",
        "--barge-in is 1.5; a number from 0 to 1",
        "--barge-in-after 'soon' is not a point of a reply",
        "--talk-over is -0.1; a number from 0 to 1",
        "--silence is nan; a number from 0 to 1",
        "--endpointing: not supported with --manual-turns",
    ):
        assert any(fault.startswith(begins) for fault in faults), (begins, faults)
    assert len(faults) == 7
    whole = faults_of(turns=1, barge_in=0.5, talk_over=0.1, manual_turns=True)
    assert [fault.split(":")[0] for fault in whole] == ["--barge-in", "--talk-over"]
    alone = SwarmSettings(host=GOOD).replaced(barge_in_after="1s", conversations=True, length="short").faults()
    assert [fault.split(":")[0] for fault in alone] == ["--barge-in-after", "--length"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arrivals": "sometimes"}, "known are closed, constant, poisson"),
        ({"arrivals": "poisson"}, "requires --rate"),
        ({"rate": 2.0}, "--rate requires --arrivals"),
        ({"arrivals": "constant", "rate": 0.0}, "more than 0"),
        ({"arrivals": "constant", "rate": 1e9}, "at most 10000"),
        ({"max_calls": 0}, "--max-calls is 0; a whole number from 1 to 100000 is expected"),
        ({"calls": 0}, "--calls is 0; a whole number, 1 or more is expected"),
    ],
)
def test_arrivals_that_make_no_sense_are_refused(changes: dict[str, object], sentence: str) -> None:
    assert any(sentence in fault for fault in faults_of(**changes))


@pytest.mark.parametrize("changes", [{"tuns": 3}, {"turns": 0}, {"mask": "carnival"}])
def test_settings_are_never_replaced_by_what_no_flag_may_say(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SwarmSettings(host=GOOD).replaced(**changes)


def test_open_arrivals_are_phases_too() -> None:
    closed, given = SwarmSettings(host=GOOD), SwarmSettings(host=GOOD, arrivals="constant", rate=2.5)
    assert (closed.phases, closed.has_open_arrivals, closed.arrivals_label) == ((), False, "closed")
    (phase,) = given.phases
    assert (phase.name, phase.level_from, given.has_open_arrivals) == ("steady", 2.5, True)
    assert given.arrivals_label == "constant"
    phased = given.with_scenario(parse_scenario('[[phases]]\nname="a"\nkind="hold"\nduration=5\nrate=1'), ())
    assert phased.arrivals_label == "poisson"
    assert phased.faults() == ["--arrivals and --rate: the scenario has phases that say it; leave them out"]


@given(
    st.sampled_from(["\r\n", "\n", "\r", "\t", "\0", "\x1b[2J", "\x7f", "\x9b", "\u2028", "\u202e", " "]),
    st.integers(0, len(GOOD)),
)
def test_control_character_in_address_is_refused_in_one_line(text: str, at: int) -> None:
    faults = SwarmSettings(host=GOOD[:at] + text + GOOD[at:]).faults(calls=False)
    assert len(faults) == 1
    assert faults[0].isprintable()


@pytest.mark.parametrize(
    ("host", "output"),
    [
        ("ws://h/ä", "contains non-ASCII characters in its path or query; percent-encode them"),
        ("ws://h/x?y=ö", "percent-encode them"),
        ("ws://h/x#part", "has a fragment"),
        ("ws://h/x#", "has a fragment"),
        ("ws://me@h/x", "has a user name without a password"),
        ("ws://h:0/", "has no valid port"),
        ("ws://h/x\r\ny", "contains a space, a line break or a control character"),
    ],
)
def test_an_address_that_the_handshake_cannot_carry_is_refused(host: str, output: str) -> None:
    (fault,) = SwarmSettings(host=host).faults()
    assert output in fault


@pytest.mark.parametrize(
    "host", ["ws://h/%0d%0a", "ws://[::1]:9/", "ws://h?x=1", "wss://bücher.example/x", "ws://u:p@h/"]
)
def test_an_address_that_can_be_carried_is_taken(host: str) -> None:
    assert SwarmSettings(host=host).faults() == []


@pytest.mark.parametrize(
    "name", ["sni", "model", "transcription_model", "cohort", "scenario_name", "region", "sidecar", "run_id"]
)
def test_text_that_travels_in_lines_holds_no_line_break(name: str) -> None:
    faults = faults_of(**{name: "a\r\nX: 1"})
    flag = "--" + name.replace("_", "-")
    assert f"{flag} holds a line break or another control character; leave it out" in faults
    assert all(fault.isprintable() for fault in faults)


def test_call_pause_is_a_flag_and_a_scenario_key() -> None:
    scenario = parse_scenario('[callers]\ncall_pause = "uniform:1s:3s"\n')
    asked = SwarmSettings(host=GOOD).with_scenario(scenario, ())
    assert asked.faults() == []
    assert str(asked.behavior.call_pause) == "uniform:1s:3s"
    assert str(SwarmSettings(host=GOOD).replaced(call_pause="2").behavior.call_pause) == "uniform:1s:3s"
    assert SwarmSettings(host=GOOD).behavior.call_pause is None
    assert SwarmSettings(host=GOOD).replaced(call_pause="0").faults() == []
    (fault,) = faults_of(call_pause="a while")
    assert fault.startswith("--call-pause")
    (fault,) = SwarmSettings(host=GOOD).replaced(call_pause="2", arrivals="poisson", rate=1.0).faults()
    assert fault.startswith("--call-pause: not supported")


@pytest.mark.parametrize("text", ["0s", "3601s", "2h"])
def test_waits_are_checked(text: str) -> None:
    for name in ("longest_reply", "reply_timeout", "reply_silence"):
        (fault,) = faults_of(**{name: text})
        flag = name.replace("_", "-")
        assert fault == f"--{flag} {text!r} is out of range: give more than 0 and at most 1h"
    assert SwarmSettings(host="ws://h:1", longest_reply=Duration.of_s(3600)).faults() == []
