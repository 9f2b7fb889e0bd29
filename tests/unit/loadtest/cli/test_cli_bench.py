"""`voiceprobe bench` outside a checkout: one sentence."""

from pathlib import Path

import pytest

from loadtest.cli import main
from loadtest.exit_codes import ExitCode


def test_outside_a_checkout_it_says_that_it_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "ROOT", tmp_path)
    code = main.guarded(lambda: main.app(["bench", "--short"]))
    assert code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("voiceprobe: bench needs a checkout")
    assert said.count("\n") == 1
