"""A request is checked as a whole before anything is started."""

import math
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.run import request as request_module
from loadtest.run.artifacts import keep_objectives
from loadtest.run.json_file import write_json
from loadtest.run.request import RunRequest, check
from loadtest.scenario.options import load_from
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.objectives.slo import load_objectives, objectives_text


def _request(tmp_path: Path, **changes: object) -> RunRequest:
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    load = {name: changes.pop(name) for name in tuple(changes) if name in RunLoad.model_fields}
    values: dict[str, object] = {
        "settings": settings,
        "load": RunLoad.model_validate({"users": 2, "run_time": 5.0, **load}),
        "slo": None,
        "out": tmp_path / "out",
        "json_file": None,
    }
    return RunRequest(**{**values, **changes})  # type: ignore[arg-type]


def test_a_good_request_brings_its_corpus_and_objectives(tmp_path: Path) -> None:
    checked = check(_request(tmp_path))
    assert checked.corpus.name == "voiceprobe-en"
    assert checked.utterances == len(checked.corpus.utterances)
    assert checked.objectives
    assert not (tmp_path / "out").exists(), "checking writes nothing"


def test_every_fault_of_a_request_is_reported_at_once(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: SLO\n")
    settings = SwarmSettings(host="nowhere", corpus="no-such-corpus", noise="howl", snr=1.0)
    request = _request(
        tmp_path, settings=settings, slo=slo, json_file=tmp_path, out=slo / "deeper", unreadable=("--users 0",)
    )
    with pytest.raises(UsageError) as caught:
        check(request)
    output = str(caught.value)
    for part in (
        "nowhere",
        "no-such-corpus",
        "howl",
        "--users 0",
        "slo.yaml",
        "is a folder",
        "is not a folder",
    ):
        assert part in output, part


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "summary.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert file.read_text() == '{\n  "a": 1\n}\n'
    assert [entry.name for entry in file.parent.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("flags", "output"),
    [
        ({"processes": "0"}, "--processes '0' is not a number of processes: give 1 to 256, or auto"),
        ({"processes": "257"}, "--processes '257' is not a number of processes: give 1 to 256, or auto"),
        ({"processes": "many"}, "--processes 'many' is not a number of processes: give 1 to 256, or auto"),
        ({"users": 0}, "--users is 0; a whole number from 1 to 100000 is expected"),
        ({"spawn_rate": 0.0}, "--spawn-rate is 0.0; a number, more than 0"),
        ({"spawn_rate": math.nan}, "--spawn-rate is nan; a number, more than 0"),
        ({"run_time": "0s"}, "--run-time '0s' is out of range: give more than 0"),
        ({"stop_timeout": "61m"}, "--stop-timeout '61m' is out of range: give 0 or more and at most 1h"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(flags: dict[str, object], output: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_from(flags)
    assert str(refused.value).startswith(output)
    assert load_from({"stop_timeout": "0", "processes": "auto"}).stop_timeout == Duration()


def test_more_processes_than_callers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--processes 3 is too many for 2 callers"):
        check(_request(tmp_path, processes=3))
    assert check(_request(tmp_path, processes=2)).request.processes == 2


def test_more_processes_are_refused_without_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.fork")
    with pytest.raises(UsageError, match="start locust --master and --worker yourself"):
        check(_request(tmp_path, processes=2))
    assert check(_request(tmp_path)).request.processes == 1


def test_automatic_processes_follow_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(users: int) -> int:
        return users

    monkeypatch.setattr("loadtest.run.calibrations.wanted_processes", wanted)
    assert check(_request(tmp_path, users=3, processes="auto")).request.processes == 3
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en", arrivals="constant", rate=2.0)
    with pytest.raises(UsageError, match="--processes auto: not supported with --arrivals constant; give a number"):
        check(_request(tmp_path, settings=settings, users=1, processes="auto"))


SCENARIO = """
name = "evening"
[callers]
turns = 7
[[phases]]
name = "few"
kind = "hold"
duration = "90s"
users = 3
[[phases]]
name = "up"
kind = "ramp"
duration = "30s"
users = { to = 9 }
"""


def test_a_scenario_says_what_no_flag_says(tmp_path: Path) -> None:
    file = tmp_path / "evening.toml"
    file.write_text(SCENARIO)
    request = check(_request(tmp_path, scenario=file, users=1, run_time=60.0)).request
    assert (request.users, request.run_time_s) == (9, 120.0)
    assert (request.settings.scenario_name, request.settings.turns) == ("evening", 7)
    request = check(_request(tmp_path, scenario=file, given=frozenset({"turns"}))).request
    assert request.settings.turns == SwarmSettings().turns


def test_load_flags_with_phases_are_refused_with_other_faults(tmp_path: Path) -> None:
    file = tmp_path / "evening.toml"
    file.write_text(SCENARIO)
    with pytest.raises(UsageError) as caught:
        check(_request(tmp_path, scenario=file, given=frozenset({"users", "run_time"}), json_file=tmp_path))
    assert str(caught.value).splitlines()[:2] == [
        f"--users: the phases of {file} say it; leave it out",
        f"--run-time: the phases of {file} say it; leave it out",
    ]
    assert "is a folder" in str(caught.value)


def test_open_arrivals_need_no_users_and_say_so(tmp_path: Path) -> None:
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en", arrivals="constant", rate=2.0)
    request = check(_request(tmp_path, settings=settings, users=1, processes=3)).request
    assert (request.users, request.run_time_s) == (3, 5.0)
    with pytest.raises(UsageError, match="--users: not supported with --arrivals constant"):
        check(_request(tmp_path, settings=settings, given=frozenset({"users", "run_time"})))


def test_run_without_end_gets_enough_turns_for_its_objectives(tmp_path: Path) -> None:
    checked = check(_request(tmp_path, run_time=None)).with_an_end()
    assert (checked.expected.turns or 0) >= 100
    assert checked.expectation == f"about {checked.expected.turns} turns expected"
    assert checked.request.run_time_s == 900


def test_a_run_that_says_its_end_keeps_it(tmp_path: Path) -> None:
    timed = check(_request(tmp_path))
    assert timed.with_an_end() is timed
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en", calls=3)
    counted = check(_request(tmp_path, run_time=None, settings=settings))
    assert counted.with_an_end() is counted
    open_ = settings.replaced(calls=None, arrivals="constant", rate=2.0)
    assert check(_request(tmp_path, run_time=None, settings=open_)).with_an_end().request.run_time_s == 60


def test_callers_who_need_too_many_open_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "most_files", lambda: 100)
    with pytest.raises(UsageError) as refused:
        check(_request(tmp_path, users=90))
    assert str(refused.value).startswith(
        "90 calls at the same time need about 126 open files, and a process may open 100"
    )
    assert "--processes 2" in str(refused.value)
    check(_request(tmp_path, users=90, processes=2))
    check(_request(tmp_path, users=40))


def test_default_objectives_are_those_observable_on_the_wire(tmp_path: Path) -> None:
    settings = SwarmSettings(host="ws://127.0.0.1:9/media", corpus="voiceprobe-en", protocol="twilio")
    checked = check(_request(tmp_path, settings=settings))
    names = [objective.name for objective in checked.objectives]
    assert names == ["voice-to-voice", "continuous-audio", "connect", "good-turns"]
    assert (checked.left_out or "").startswith(
        "not observable on twilio: asr-final, llm-first-token, tts-first-chunk ("
    )
    kept = keep_objectives(tmp_path, checked.objectives_text)
    assert load_objectives(kept) == checked.objectives, "what is judged later is judged by the same"


def test_the_objectives_of_a_file_stay_on_every_wire(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text(objectives_text(None))
    settings = SwarmSettings(host="ws://127.0.0.1:9/media", corpus="voiceprobe-en", protocol="twilio")
    checked = check(_request(tmp_path, settings=settings, slo=slo))
    assert [objective.name for objective in checked.objectives] == [
        objective.name for objective in load_objectives(slo)
    ]
    assert checked.left_out is None
    assert checked.objectives_text == slo.read_text()
