"""What a paired comparison is asked: names of targets and what decides, with all faults at once."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.pairing.job import (
    PairedRun,
    PairOfTurns,
    PairRequest,
    Variant,
    check_decision,
    named_variants,
    work_of,
)
from loadtest.pairing.view import paired_object


def test_targets_have_the_names_that_they_are_given_or_letters() -> None:
    assert named_variants(["ws://h/a?x=1", "new=ws://h/b"]) == (
        Variant("a", "ws://h/a?x=1"),
        Variant("new", "ws://h/b"),
    )


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        (["ws://h/a"], "two targets are needed"),
        (["x=ws://h/a", "x=ws://h/b"], "the name 'x' is given twice"),
        (["here", "ws://h/b"], "the target 'here' is not an address"),
        (["=ws://h/a", "ws://h/b"], "is not an address"),
    ],
)
def test_targets_that_cannot_be_used_are_named(targets: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        named_variants(targets)


def test_what_decides_is_checked() -> None:
    assert check_decision("voice_to_voice", 0.95, 50, 100) == []
    assert check_decision("wer", 0.9, 0, 5)[0].startswith("--metric 'wer' is not a duration of a turn")
    assert len(check_decision("wer", 0.9, 0, 5)) == 3
    assert check_decision("voice_to_voice", 0.99, 50, 100) == ["--pairs 100 is too few: p99 needs 500"]


def test_all_faults_of_a_command_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app(["pair", "ws://h/a", "--smallest", "0", "--snr", "loud"])) == ExitCode.USAGE
    error = capsys.readouterr().err
    for part in ("--smallest 0 is too small", "two targets are needed", "--snr 'loud'"):
        assert part in error, json.dumps(error)


def turn(**known: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("wer_errors", "wer_words", "fallback", "cache_hit", "cache_tier", "route", "answer_words", "answer_whole")
    )
    return {"outcome": "ok", "values": {}, "work": {}, **nothing, **known}


def compared(*turns: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """What is said of both variants of a comparison of these turns."""
    variants = (Variant("a", "ws://h/a"), Variant("b", "ws://h/b"))
    request = PairRequest(cast("Any", None), variants, Path("store"), "voice_to_voice", 0.5, 20.0, 100)
    pairs = [PairOfTurns(f"u{number}", both) for number, both in enumerate(turns)]
    return paired_object(PairedRun("run", variants, request, pairs))["variants"]


def test_words_are_pooled_over_the_turns_and_not_their_rates() -> None:
    short, long = turn(wer_errors=1, wer_words=1), turn(wer_errors=0, wer_words=9)
    assert compared((short, turn()), (long, turn()))[0]["word_error_rate"] == 0.1
    assert compared((turn(), turn()))[0]["word_error_rate"] is None


def test_quality_cost_and_work_stand_with_the_differences() -> None:
    gap = {"underrun_worst": [200e6, 200e6, 200e6]}
    hit = turn(cache_hit=True, cache_tier="edge", route="cache", answer_words=4, answer_whole=True)
    miss = turn(cache_hit=False, cache_tier="edge", route="cloud", answer_words=8, answer_whole=False, values=gap)
    miss["work"] = {"output_tokens": 10.0, "wasted_tokens": None}
    found = compared((turn(), hit), (turn(), miss), (turn(), turn()))[1]
    assert found["cache_hits_by_tier"] == {"edge": 0.5}
    assert (found["whole_answers"], found["answer_words"], found["audible_gaps"]) == (0.5, 6, 1.0)
    assert found["routes"] == {"local": 0, "cloud": 0.5, "rule": 0, "cache": 0.5}
    assert found["work"] == {"output_tokens": 10}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ('{"wasted_tokens": 3, "note": "x", "flag": true, "far": 1e999}', {"wasted_tokens": 3}),
        ("", {}),
        ("[1]", {}),
        ("{", {}),
    ],
)
def test_only_numbers_of_a_report_of_work_are_kept(text: str, numbers: dict[str, float]) -> None:
    assert work_of(text) == numbers
