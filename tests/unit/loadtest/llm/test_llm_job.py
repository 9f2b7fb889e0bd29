"""The command in one process: scripted models, and what it prints, writes, stores, and with which code it ends."""

import asyncio
import io
import json
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.llm import job
from loadtest.llm.answers import LlmFault
from loadtest.llm.job import LlmBenchRequest, check, run_bench
from loadtest.run import rollout_check
from loadtest.run.compare import CompareRequest, compare
from loadtest.run.report import report
from loadtest.run.rollout_check import RolloutCheckRequest
from loadtest.run.run_place import find_run
from telemetry.rollout.plan_document import parse_plan
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.places import folder_around
from tests.fixtures_turns import Run
from tests.run_folders import latency_run, run_folder
from tests.unit.loadtest.llm.scripted_llm import Script, ScriptedClient, VirtualLoop

SLO = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: first-token}
spec:
  service: llm
  indicator:
    metadata: {name: first-token}
    spec:
      ratioMetric:
        good: {metricSource: {type: voiceprobe, spec: {metric: llm_first_token_latency, threshold: %s}}}
        total: {metricSource: {type: voiceprobe, spec: {turns: eligible}}}
  objectives: [{target: 0.9}]
"""
EVERYTHING = "lengths,network,cache,structured,agent,quality,concurrency"
NAMES = ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command in virtual time; what it printed, and its code."""

    def carry_out(request: LlmBenchRequest, **scripts: Script) -> tuple[ExitCode, str]:
        loop = VirtualLoop()

        def run(main: Coroutine[Any, Any, Any]) -> Any:
            try:
                return loop.run_until_complete(main)
            except asyncio.CancelledError:
                # As `asyncio.Runner` does it.
                others = asyncio.all_tasks(loop)
                for task in others:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(others) if others else asyncio.sleep(0))
                raise KeyboardInterrupt from None

        client = ScriptedClient(loop, dict(zip(NAMES, scripts.values(), strict=False)))
        monkeypatch.setattr(job, "run", run)
        monkeypatch.setattr(job.time, "perf_counter_ns", client.now_ns)
        console = Console(width=120, record=True, file=io.StringIO())
        try:
            code = run_bench(request, console, client)
        finally:
            loop.close()
            monkeypatch.undo()
        return code, console.export_text()

    return carry_out


def asked(tmp_path: Path, **options: Any) -> LlmBenchRequest:
    options = {"urls": NAMES, "samples": 12, "lengths": "20,50", "out": tmp_path / "out"} | options
    return LlmBenchRequest(**options)


@pytest.mark.slow
def test_everything_is_measured_printed_written_and_stored(tmp_path: Path, bench: Any) -> None:
    request = asked(
        tmp_path,
        only=EVERYTHING,
        loops="3",
        concurrency="1,2,4",
        rates="2",
        level_time="30s",
        json_file=tmp_path / "llm.json",
        html_file=tmp_path / "llm.html",
    )
    code, printed = bench(request, fast=Script(), slow=Script(first_s=0.6, per_token_s=0.02))
    assert code == ExitCode.OK
    # The sentence of ten letters, each a token: 0.1 + 9 × 0.01, and 0.6 + 9 × 0.02.
    lines = printed.splitlines()
    assert lines[1].startswith(f"{NAMES[0]}: one call in ten stalls for 190 ms")
    assert lines[2].startswith(f"{NAMES[1]}: one call in ten stalls for 780 ms")
    assert f"too slow: {NAMES[1]}" in lines[3]
    result = json.loads((tmp_path / "llm.json").read_text())
    assert json.loads((tmp_path / "out" / "llm.json").read_text()) == result
    assert [row["n"] for row in result["lengths"]] == [12, 12, 12, 12]
    assert result["lengths"][0]["figures"]["first_token_s"]["p50"] == pytest.approx(0.1)
    assert result["lengths"][0]["figures"]["first_token_s"]["p95"] is None
    assert f"{NAMES[0]}: answered by scripted-1" in lines
    assert result["saturation"][0]["saturation"]["is_reached"] is False
    assert {
        name: bool(result[name]) for name in ("cache", "structured", "agent", "load", "network", "quality")
    } == dict.fromkeys(("cache", "structured", "agent", "load", "network", "quality"), True)
    page = (tmp_path / "llm.html").read_text()
    assert not re.search(r"(?:src|href)=|url\(|<script", page)
    for title in (
        "First token by output length",
        "p50 and p90",
        "Chunks",
        "cold against warm",
        "Goodput over concurrency",
    ):
        assert title in page
    assert page.count("<svg") == 10  # five pictures, each for wide and narrow screens
    reader = StoreReader(tmp_path / "out" / "store")
    with reader:
        runs = {run.run_id: run for run in reader.runs()}
        assert set(runs) == set(result["runs"].values())
        (run_id,) = [run_id for run_id in runs if "-1-v1" in run_id]
        summary = reader.summary(Filter(run_id=run_id))
        first = summary.metrics["llm_first_token_latency"]
    # Load levels are of the kind ramp and pooled with nothing; cached prompts answer in a tenth of the time.
    assert first.n == 2 * 12 + 4 * 3 * 12 + 2 * 12 + 3 * (3 + 4) + 9
    assert first.p50 is not None
    assert 10e6 <= first.p50 <= 100e6


@pytest.mark.parametrize(("threshold", "samples", "code"), [("150ms", 12, 0), ("50ms", 12, 3), ("150ms", 3, 6)])
def test_objectives_decide_the_exit_code(tmp_path: Path, bench: Any, threshold: str, samples: int, code: int) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text(SLO % threshold)
    request = asked(tmp_path, urls=NAMES[:1], slo=slo, samples=samples)
    returned, printed = bench(request, it=Script())
    assert returned == code
    assert "first-token" in (tmp_path / "out" / "objectives.yaml").read_text()
    assert "llm_first_token_latency" in printed or "first token" in printed.lower()


@pytest.mark.slow
def test_two_benches_are_compared(tmp_path: Path, bench: Any) -> None:
    for name, first_s in (("before", 0.1), ("after", 0.3)):
        bench(asked(tmp_path, urls=NAMES[:1], out=tmp_path / name, samples=30), it=Script(first_s=first_s))
    console = Console(width=120, record=True, quiet=True)
    folders = (str(tmp_path / "before"), str(tmp_path / "after"))
    request = CompareRequest(folders, margin="100ms", metric="llm_first_token_latency", statistic="p50")
    assert compare(request, console) == ExitCode.OBJECTIVE_MISSED


@pytest.mark.slow
def test_the_other_stages_of_a_voice_turn_are_those_of_a_run(tmp_path: Path, bench: Any) -> None:
    folder = run_folder(tmp_path, "monday", latency_run("monday", 10))
    for named in (str(folder), f"{folder / 'store'}#monday"):
        request = asked(tmp_path, urls=NAMES[:1], from_run=named, json_file=tmp_path / "llm.json")
        code, printed = bench(request, it=Script())
        assert code == ExitCode.OK
        assert "all but the model of 30 turns of the run monday" in printed
        (row,) = json.loads((tmp_path / "llm.json").read_text())["voice"]["rows"]
        # 30 turns of 200, 202 … 258 ms of endpointing, 60 of ASR, 6 of network, and 10 from the sentence to the audio;
        # 190 ms for the first sentence.
        assert row["voice_to_voice_s"]["p50"] == pytest.approx(0.190 + 0.229 + 0.076)
        assert row["within"][1]["share"]["ratio"] == pytest.approx(18 / 30, abs=0.05)


WITHOUT_TEXT = {"llm_first_token_perf_ns": None, "llm_first_sentence_perf_ns": None}


@pytest.mark.parametrize(
    "changes", [{"asr_final_perf_ns": None}, WITHOUT_TEXT, {"first_audio_perf_ns": None}, {"phase_kind": "ramp"}]
)
def test_run_whose_turns_lack_the_other_stages_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = latency_run("monday", 4)
    turns = [msgspec.structs.replace(turn, **changes) for turn in run.turns]
    folder = run_folder(tmp_path, "monday", Run(turns, run.spans))
    with pytest.raises(UsageError, match=r"no turn of it.* give --endpointing, --asr and --tts"):
        check(asked(tmp_path, from_run=str(folder)), {})


def test_unreadable_store_is_reported_with_other_faults(tmp_path: Path) -> None:
    (tmp_path / "damaged" / "store").mkdir(parents=True)
    (tmp_path / "damaged" / "store" / "store.duckdb").write_text("junk")
    with pytest.raises(UsageError) as caught:
        check(asked(tmp_path, from_run=str(tmp_path / "damaged"), samples=0), {})
    assert "cannot be opened" in str(caught.value)
    assert "--samples 0" in str(caught.value)


@pytest.mark.slow
def test_turn_with_transcript_during_answer_is_not_used_as_rest(tmp_path: Path) -> None:
    run = latency_run("monday", 4)
    late = [msgspec.structs.replace(turn, asr_final_perf_ns=turn.llm_last_token_perf_ns) for turn in run.turns[:8]]
    folder = run_folder(tmp_path, "monday", Run([*late, *run.turns[8:]], run.spans))
    assert len(check(asked(tmp_path, from_run=str(folder)), {}).others.rests_s) == 8  # of 12, a half of them clients'


def test_no_answering_target_is_error_and_one_of_two_exit_code(tmp_path: Path, bench: Any) -> None:
    refused = Script(fault_of=lambda _: LlmFault("connection", "nothing listens at 127.0.0.1:1"))
    with pytest.raises(EndpointUnreachable, match="nothing listens"):
        bench(asked(tmp_path, urls=NAMES[:1]), it=refused)
    code, printed = bench(asked(tmp_path), gone=refused, there=Script())
    assert code == ExitCode.UNREACHABLE
    assert "asked no more: nothing listens" in printed


def test_an_interrupted_bench_shows_what_it_has(tmp_path: Path, bench: Any) -> None:
    def stop(number: int) -> LlmFault | None:
        if number == 15:
            raise KeyboardInterrupt
        return None

    code, printed = bench(asked(tmp_path, urls=NAMES[:1]), it=Script(fault_of=stop))
    assert code == ExitCode.INTERRUPTED
    assert "14 answers" in printed
    assert "interrupted" in printed


@pytest.mark.parametrize("load", [{"concurrency": "1,2"}, {"rates": "4"}])
def test_interrupted_load_level_keeps_finished_answers(tmp_path: Path, bench: Any, load: dict[str, str]) -> None:
    def stop(number: int) -> LlmFault | None:
        if number == 80:
            asyncio.get_running_loop().call_soon(main[0].cancel)
        main[:] = main or [asyncio.current_task()]  # type: ignore[list-item] # it asks first
        return None

    main: list[asyncio.Task[Any]] = []
    request = asked(
        tmp_path, urls=NAMES[:1], only="concurrency", level_time="40s", json_file=tmp_path / "llm.json", **load
    )
    code, printed = bench(request, it=Script(fault_of=stop))
    assert code == ExitCode.INTERRUPTED
    rows = json.loads((tmp_path / "llm.json").read_text())["load"]
    assert sum(row["sent"] for row in rows) == 80
    assert rows[-1]["unfinished"] >= 1
    # An answer takes 0.59 s: the level ended with the interruption, or its rate would be lower.
    assert rows[-1]["rate"]["value"] == pytest.approx(4 if "rates" in load else 2 / 0.59, rel=0.4)
    assert f"{rows[-1]['unfinished']} unfinished" in printed
    with StoreReader(tmp_path / "out" / "store") as reader:
        assert reader.summary(Filter(run_id="out")).ramp_turns == 80 - rows[-1]["unfinished"]


def test_every_fault_of_a_request_is_reported_at_once(tmp_path: Path) -> None:
    request = LlmBenchRequest(
        urls=["ftp://x", "http://127.0.0.1:1", "http://127.0.0.1:2"],
        model=["a", "b"],
        wire=["opnai"],
        only="length",
        samples=0,
        lengths="20,x,-3",
        rates="1",
        loops="5",
        level_time="soon",
        from_run=str(tmp_path),
        prompts=tmp_path / "none.toml",
        prices=tmp_path / "none.toml",
        slo=tmp_path / "none.yaml",
        ca_file=str(tmp_path / "none.pem"),
        out=tmp_path,
        json_file=tmp_path,
    )
    with pytest.raises(UsageError) as caught:
        check(request, {})
    text = str(caught.value)
    for words in (
        "2 × --model for 3 targets",
        "--wire 'opnai'",
        "did you mean lengths",
        "--samples 0",
        "'x' is not a whole number",
        "-3 is out of range",
        "add it to --only",
        "--loops",
        "--level-time",
        "none.toml cannot be read",
        "none.yaml cannot be read",
        "--ca-file",
        "is a folder",
    ):
        assert words in text
    assert "Traceback" not in text


def test_models_and_addresses_make_targets_with_own_names(tmp_path: Path) -> None:
    one = check(asked(tmp_path, urls=["http://h:1/v1"], model=["a", "b"]), {})
    assert [(target.url, target.model) for target in one.targets] == [("http://h:1/v1", "a"), ("http://h:1/v1", "b")]
    two = check(asked(tmp_path, urls=["http://h:1/v1", "http://i:1/v1"], model=["a"]), {"OPENAI_API_KEY": "sk-secret"})
    assert [target.model for target in two.targets] == ["a", "a"]
    same = check(asked(tmp_path, urls=["http://h:1/v1", "http://h:1/v1"]), {})
    assert len({target.name for target in same.targets}) == 2
    assert "sk-secret" not in repr(two.targets)
    with pytest.raises(UsageError, match="NO_SUCH_KEY is not set"):
        check(asked(tmp_path, key=["NO_SUCH_KEY"]), {})
    with pytest.raises(UsageError) as caught:
        check(asked(tmp_path, urls=["ftp://x"], key=["sk-secret"]), {})
    assert "sk-secret" not in str(caught.value)
    assert "ftp" in str(caught.value)


PLAN = """
name = "smaller-model"
unit = "call"
begins = 2026-01-01T00:00:00Z
cache_misses = false
[cohorts]
control = "%s"
candidate = "%s"
[primary]
metric = "llm_first_token_latency"
statistic = "p95"
margin = "100ms"
[[guardrails]]
check = "tail"
metric = "llm_first_token_latency"
margin = 0.03
[[stages]]
name = "half"
share = 0.5
"""


def looked_at(tmp_path: Path, control: str, candidate: str) -> tuple[ExitCode, str]:
    """The verdict on the rollout of two cohorts of the store."""
    (tmp_path / "plan.toml").write_text(PLAN % (control, candidate))
    console = Console(width=150, record=True, file=io.StringIO())
    request = RolloutCheckRequest(tmp_path / "plan.toml", str(tmp_path / "out" / "store"))
    return rollout_check.check(request, console), console.export_text()


@pytest.mark.slow
@pytest.mark.parametrize(("first_s", "code"), [(0.1, 0), (0.5, 3)], ids=["equal", "slower"])
def test_a_rollout_judges_two_models_by_their_first_tokens(
    tmp_path: Path, bench: Any, first_s: float, code: int
) -> None:
    bench(asked(tmp_path, samples=200), full=Script(first_s=0.1), small=Script(first_s=first_s))
    returned, printed = looked_at(tmp_path, "127.0.0.1-1-v1", "127.0.0.1-2-v1")
    assert returned == code, printed
    assert "400 turns of 127.0.0.1-2-v1, 400 turns of 127.0.0.1-1-v1" in printed


@pytest.mark.slow
def test_a_rollout_judges_one_model_before_and_after_a_change(tmp_path: Path, bench: Any) -> None:
    for name, first_s in (("before", 0.1), ("after", 0.5)):
        bench(asked(tmp_path, urls=NAMES[:1], cohort=[name], samples=200), it=Script(first_s=first_s))
    returned, printed = looked_at(tmp_path, "before", "after")
    assert returned == ExitCode.OBJECTIVE_MISSED, printed
    entries = RunCatalog([str(tmp_path / "out")], None).entries()
    assert sorted(entry.turns for entry in entries) == [400, 400]  # two runs, not one of twice as many turns


def test_objectives_next_to_unrelated_store_are_not_used(tmp_path: Path, bench: Any) -> None:
    bench(asked(tmp_path, urls=NAMES[:1]), it=Script())
    assert folder_around(str(tmp_path / "out" / "store")) == tmp_path / "out"
    (tmp_path / "out" / "llm.json").unlink()
    assert folder_around(str(tmp_path / "out" / "store")) is None


def test_a_cohort_has_a_name_that_a_plan_can_write(tmp_path: Path) -> None:
    for given, words in (
        (["a"], "1 × --cohort for 2 targets"),
        (["a", "a"], "a is given twice"),
        (["a", "b/c"], "b/c"),
    ):
        with pytest.raises(UsageError, match=words):
            check(asked(tmp_path, cohort=given), {})
    long = "https://models.example.com/v1"
    models = [f"{'vendor/' * 12}{size}" for size in ("full", "small")]
    cohorts = check(asked(tmp_path, urls=[long], model=models), {}).cohorts
    assert len(set(cohorts)) == 2
    for cohort in cohorts:
        parse_plan(PLAN % ("full", cohort), "plan.toml")


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "state"), [(None, "not judged"), ("150ms", "met"), ("50ms", "missed")])
def test_run_list_judges_llm_run_by_given_objectives(
    tmp_path: Path, bench: Any, threshold: str | None, state: str
) -> None:
    slo = None if threshold is None else tmp_path / "slo.yaml"
    if slo is not None:
        slo.write_text(SLO % threshold)
    # Later than the first token of a voice turn may be.
    first_s = 0.9 if slo is None else 0.1
    bench(asked(tmp_path, slo=slo, samples=20), one=Script(first_s=first_s), two=Script(first_s=first_s))
    for place in (tmp_path / "out", tmp_path / "out" / "store"):
        assert [entry.state for entry in RunCatalog([str(place)], None).entries()] == [state] * 2
    folder = find_run(str(tmp_path / "out"), None, None)
    expected = {"not judged": ExitCode.OK, "met": ExitCode.OK, "missed": ExitCode.OBJECTIVE_MISSED}[state]
    assert report(folder, Console(file=io.StringIO())) == expected
