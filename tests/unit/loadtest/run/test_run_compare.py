"""`voiceprobe compare` and `voiceprobe runs` over stores of synthetic runs: text, JSON, HTML, Markdown, exit codes."""

import json
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.compare import CompareRequest, compare
from loadtest.run.runs import RunsRequest, list_runs, note_run, remove_runs
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.metrics import METRICS
from telemetry.objectives.slo import objectives_text
from telemetry.store.run_folders.places import OBJECTIVES_NAME
from tests.fixtures_turns import START_UNIX_NS, fill_store
from tests.run_folders import HOUR_NS, latency_run, run_folder, write_summary

BASE = latency_run("r-base", 120)
SLOW = latency_run("r-slow", 120, llm_ms=420, seed=3, began_unix_ns=START_UNIX_NS + HOUR_NS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_folder(root, "base", BASE)
    run_folder(root, "slow", SLOW)
    run_folder(root, "same", latency_run("r-same", 120, seed=2))
    run_folder(root, "tiny", latency_run("r-tiny", 8, llm_ms=900, seed=4))
    (root / "empty").mkdir()
    return root


def printed(request: CompareRequest) -> tuple[ExitCode, str]:
    console = Console(width=100, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        code = compare(request, console)
    return code, captured.get()


def asked(root: Path, *runs: str, **more: object) -> CompareRequest:
    return CompareRequest(runs, (str(root),), **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_regression_is_shown_with_its_interval(root: Path, tmp_path: Path) -> None:
    files = {"json_file": tmp_path / "c.json", "html_file": tmp_path / "c.html", "markdown_file": tmp_path / "c.md"}
    code, text = printed(asked(root, "base", "slow", **files))
    assert code is ExitCode.OBJECTIVE_MISSED
    assert "paired by utterance: 40 were heard by both runs" in text
    assert "regression: Voice to voice p95 of slow is " in text
    result = json.loads((tmp_path / "c.json").read_text())
    assert (result["state"], result["exit_code"]) == ("worse", 3)
    assert result["margin"] == {"metric": "voice_to_voice", "statistic": "p95", "unit": "s", "value": 0.1}
    (comparison,) = result["comparisons"]
    assert (result["baseline"]["run"], comparison["run"]["run"]) == ("r-base", "r-slow")
    figures = {figure["name"]: figure for figure in comparison["figures"]}
    decisive = figures["voice_to_voice_p95"]
    value = METRICS["voice_to_voice"].value
    expected = [
        float(np.quantile([v for t in run.turns if t.source == "client" and (v := value(t)) is not None], 0.95)) / 1e9
        for run in (BASE, SLOW)
    ]
    assert [decisive["baseline"], decisive["run"]] == pytest.approx(expected)
    assert decisive["difference"] == pytest.approx(expected[1] - expected[0])
    assert 0.1 < decisive["lower"] < decisive["difference"] < decisive["upper"]
    assert (decisive["paired"], decisive["worse"]) == (True, True)
    assert figures["endpointing_p50"]["worse"] is None
    assert figures["voice_to_voice_p99"]["reason"] == "needs 500 turns with a value, has 360"
    assert figures["wer"]["unit"] == "ratio"
    markdown = (tmp_path / "c.md").read_text()
    assert "**regression: Voice to voice p95 of slow is " in markdown
    assert markdown.count("\n| --- | --- |") == 1
    page = (tmp_path / "c.html").read_text()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    Parsed().feed(page)


class Parsed(HTMLParser):
    """Fails where an element ends that never began."""

    VOID = ("meta", "line", "rect", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.slow
def test_the_exit_code_is_by_the_margin(root: Path) -> None:
    assert printed(asked(root, "base", "slow", margin="1s"))[0] is ExitCode.OK
    assert printed(asked(root, "base", "same", margin="1ms"))[0] is ExitCode.UNDECIDED
    assert printed(asked(root, "base", "tiny"))[0] is ExitCode.UNDECIDED
    assert printed(asked(root, "base", "same", "slow"))[0] is ExitCode.OBJECTIVE_MISSED
    assert printed(asked(root, "slow", "base"))[0] is ExitCode.OK
    assert printed(asked(root, "base", "slow", metric="endpointing", statistic="p50"))[0] is ExitCode.OK


STRICT = objectives_text(None).replace("threshold: 800ms", "threshold: 600ms")
OTHERS = "note: good turns are counted by the objectives of {}, the baseline: {} was judged by others"
GOOD = "good_voice-to-voice"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that were judged by strict objectives, and two of which nothing is kept: the default ones count."""
    root = tmp_path_factory.mktemp("judged")
    for name in ("strict", "strict-too", "usual", "usual-too"):
        folder = run_folder(root, name, latency_run(f"r-{name}", 30))
        if name.startswith("strict"):
            (folder / OBJECTIVES_NAME).write_text(STRICT)
    return root


def good_and_notes(root: Path, folder: Path, *runs: str, **more: object) -> tuple[list[float], list[str], str]:
    """The shares of good turns by voice-to-voice, and the notes in the JSON file and in all the others."""
    folder.mkdir(exist_ok=True)
    files = {"json_file": folder / "c.json", "html_file": folder / "c.html", "markdown_file": folder / "c.md"}
    _, text = printed(asked(root, *runs, **files, **more))
    (comparison,) = json.loads((folder / "c.json").read_text())["comparisons"]
    (figure,) = [figure for figure in comparison["figures"] if figure["name"] == GOOD]
    assert all(
        f"note: {note}" in (folder / name).read_text() for note in comparison["notes"] for name in ("c.html", "c.md")
    )
    return [figure["baseline"], figure["run"]], comparison["notes"], text


@pytest.mark.slow
def test_good_turns_are_counted_by_objectives_of_the_baseline(judged: Path, tmp_path: Path) -> None:
    alike = {name: good_and_notes(judged, tmp_path / name, name, f"{name}-too") for name in ("usual", "strict")}
    for _, notes, text in alike.values():
        assert notes == []
        assert "was judged by others" not in text
    assert max(alike["strict"][0]) < min(alike["usual"][0]), "fewer turns are good by stricter objectives"
    for baseline, other in (("strict", "usual"), ("usual", "strict")):
        good, notes, text = good_and_notes(judged, tmp_path / "other", baseline, other)
        assert good == alike[baseline][0]
        assert [f"note: {note}" for note in notes] == [OTHERS.format(baseline, other)]
        assert OTHERS.format(baseline, other) in " ".join(text.split())
    # Of several runs, the note is of those that it is about.
    _, text = printed(asked(judged, "strict", "strict-too", "usual"))
    assert text.count("was judged by others") == 1
    # A file that is named counts for all runs.
    slo = tmp_path / "slo.yaml"
    slo.write_text(STRICT)
    good, notes, _ = good_and_notes(judged, tmp_path / "named", "usual", "strict", slo=slo)
    assert (good, notes) == (alike["strict"][0], [])


@pytest.mark.slow
def test_kept_objectives_that_cannot_be_read(judged: Path, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "broken", latency_run("r-broken", 30))
    write_summary(folder, "r-broken")
    (folder / OBJECTIVES_NAME).write_text("kind: SLO\n")
    _, notes, _ = good_and_notes(judged, tmp_path / "other", "usual", str(folder))
    assert [f"note: {note}" for note in notes] == [OTHERS.format("usual", "broken")]
    with pytest.raises(ConfigError) as raised:
        printed(asked(judged, str(folder), "usual"))
    assert raised.value.where == str(folder / OBJECTIVES_NAME)


@pytest.mark.slow
def test_every_fault_is_named_at_once(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        printed(asked(root, "base", margin="-3s", metric="voice_to_vice", statistic="p42", html_file=tmp_path))
    text = str(raised.value)
    for part in ("1 run: give two", "--margin", "did you mean", "--statistic 'p42'", "is a folder"):
        assert part in text, part
    with pytest.raises(UsageError) as raised:
        printed(asked(root, "base", "base", "nobody"))
    assert "base (r-base) is named twice" in str(raised.value)
    assert "nobody is no run: known are " in str(raised.value)
    with pytest.raises(StoreError, match="no turn is stored here"):
        printed(asked(root, "base", "empty"))


@pytest.mark.slow
def test_a_damaged_summary_does_not_hide_the_turns_of_its_run(root: Path, tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "slow", SLOW)
    (folder / "summary.json").write_text('{"run": ')
    code, text = printed(asked(root, "base", str(folder)))
    assert code is ExitCode.OBJECTIVE_MISSED
    assert "regression: Voice to voice p95 of slow is " in text
    assert "summary.json cannot be understood" in " ".join(listing(places=(str(tmp_path),)).split())


@pytest.mark.slow
def test_runs_without_a_common_utterance_are_compared_by_call(root: Path, tmp_path: Path) -> None:
    other = latency_run("r-other", 120, seed=5)
    other.turns = [msgspec.structs.replace(turn, utterance_id=f"other-{turn.utterance_id}") for turn in other.turns]
    code, text = printed(asked(root, "base", str(run_folder(tmp_path, "other", other))))
    assert "by call, not paired by utterance: no utterance was heard by both" in text
    assert code is ExitCode.OK


@pytest.mark.slow
def test_a_run_with_many_invalid_turns_claims_nothing(root: Path, tmp_path: Path) -> None:
    limited = latency_run("r-limited", 120, llm_ms=420, seed=6)
    limited.turns = [
        msgspec.structs.replace(turn, outcome="invalid", invalid_reasons=("loop_lag",))
        if turn.source == "client" and place % 3 == 0
        else turn
        for place, turn in enumerate(limited.turns)
    ]
    folder = str(run_folder(tmp_path, "limited", limited))
    files = {"json_file": tmp_path / "c.json", "html_file": tmp_path / "c.html"}
    code, text = printed(asked(root, "base", folder, **files))
    assert code is ExitCode.UNDECIDED
    assert "undecided: in limited 120 of 360 turns are invalid, more than 1 %, and percentiles leave them out" in text
    assert "percentiles leave them out: no verdict" in text
    assert " worse" not in text
    assert {
        figure["worse"] for figure in json.loads((tmp_path / "c.json").read_text())["comparisons"][0]["figures"]
    } == {None}
    assert 'class="worse"' not in (tmp_path / "c.html").read_text()
    # Each of several runs is compared separately.
    assert printed(asked(root, "base", folder, "slow"))[0] is ExitCode.OBJECTIVE_MISSED
    assert printed(asked(root, "base", folder, "same"))[0] is ExitCode.UNDECIDED


@pytest.mark.slow
def test_names_of_other_people_cannot_speak_for_us(tmp_path: Path) -> None:
    run_folder(tmp_path, "base", BASE)
    evil = "<img src=x onerror=alert(1)>|`\x1b[2J"
    run_folder(tmp_path, evil, SLOW)
    files = {"html_file": tmp_path / "c.html", "markdown_file": tmp_path / "c.md"}
    _, text = printed(asked(tmp_path, "base", evil, **files))
    assert "\x1b" not in text
    assert "<img" not in (tmp_path / "c.html").read_text()
    assert "\\<img" in (tmp_path / "c.md").read_text()
    assert "\x1b" not in (tmp_path / "c.md").read_text()


def listing(*, width: int = 100, **request: object) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        assert list_runs(RunsRequest(**request), console) is ExitCode.OK  # type: ignore[arg-type]
    return captured.get()


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_list_names_every_run_with_its_state(root: Path, width: int) -> None:
    text = listing(places=(str(root),), width=width)
    assert max(map(len, text.splitlines())) <= width
    for name in ("base", "slow", "same", "tiny", "empty"):
        assert name in text
    assert "damaged" in text
    assert "no turn is stored" in " ".join(text.split())
    assert ("ws://127.0.0.1" in text) is (width == 140)


@pytest.mark.slow
def test_the_list_as_json(root: Path, tmp_path: Path) -> None:
    listing(places=(str(root),), json_file=tmp_path / "runs.json", most=2)
    result = json.loads((tmp_path / "runs.json").read_text())
    assert len(result["runs"]) == 2
    (slow,) = [run for run in result["runs"] if run["name"] == "slow"]
    assert slow["voice_to_voice"]["p95_s"] > 0.8
    assert (slow["turns"], slow["state"]) == ({"total": 360, "invalid": 0, "missing": None}, "missed")


def test_without_a_folder_of_runs_the_list_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "start one with voiceprobe run" in listing()
    write_summary(tmp_path / "runs" / "one", "r-1")
    assert "one" in listing()


@pytest.mark.slow
def test_runs_are_removed_only_after_confirmation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "three"):
        run_folder(tmp_path / "runs", name, latency_run(f"r-{name}", 20))
    request = RunsRequest()
    with pytest.raises(UsageError, match="give --yes"):
        remove_runs(["one"], request, Console(force_terminal=False), is_sure=False)
    asks = Console(force_terminal=True, quiet=True)
    answers = iter(("n", "yes"))
    monkeypatch.setattr("builtins.input", partial(next, answers))
    assert remove_runs(["one"], request, asks, is_sure=False) is ExitCode.OK
    assert (tmp_path / "runs" / "one").is_dir()
    assert remove_runs(["one"], request, asks, is_sure=False) is ExitCode.OK
    assert remove_runs(["runs/two", "r-thr"], request, Console(quiet=True), is_sure=True) is ExitCode.OK
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == []
    with pytest.raises(UsageError, match="is no run"):
        remove_runs(["one"], request, Console(quiet=True), is_sure=True)


@pytest.mark.slow
def test_a_run_that_shares_its_store_is_not_removed_alone(tmp_path: Path) -> None:
    fill_store(tmp_path / "runs" / "cap" / "store", latency_run("step-1", 20), latency_run("step-2", 20, seed=2))
    fill_store(tmp_path / "shared", latency_run("r-3", 20))
    request = RunsRequest((str(tmp_path / "runs"), str(tmp_path / "shared")))
    with pytest.raises(UsageError) as raised:
        remove_runs(["step-1", "r-3"], request, Console(quiet=True), is_sure=True)
    assert "shares" in str(raised.value)
    assert "has no folder of its own" in str(raised.value)
    assert (tmp_path / "runs" / "cap").is_dir()
    remove_runs([str(tmp_path / "runs" / "cap")], request, Console(quiet=True), is_sure=True)
    assert not (tmp_path / "runs" / "cap").exists()


@pytest.mark.slow
def test_a_note_shows_in_the_list(tmp_path: Path) -> None:
    run_folder(tmp_path, "one", latency_run("r-one", 20))
    request = RunsRequest((str(tmp_path),))
    assert note_run("one", "a new model", request, Console(quiet=True)) is ExitCode.OK
    assert "a new model" in listing(places=(str(tmp_path),))
    note_run("one", "", request, Console(quiet=True))
    assert "a new model" not in listing(places=(str(tmp_path),))
    with pytest.raises(UsageError, match="is no run"):
        note_run("two", "x", request, Console(quiet=True))
