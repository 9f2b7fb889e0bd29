"""`voiceprobe compare` and `voiceprobe runs` over real runs: one of them with a slower model."""

import json
from pathlib import Path

import pytest

from loadtest.exit_codes import ExitCode
from tests.integration.calling import CORPUS, assistant
from tests.integration.commands import completed

pytestmark = pytest.mark.nightly

SPEECH = (
    *("--corpus", str(CORPUS), "--length", "short", "--clips", "3"),
    *("--turns", "1", "--think", "0.1", "--users", "12"),
)


def _run(folder: Path, name: str, *assistant_flags: str) -> None:
    with assistant(folder / f"logs-{name}", *assistant_flags) as url:
        done = completed("run", url, *SPEECH, "--calls", "40", "--run-time", "3m", "--out", f"runs/{name}", cwd=folder)
    assert done.stderr == ""


def test_slower_model_is_a_regression_and_same_again_is_not(tmp_path: Path) -> None:
    _run(tmp_path, "before", "--llm-ttft", "constant:80ms", "--cache", "off")
    _run(tmp_path, "after", "--llm-ttft", "constant:2600ms", "--cache", "off")
    listed = completed("runs", "--json", "runs.json", cwd=tmp_path)
    assert listed.returncode == ExitCode.OK, listed.stderr
    runs = {runs["name"]: runs for runs in json.loads((tmp_path / "runs.json").read_text())["runs"]}
    assert set(runs) == {"before", "after"}
    assert all(run["turns"]["total"] >= 20 and run["fault"] is None for run in runs.values())
    spoiled = any(run["turns"]["invalid"] > max(2, run["turns"]["total"] / 100) for run in runs.values())
    limited = spoiled or any(run["state"] == "not judged" for run in runs.values())

    # Of a p95 an interval takes 100 turns; a p50 says it with a few.
    files = ("--json", "c.json", "--html", "c.html", "--markdown", "c.md")
    done = completed("compare", "before", "after", "--statistic", "p50", *files, cwd=tmp_path)
    compared = json.loads((tmp_path / "c.json").read_text())
    (comparison,) = compared["comparisons"]
    figures = {figure["name"]: figure for figure in comparison["figures"]}
    if limited:
        # A busy machine cannot show anything, and says so; it may leave too few turns for any figure of a stage.
        assert done.returncode == ExitCode.UNDECIDED
        assert "no verdict" in done.stdout
    else:
        assert done.returncode == ExitCode.OBJECTIVE_MISSED, done.stdout
        # The model takes 2.52 s longer: more than a busy machine may make of it by chance.
        assert figures["llm_first_token_latency_p50"]["difference"] == pytest.approx(2.52, abs=0.5)
        assert comparison["state"] == "worse"
        assert figures["voice_to_voice_p50"]["lower"] > 0.1
    assert figures["voice_to_voice_p95"]["lower"] is None
    back = completed("compare", "after", "before", "--statistic", "p50", cwd=tmp_path)
    assert back.returncode == (ExitCode.UNDECIDED if limited else ExitCode.OK), back.stdout
    for name in ("c.html", "c.md"):
        assert "before" in (tmp_path / name).read_text()

    noted = completed("runs", "note", "before", "the old model", cwd=tmp_path)
    assert noted.returncode == ExitCode.OK, noted.stderr
    assert "the old model" in completed("runs", cwd=tmp_path).stdout
    removed = completed("runs", "remove", "before", "--yes", cwd=tmp_path)
    assert (removed.returncode, removed.stderr) == (ExitCode.OK, "")
    assert not (tmp_path / "runs" / "before").exists()
    gone = completed("compare", "before", "after", cwd=tmp_path)
    assert gone.returncode == ExitCode.USAGE
    assert "before is no run" in gone.stderr
    assert "Traceback" not in gone.stderr
