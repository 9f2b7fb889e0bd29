"""A request is checked as a whole before anything is started."""

from pathlib import Path

import pytest

from loadtest.cli.request import RunRequest, check, parse_duration_s
from loadtest.cli.run import write_json
from loadtest.errors import UsageError
from loadtest.swarm.settings import SwarmSettings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("1h30m", 5400), ("500ms", 0.5), ("1.5m", 90), (" 2M ", 120), ("1m30s", 90)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "2 m x", "-3s", "0", "1..5s", "3d", "m2", "nan", "inf", "."])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as 60s|more than 0"):
        parse_duration_s(text)


def _request(tmp_path: Path, **changes: object) -> RunRequest:
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en")
    values: dict[str, object] = {
        "settings": settings,
        "users": 2,
        "spawn_rate": None,
        "run_time_s": 5.0,
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


def test_every_fault_of_a_request_is_said_at_once(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("kind: SLO\n")
    settings = SwarmSettings(host="nowhere", corpus="no-such-corpus", noise="hum", snr=1.0)
    request = _request(
        tmp_path, settings=settings, users=0, spawn_rate=0.0, slo=slo, json_file=tmp_path, out=slo / "deeper"
    )
    with pytest.raises(UsageError) as caught:
        check(request)
    said = str(caught.value)
    for part in (
        "nowhere",
        "no-such-corpus",
        "hum",
        "--users 0",
        "--spawn-rate 0",
        "slo.yaml",
        "is a folder",
        "is no folder",
    ):
        assert part in said, part


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "summary.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert file.read_text() == '{\n  "a": 1\n}\n'
    assert [entry.name for entry in file.parent.iterdir()] == ["summary.json"]
