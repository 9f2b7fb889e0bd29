"""Output and checks of `voiceprobe run` before its first call, without a run."""

from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.exit_codes import ExitCode
from loadtest.run import forecast
from loadtest.run.request import CheckedRun, sole_use_of

TARGET = "ws://127.0.0.1:9/v1/realtime"
CALLS_BEGIN = "calls begin"


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[CheckedRun]:
    """The runs that were to be carried out; where one would begin, it says so."""
    checked_runs: list[CheckedRun] = []

    def carry_out(checked: CheckedRun, console: Console) -> object:
        console.print(CALLS_BEGIN)
        checked_runs.append(checked)
        return object()

    def print_and_write(*_: object) -> ExitCode:
        return ExitCode.OK

    monkeypatch.setattr("loadtest.run.job.preflight", checked_runs.append)
    monkeypatch.setattr("loadtest.run.job.run", carry_out)
    monkeypatch.setattr("loadtest.run.judged_run.print_and_write", print_and_write)
    return checked_runs


def started(carried_out: list[CheckedRun], out: Path, *flags: str) -> CheckedRun:
    """The run that is carried out with these flags."""
    asked = ["run", TARGET, "--corpus", "voiceprobe-en", "--out", str(out), *flags]
    assert guarded(partial(app, asked)) == ExitCode.OK
    reached, run = carried_out
    assert reached is run, "the target is tried with what is carried out"
    return run


def test_the_turns_to_expect_are_printed_before_the_first_call(
    carried_out: list[CheckedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started(carried_out, tmp_path / "out", "--users", "2", "--run-time", "30s")
    before = capsys.readouterr().out.partition(CALLS_BEGIN)[0].splitlines()
    assert run.expectation is not None
    assert run.expectation.startswith(f"about {run.expected.turns} turns expected, ")
    assert before == [run.sentence, run.expectation, run.kept_in]


def test_a_terminal_breaks_lines_between_words(
    carried_out: list[CheckedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "TERM": "dumb"}.items():  # which has 80 columns
        monkeypatch.setenv(name, value)
    run = started(carried_out, Path("runs"), "--users", "2", "--run-time", "30s")
    lines = capsys.readouterr().out.partition(CALLS_BEGIN)[0].splitlines()
    printed = [run.sentence, run.expectation or "", run.kept_in]
    assert " ".join(line.strip() for line in lines).split() == " ".join(printed).split()
    assert max(len(line.rstrip()) for line in lines) <= 80 < len(run.expectation or "")


def test_a_run_without_an_end_gets_calls_and_a_run_time(
    carried_out: list[CheckedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started(carried_out, tmp_path / "out", "--users", "2")
    assert run.request.run_time_s == forecast.LONGEST_S
    assert run.request.settings.calls == forecast.calls_needed(run.objectives, run.request.settings, 2)
    assert f"about {run.expected.turns} turns expected\n" in capsys.readouterr().out, "of the run with its end"


def test_a_run_with_an_end_keeps_it(carried_out: list[CheckedRun], tmp_path: Path) -> None:
    run = started(carried_out, tmp_path / "out", "--users", "2", "--run-time", "30s")
    assert (run.request.run_time_s, run.request.settings.calls) == (30, None)


def test_folder_in_use_is_refused_before_anything_starts(
    carried_out: list[CheckedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = ["run", TARGET, "--corpus", "voiceprobe-en", "--out", str(out)]
    with sole_use_of(out):
        (out / "objectives.yaml").write_text("of the first run")
        assert guarded(partial(app, asked)) == ExitCode.USAGE
        assert [(file.name, file.read_text()) for file in out.iterdir()] == [("objectives.yaml", "of the first run")]
    assert carried_out == [], "the target is not tried"
    printed = capsys.readouterr()
    remedy = "name another folder with --out, or wait until that run has ended"
    assert (printed.out, printed.err) == ("", f"voiceprobe: {out} is in use by another run: {remedy}\n")
    assert guarded(partial(app, asked)) == ExitCode.OK, "the first run has ended"
    assert out.exists(), "it has the files of the first run"


def test_no_new_folder_is_left_if_nothing_was_kept(carried_out: list[CheckedRun], tmp_path: Path) -> None:
    started(carried_out, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [("capacity", TARGET), ("pair", TARGET, f"other={TARGET}"), ("demo",)])
def test_other_commands_refuse_a_folder_in_use(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sole_use_of(tmp_path):
        asked = [*command, "--corpus", "voiceprobe-en", "--out", str(tmp_path)]
        assert guarded(partial(app, asked)) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"voiceprobe: {tmp_path} is in use by another run: ")
    assert list(tmp_path.iterdir()) == [], "nothing is started"
