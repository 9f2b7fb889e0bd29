"""`voiceprobe rules`: where the rules go, and what a request that cannot be met is answered with."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from tests.fixtures_sidecar import ROOT

EXAMPLE = str(ROOT / "examples" / "objectives.yaml")


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["rules", *arguments])
    return done.exit_code, done.output


def test_the_rules_go_to_standard_output_or_into_a_file(tmp_path: Path) -> None:
    code, text = _run(EXAMPLE)
    assert code == 0
    assert yaml.safe_load(text)["groups"]
    file = tmp_path / "new" / "rules.yml"
    assert _run(EXAMPLE, "-o", str(file)) == (0, "")
    assert file.read_text() == text


def test_windows_are_those_that_are_asked_for() -> None:
    _, text = _run("--burn-rate", "14.4:2m:30s:page", "--burn-rate", "2:10m:1m:ticket", "--quiet-after", "3m")
    for window in ("[30s]", "[1m]", "[2m]", "[10m]", "[3m]"):
        assert window in text
    assert "[1h]" not in text


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["no-such-file.yaml"], ["no-such-file.yaml: cannot be read: No such file"]),
        (["--quiet-after", "soon"], ["--quiet-after 'soon' is not a time"]),
        (["--burn-rate", "1", "--burn-rate", "2:5m:1h:page"], ["'1': write FACTOR", "'2:5m:1h:page': the long window"]),
        (["--out", "/dev"], ["/dev is a folder; give the name of a file"]),
    ],
)
def test_a_fault_is_a_sentence_and_exit_code_2(
    arguments: list[str], sentences: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: app(["rules", *arguments])) == 2
    answered = capsys.readouterr().err
    for sentence in sentences:
        assert sentence in answered
