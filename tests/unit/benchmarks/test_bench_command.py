"""`python -m tests.benchmarks.bench`: its flags become the options of a benchmark, and faults are one sentence each."""

from pathlib import Path

import pytest

from loadtest.cli.guard import guarded
from loadtest.exit_codes import ExitCode
from tests.benchmarks.bench import job
from tests.benchmarks.bench.command import bench as app
from tests.benchmarks.bench.density import job as density_job
from tests.benchmarks.bench.density.options import DensityOptions
from tests.benchmarks.bench.density.windows import Sizes
from tests.benchmarks.bench.options import Options
from tests.benchmarks.bench.store import job as store_job
from tests.benchmarks.bench.store.options import StoreBenchOptions


def test_flags_become_the_options_of_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(job, "bench", asked.append)
    flags = ["--only", "stamps,senders", "--callers", "50,100", "--modes", "duplex", "--wires", "ws", "--rounds", "2"]
    flags += [
        "--window",
        "1500ms",
        "--replies",
        "drip",
        "--json",
        str(tmp_path / "a.json"),
        "--markdown",
    ]
    assert guarded(lambda: app([*flags])) == ExitCode.OK
    (options,) = asked
    assert options.parts == ("senders", "stamps")
    assert (options.callers, options.modes, options.wires) == ((50, 100), ("duplex",), ("ws",))
    assert (options.rounds, options.window_s, options.replies) == (2, 1.5, "drip")
    assert (options.json_file, options.markdown) == (tmp_path / "a.json", True)


def test_short_is_shorter_than_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(job, "bench", asked.append)
    for flags in ([], ["--short"]):
        assert guarded(lambda flags=flags: app([*flags])) == ExitCode.OK
    usual, short = asked
    assert short.window_s < usual.window_s
    assert short.turns < usual.turns


def test_faults_are_a_sentence_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(job, "bench", asked.append)
    assert guarded(lambda: app(["--only", "x", "--rounds", "0"])) == ExitCode.USAGE
    assert asked == []
    output = capsys.readouterr().err
    assert output.count("\n") == 2
    assert all(line.startswith("voiceprobe: --") for line in output.splitlines())


def test_flags_become_the_options_of_the_benchmark_of_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[StoreBenchOptions] = []
    monkeypatch.setattr(store_job, "bench_store", asked.append)
    flags = ["--turns", "1M,10k", "--window", "2s", "--spans-per-s", "500", "--folder", str(tmp_path)]
    flags += ["--json", str(tmp_path / "a.json"), "--markdown"]
    assert guarded(lambda: app(["store", *flags])) == ExitCode.OK
    assert asked == [StoreBenchOptions((10_000, 1_000_000), 2.0, 500, 5, tmp_path, tmp_path / "a.json", markdown=True)]


def test_flags_become_the_options_of_the_comparison_of_wires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DensityOptions] = []
    monkeypatch.setattr(density_job, "bench_density", asked.append)
    flags = ["--wires", "pipecat,twilio", "--callers", "50", "--rounds", "2", "--window", "1s", "--markdown"]
    assert guarded(lambda: app(["density", *flags, "--json", str(tmp_path / "a.json")])) == ExitCode.OK
    sizes = Sizes(50, 0.15, 1.0)
    assert asked == [DensityOptions(("twilio", "pipecat"), sizes, 2, tmp_path / "a.json", markdown=True)]


def test_a_flag_before_the_sub_command_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(store_job, "bench_store", asked.append)
    monkeypatch.setattr(job, "bench", asked.append)
    assert guarded(lambda: app(["--short", "--json", "a.json", "store"])) == ExitCode.USAGE
    assert asked == []
    assert "--short, --json: write flags behind `store`" in capsys.readouterr().err
