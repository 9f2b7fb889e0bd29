"""What a benchmark can be asked for, and how it refuses what it cannot."""

from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from tests.benchmarks.bench.cases import PARTS
from tests.benchmarks.bench.options import Options, checked

PLAIN: dict[str, Any] = {
    "only": ",".join(PARTS),
    "callers": None,
    "modes": "one-way,duplex",
    "wires": "ws,wss",
    "rounds": None,
    "window": None,
    "replies": "plain",
    "short": False,
    "json_file": None,
    "markdown": False,
}


def asked(**changes: Any) -> Options:
    return checked(**{**PLAIN, **changes})


def test_the_sizes_of_the_targets_are_measured_by_default_and_tls_at_the_smaller_ones() -> None:
    cases = asked().cases()
    assert {case.callers for case in cases if case.wire == "ws"} == {100, 500, 1000, 2000}
    assert {case.callers for case in cases if case.wire == "wss"} == {100, 500}
    assert {case.mode for case in cases} == {"one-way", "duplex"}


def test_an_asked_size_is_measured_over_tls_however_large() -> None:
    assert [case.callers for case in asked(callers="900", wires="wss", modes="duplex").cases()] == [900]


def test_short_is_one_round_of_one_small_size() -> None:
    options = asked(short=True)
    assert (options.callers, options.rounds, options.wires) == ((100,), 1, ("ws",))
    assert options.conversations == (50,)
    assert options.conversations_window_s < asked().conversations_window_s


def test_conversations_have_the_loads_of_their_targets_unless_others_are_asked_for() -> None:
    assert asked().conversations == (200, 400, 600, 800, 1000)
    assert asked(callers="300,50").conversations == (300, 50)
    assert asked(window="4s").conversations_window_s == asked(window="4s").window_s == 4


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError) as raised:
        asked(
            only="x",
            callers="0",
            modes="",
            wires="tcp",
            rounds=0,
            window="0",
            replies="rude",
            json_file=file / "no" / "f",
        )
    output = str(raised.value).splitlines()
    assert [line.split()[0] for line in output] == [
        *("--callers", "--rounds", "--window", "--json", "--only", "--modes", "--wires", "--replies")
    ]


@pytest.mark.parametrize(("text", "seconds"), [("200ms", 0.2), ("1.5", 1.5), ("10m", 600.0)])
def test_the_window_is_a_duration(text: str, seconds: float) -> None:
    assert asked(window=text).window_s == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("199ms", "--window 199ms: give a duration from 200ms to 10m"),
        ("601s", "--window 601s: give a duration from 200ms to 10m"),
        ("long", "--window 'long' is not a duration: write it as 500ms, 2s, 1.5m or 1h"),
    ],
)
def test_a_window_that_cannot_be_measured(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        asked(window=text)
    assert str(raised.value) == sentence
