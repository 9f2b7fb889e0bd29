"""A scenario file is read as a whole: one immutable value, or every fault at once."""

from pathlib import Path
from typing import Any

import pytest

from corpora.rendering.profiles.parsing import KEYS
from loadtest.errors import UsageError
from loadtest.scenario.behavior import parse_patience, parse_think
from loadtest.scenario.document import decode_scenario, decode_settings, encode_scenario, encode_settings
from loadtest.scenario.file import ProfileTable, load_scenario, parse_scenario
from loadtest.scenario.phases import phase_at
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration

EXAMPLES = Path(__file__).parents[4] / "examples" / "scenarios"
TARGET = "ws://127.0.0.1:9/v1/realtime"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_an_example_is_sound_and_reads_back_equal(file: Path) -> None:
    scenario = load_scenario(file)
    assert scenario.scenario_name == file.stem
    assert scenario.phases
    settings = SwarmSettings(host=TARGET).with_scenario(scenario, ())
    assert settings.faults() == []
    assert decode_scenario(encode_scenario(scenario)) == scenario
    assert decode_settings(encode_settings(settings)) == settings


def test_scenario_gives_settings_and_a_given_flag_wins() -> None:
    scenario = parse_scenario(
        """
        name = "evening"
        seed = 7
        [callers]
        turns = 6
        think = 0
        patience = "1m30s"
        manual_turns = true
        longest_reply = "45s"
        reply_silence = "700ms"
        [speech]
        noise = "babble"
        snr = 10
        length = "short"
        """
    )
    settings = SwarmSettings(host=TARGET, turns=2).with_scenario(scenario, {"turns"})
    assert (settings.scenario_name, settings.seed, settings.turns) == ("evening", 7, 2)
    assert (settings.think, settings.patience, settings.manual_turns) == (parse_think(0), parse_patience("1m30s"), True)
    assert settings.longest_reply == Duration.parse("45s")
    assert settings.reply_silence == Duration.parse("700ms")
    assert (settings.noise, settings.snr, settings.length, settings.corpus) == ("babble", 10.0, "short", None)


def test_a_file_without_a_name_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "monday.toml"
    file.write_text("seed = 3\n")
    assert load_scenario(file).scenario_name == "monday"


FAULTY = """
nmae = "x"
seed = -1
[callers]
turn = 3
think = "2 weeks"
manual_turns = "yes"
[speech]
length = "shrt"
snr = true
[[phases]]
name = "a"
kind = "rmap"
duration = "1m"
users = 5
[[phases]]
name = "a"
kind = "hold"
users = 0
steps = 3
[[phases]]
name = "c"
kind = "ramp"
duration = 10
users = 5
rate = 2
[[phases]]
name = "d"
kind = "ramp"
duration = 10
rate = { form = 1, to = 2 }
arrival = "poison"
"""


def test_every_fault_is_reported_at_once_with_place_and_remedy() -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario(FAULTY, file="scenario.toml")
    assert str(caught.value).splitlines() == [
        "scenario.toml: line 2, nmae: is not a known key; did you mean name?",
        "scenario.toml: line 3, seed: is -1; a whole number from 0 to 9223372036854775807 is expected",
        "scenario.toml: line 5, callers.turn: is not a known key; did you mean turns?",
        "scenario.toml: line 6, callers.think: '2 weeks' is not a duration: write it as 500ms, 2s, 1.5m or 1h, or as a "
        "distribution such as lognormal:3s:0.5",
        "scenario.toml: line 7, callers.manual_turns: is 'yes'; true or false is expected",
        "scenario.toml: line 9, speech.length: 'shrt' is unknown; did you mean short?",
        "scenario.toml: line 10, speech.snr: True is not a number; write one",
        "scenario.toml: line 13, phases[1].kind: 'rmap' is unknown; did you mean ramp?",
        'scenario.toml: line 16, phases[2].duration: is missing; a text in quotes such as "500ms" or "2m", or a number '
        "of seconds, is expected",
        "scenario.toml: line 17, phases[2].name: 'a' is given twice; give each phase a name of its own",
        "scenario.toml: line 19, phases[2].users: is 0; a whole number from 1 to 100000 is expected",
        "scenario.toml: line 20, phases[2].steps: belongs to the kind 'steps'; leave it out of a phase of kind 'hold'",
        "scenario.toml: line 25, phases[3].users: give either users or rate: not both",
        "scenario.toml: line 31, phases[4].rate: the phases before give users; a run has callers or arrivals, not both",
        "scenario.toml: line 31, phases[4].rate.form: is not a known key; did you mean from?",
        "scenario.toml: line 32, phases[4].arrival: 'poison' is unknown; did you mean poisson?",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x =", "is not valid TOML"),
        ("phases = 3", "[[phases]]"),
        ("callers = 3", "callers: is 3; a table with the keys turns, think, "),
        ("callers = []", "callers: is []; a table with the keys turns, think, "),
        ("phases = []", "under [[phases]]"),
        ("phases = [3]", "phases[1]: is 3; a table with the keys name, kind, "),
        ("seed = 0x" + "f" * 5000, "seed: is a number of more than 60 digits; a whole number"),
        ("speech.noise = 0x" + "f" * 5000, "speech.noise: "),
        ("speech.snr = 0x" + "f" * 5000, "speech.snr: "),
        ('"\\u001b[2J" = 1', "line 1, \\x1b[2J: is not a known key"),
        ("[callers]\nthink = 0x" + "f" * 5000, "callers.think: is a number of more than 60 digits"),
        ("[callers]\nthink = 2026-01-02", "callers.think: is 2026-01-02; a text in quotes"),
        ("[callers]\nturns = true", "callers.turns: is true; a whole number"),
        ("[callers]\nsilence = nan", "callers.silence: is nan; a number from 0 to 1"),
        (f'name = ["{"x" * 1_000_000}"]', "name: is ['xxx"),
        ('[[phases]]\nname="a"\nkind="hold"\nduration=5', "give either users or rate: callers at the same time"),
        ('[[phases]]\nname="a"\nkind="steps"\nduration=5\nsteps=2\nusers={to=5}', "phases[1].users.from: is missing"),
        ('[[phases]]\nname="a"\nkind="steps"\nduration=5\nusers={from=1,to=5}', "give the number of steps"),
        ('[[phases]]\nname="a"\nkind="ramp"\nduration=5\nusers=5', "users = { from = 1, to = 5 }"),
        ('[[phases]]\nname="a"\nkind="soak"\nduration=5\nusers={to=5}', "stays on one level"),
        (
            '[[phases]]\nname="a"\nkind="hold"\nduration=5\nusers=5\narrival="constant"',
            "belongs to a rate; give a rate",
        ),
        ('[[phases]]\nname="a"\nkind="hold"\nduration=5\nrate=0', "more than 0"),
        ('[[phases]]\nname="a"\nkind="hold"\nduration=0\nrate=1', "more than 0"),
        ('[[phases]]\nname="a"\nkind="hold"\nduration=nan\nrate=1', "not a duration"),
    ],
)
def test_invalid_scenario_is_reported(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario(text)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        load_scenario(tmp_path / "none.toml")


def test_phases_are_consecutive_and_ramp_begins_at_last_level() -> None:
    phases = parse_scenario(
        """
        phases = [
            { name = "base", kind = "hold", duration = "10s", users = 4 },
            { name = "up", kind = "ramp", duration = "20s", users = { to = 8 } },
            { name = "down", kind = "ramp", duration = "10s", users = { to = 0 } },
        ]
        """
    ).phases
    assert [(phase.begin_s, phase.end_s) for phase in phases] == [(0, 10), (10, 30), (30, 40)]
    assert [phase.level_at(phase.begin_s) for phase in phases] == [4, 4, 8]
    assert phases[1].level_at(20) == 6
    reached = [phase_at(phases, at) for at in (0, 9.99, 10, 39.9, 40)]
    assert [phase and phase.name for phase in reached] == ["base", "base", "up", "down", None]


def test_every_step_is_a_phase_of_its_own() -> None:
    phases = load_scenario(EXAMPLES / "steps.toml").phases
    assert [phase.name for phase in phases] == [f"level {n}/5" for n in range(1, 6)]
    assert [phase.level_from for phase in phases] == [10, 20, 30, 40, 50]
    assert {(phase.kind, phase.duration_s, phase.level_from == phase.level_to) for phase in phases} == {
        ("hold", 120, True)
    }


def test_a_rate_arrives_by_chance_unless_it_is_specified() -> None:
    text = '[[phases]]\nname="a"\nkind="hold"\nduration=5\nrate=2.5\n'
    (phase,) = parse_scenario(text).phases
    assert (phase.unit, phase.level_from, phase.arrival) == ("rate", 2.5, "poisson")
    (phase,) = parse_scenario(f'{text}arrival="constant"').phases
    assert phase.arrival == "constant"


def test_faults_of_the_callers_behavior_have_their_place() -> None:
    with pytest.raises(UsageError) as caught:
        parse_scenario(
            """
            [callers]
            patience = "lognormal:3s"
            talk_over = 2
            silence_for = "long"
            [[callers.barge_in]]
            share = 0.8
            aftr = "1s"
            [[callers.barge_in]]
            share = 0.7
            [[callers.barge_in]]
            after = "later"
            """
        )
    places = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert places == [
        "line 3, callers.patience",
        "line 4, callers.talk_over",
        "line 5, callers.silence_for",
        "line 6, callers.barge_in",
        "line 8, callers.barge_in[1].aftr",
        "line 11, callers.barge_in[3].share",
        "line 12, callers.barge_in[3].after",
    ]


SPEECH = """
[speech]
clips = 40
[speech.mix]
short = 60
medium = 30
long = 10
[speech.mix.domain]
home = 2
shopping = 1
[[speech.profiles]]
share = 60
channel = "telephone"
loss = "5%/3"
[[speech.profiles]]
share = 40
noise = "babble"
snr = 10
room = 0.4
"""


def test_speech_is_mixed_and_goes_over_several_lines() -> None:
    settings = SwarmSettings(host="ws://x").with_scenario(parse_scenario(SPEECH), ())
    assert settings.clips == 40
    assert settings.mix == "short=60 medium=30 long=10 domain.home=2 domain.shopping=1"
    assert [(profile.label, share) for profile, share in settings.profiles] == [
        ("telephone+loss-5%/3", 0.6),
        ("babble-10dB+room-0.4s", 0.4),
    ]
    assert settings.profile_label == "60 % telephone+loss-5%/3, 40 % babble-10dB+room-0.4s"
    assert not settings.faults()


def test_every_fault_of_the_speech_is_reported() -> None:
    faulty = """
    [speech]
    channel = "telefax"
    noise = "pink"
    [speech.mix]
    shrt = 1
    long = -1
    [[speech.profiles]]
    speed = 3
    chanel = "opus"
    """
    with pytest.raises(UsageError) as caught:
        parse_scenario(faulty, file="s.toml")
    output = str(caught.value).splitlines()
    for begins in (
        "s.toml: line 3, speech.channel: The channel 'telefax' is unknown",
        "s.toml: line 4, speech.noise: The noise pink requires an SNR",
        "s.toml: line 6, speech.mix.shrt: is not a known key; did you mean short?",
        "s.toml: line 7, speech.mix.long: is -1; a number from 0 to 1e+09 is expected",
        "s.toml: line 9, speech.profiles[1].speed: A speed of 3 cannot be rendered",
        "s.toml: line 10, speech.profiles[1].chanel: is not a known key; did you mean channel?",
    ):
        assert any(line.startswith(begins) for line in output), (begins, output)


def test_a_profile_in_a_file_has_the_keys_of_a_profile_in_words() -> None:
    assert set(ProfileTable.known_keys()) == {"share", *KEYS}


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ((), "white-3dB+telephone"),
        (("noise", "snr"), "pink-9dB+telephone"),
        (("speech_profiles",), "gsm"),
    ],
)
def test_a_profile_that_is_given_wins_over_the_file(given: tuple[str, ...], label: str) -> None:
    file = parse_scenario('[speech]\nnoise = "white"\nsnr = 3\nchannel = "telephone"')
    flags: dict[str, Any] = {"noise": "pink", "snr": 9.0, "speech_profiles": "channel=gsm"}
    settings = SwarmSettings(host="ws://x", **{name: flags[name] for name in given})
    assert settings.with_scenario(file, given).profile_label == label


def test_profile_flags_win_over_whole_profiles_of_file() -> None:
    file = parse_scenario('[[speech.profiles]]\nroom = "far-field"')
    settings = SwarmSettings(host="ws://x", channel="gsm").with_scenario(file, ("channel",))
    assert settings.profile_label == "gsm"
    both = SwarmSettings(host="ws://x", channel="gsm", speech_profiles="room=0.4s")
    assert any("--profile says all of a profile: leave out --channel" in fault for fault in both.faults())
