"""What a paired comparison is asked: names of targets and what decides, with all faults at once."""

import json

import pytest

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.pairing.job import Variant, check_decision, named_variants


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
