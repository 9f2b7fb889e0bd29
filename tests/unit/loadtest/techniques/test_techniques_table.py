"""The techniques are options that the assistant has, and their table shows what was measured and what was not."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from corpora.manifest.library import BUNDLED, open_corpus
from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.exit_codes import ExitCode
from loadtest.flag_file import flag_of, read_flags, variants_of
from loadtest.pairing.differences import FEWEST_UTTERANCES
from loadtest.pairing.job import PairedRun, PairOfTurns
from loadtest.targets.assistant.config import AssistantConfig, build_config
from loadtest.targets.assistant.engines import variant_configs
from loadtest.techniques import job
from loadtest.techniques.catalog import COMMON, TECHNIQUES, named
from loadtest.techniques.labels import labeled_lists, stale_answers
from loadtest.techniques.view import in_addition, techniques_page, techniques_view
from telemetry.rollout.plan_document import parse_plan
from tests.declared_techniques import SCRIPTED, declared_technique

TWO_WEEKS = Path(__file__).parents[4] / "examples" / "rollouts" / "two-weeks"


def configured(flags: tuple[str, ...]) -> AssistantConfig:
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return build_config({name.removeprefix("--").replace("-", "_"): value for name, value in pairs})


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda technique: technique.name)
def test_a_technique_changes_one_option_and_nothing_else(technique: Any) -> None:
    off, on = (
        configured((*COMMON, *(flag.format(redis="redis://h:1") for flag in flags)))
        for flags in (technique.off, technique.on)
    )
    changed = {name for name in AssistantConfig.model_fields if getattr(off, name) != getattr(on, name)}
    # A cache is its place, its lifetime and its own delay; a route is a second model and what decides.
    belongs = {"cache_ttl", "cache_delay", "cache_url", "cache_slots", "route_by", "route_threshold"}
    belongs |= {"cache_tier"} if technique.needs_redis or technique.name == "device-cache" else set()
    if technique.name == "cache-lifetime" or technique.name.startswith("fallback-"):
        belongs = {"llm_late"}
    assert len(changed - belongs) == (0 if technique.name == "no-op" or technique.missing else 1), changed
    assert configured(COMMON).needs_models
    assert (technique.few_utterances or FEWEST_UTTERANCES) >= FEWEST_UTTERANCES


def test_a_declared_technique_saves_what_it_declares() -> None:
    for saves_ms in (150.0, -40.0):
        technique = declared_technique(saves_ms)
        off, on = (configured((*SCRIPTED, *flags)).llm_ttft for flags in (technique.off, technique.on))
        assert off is not None
        assert on is not None
        assert off.first - on.first == saves_ms * 1e6


def test_two_week_example_has_matching_plans_flags_and_variants() -> None:
    plans = [parse_plan(path.read_text(encoding="utf-8"), str(path)) for path in sorted(TWO_WEEKS.glob("week-*.toml"))]
    assert [(plan.control, plan.candidate) for plan in plans] == [("stable", "streaming"), ("stable", "local-model")]
    given = {"engines": "real", "variants": str(TWO_WEEKS / "variants.toml"), "cohort_control": "stable"}
    variants = variant_configs(build_config(given))
    flag = flag_of(read_flags((TWO_WEEKS / "flags.json").read_bytes(), "flags.json"), "voice", "flags.json")
    assert list(variants) == list(variants_of(flag)) == ["stable", "streaming", "local-model"]
    assert [variant.llm for variant in variants.values()] == ["cloud", "cloud", "local"]


def test_techniques_are_chosen_by_name_or_by_speed() -> None:
    assert [technique.name for technique in named("draft, streaming", quick=False)] == ["draft", "streaming"]
    assert len(named(None, quick=True)) == 4
    assert named(None, quick=False) == TECHNIQUES
    with pytest.raises(KeyError, match="magic"):
        named("magic", quick=False)


def row(name: str, difference_ms: tuple[float, float, float] | None, **of_on: Any) -> dict[str, Any]:
    value, lower, upper = (ms * 1e6 for ms in difference_ms) if difference_ms else (None, None, None)
    difference = {
        "metric": "voice_to_voice",
        "quantile": 0.5,
        "difference_ns": value,
        "lower_ns": lower,
        "upper_ns": upper,
    }
    shares = dict.fromkeys(
        ("word_error_rate", "whole_answers", "audible_gaps", "cache_hits", "fallbacks", "answer_words")
    )
    off = {
        **shares,
        "unanswered": 0,
        "turns": 20,
        "cache_hits_by_tier": {},
        "work": {},
        "routes": {"local": 1.0, "cloud": 0.0},
    }
    decision = "undecided" if difference_ms is None else "faster"
    return {
        "technique": name,
        "title": name,
        "real": "LLM",
        "declared": "nothing",
        "missing": None,
        "usd_per_1000_answers": {"off": 0.0, "on": 0.0},
        "labels": None,
        "stale_answers": [{"stale": 0, "hits": 0}, {"stale": 0, "hits": 0}],
        "memory_bytes": [700_000_000, 702_000_000],
        "comparison": {
            "pairs": 20,
            "variants": [off, {**off, "decision": decision, "differences": [difference], **of_on}],
        },
    }


MISSING = {"technique": "big", "title": "A big model", "missing": "not here", "sentence": "big: not here."}


class MeasuredAgainError(Exception):
    """A row is not taken from an earlier call."""


@pytest.mark.parametrize("other", [{}, {"callers": {"few_utterances": 10}}, {"flags": {"off": [], "on": []}}])
def test_a_row_is_kept_only_if_it_was_measured_in_the_same_way(
    other: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*asked: Any) -> None:
        raise MeasuredAgainError

    monkeypatch.setattr(job, "_measure", measure)
    technique = declared_technique(150)
    run = SimpleNamespace(request=SimpleNamespace(out=tmp_path))
    request = job.TechniquesRequest(cast("Any", run), (technique,), 0.5, 20.0, 20, SCRIPTED)
    described = {
        "technique": technique.name,
        "title": technique.title,
        "flags": {"off": list(technique.off), "on": list(technique.on)},
        "callers": {"few_utterances": None},
        "real": technique.real,
        "declared": technique.declared,
        "missing": None,
        "sentence": "It is faster.",
    }
    (tmp_path / technique.name).mkdir()
    (tmp_path / technique.name / "row.json").write_text(json.dumps(described | other))
    if other:
        with pytest.raises(MeasuredAgainError):
            job.techniques(request, Console(quiet=True))
    else:
        assert job.techniques(request, Console(quiet=True)) == ([described], False)


def test_view_shows_intervals_as_lines_and_missing_as_too_few() -> None:
    console = Console(width=80, record=True)
    console.print(techniques_view([row("quick-one", (-200, -300, -100)), row("short-one", None), MISSING]))
    lines = console.export_text().splitlines()
    figures, drawn, words = (line for line in lines if "quick-one" in line)
    assert "−200 (−300 to −100)" in figures
    assert "too few" in figures  # of the p95 and p99
    assert "●" in drawn
    assert words.startswith("quick-one: quick-one; real: LLM; declared timing: nothing")
    figures, drawn, _ = (line for line in lines if "short-one" in line)
    assert figures.count("too few") == 3
    assert "●" not in drawn
    assert "big: not here." in lines
    assert not any("…" in line for line in lines)


def test_changes_besides_latency_are_listed_without_unchanged() -> None:
    changed = row(
        "routed",
        None,
        word_error_rate=0.125,
        work={"wasted_tokens": 3.5, "unheard_of": 1.0},
        routes={"local": 0.25, "cloud": 0.75},
        cache_hits_by_tier={"central": 0.2, "edge": 0.5},
        unanswered=3,
    )
    changed["stale_answers"] = [{"stale": 6, "hits": 8}, {"stale": 1, "hits": 4}]
    changed["memory_bytes"] = [800_000_000, 640_000_000]
    changed["usd_per_1000_answers"] = {"off": 0.45, "on": 0.3375}
    changed["labels"] = {"sentence": "2 of 24 wrong"}
    assert in_addition(changed) == [
        "callers without an answer 0 % → 15 %",
        "word errors – → 12.5 %",
        "stale answers of the cache 75 % → 25 %",
        "hits by tier – → central 20 %, edge 50 %",
        "tokens wasted – → 3.5",
        "answered here 100 % → 25 %",
        "1,000 answers of the cloud $0.45 → $0.34",
        "memory 800 MB → 640 MB",
        "2 of 24 wrong",
    ]
    same = row("same", None)
    assert in_addition(same) == []
    same["memory_bytes"] = [None, 640_000_000]
    assert in_addition(same) == []


def test_memory_is_of_process_and_children_and_none_once_gone() -> None:
    holds = "import sys; held = bytearray(b'x') * 60_000_000; print(flush=True); sys.stdin.read()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holds!r}])"
    with subprocess.Popen([sys.executable, "-c", starts], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert 60_000_000 < (job.memory_of(process.pid) or 0) < 160_000_000
        process.stdin.close()
    assert job.memory_of(process.pid) is None


def test_cached_answers_are_stale_by_lifetime_of_their_utterance() -> None:
    """Two seconds around the labels' 20 s and 60 s; the other utterance is right for ever, a miss has no age."""
    ages_s = [("travel-next-train", 18.0), ("travel-next-train", 22.0), ("banking-balance", 62.0), ("home-stop", 1e6)]
    pairs = [PairOfTurns(name, (None, {"work": {"cache_age_s": age_s}})) for name, age_s in ages_s]
    pairs.append(PairOfTurns("travel-next-train", (None, {"work": {}})))
    paired_run = PairedRun("run", (), cast("Any", None), pairs)
    assert (stale_answers(paired_run, 0), stale_answers(paired_run, 1)) == ((0, 0), (2, 4))
    assert set(labeled_lists()["lifetimes_s"]) <= {utterance.id for utterance in open_corpus(BUNDLED).utterances}


def test_page_has_a_line_for_each_row_and_says_what_is_missing() -> None:
    page = techniques_page([row("<faster>", (-200, -300, -100)), row("none", None), MISSING])
    assert page.count("<svg") == 2  # for wide and for narrow screens
    assert "&lt;faster&gt;" in page
    assert "<faster>" not in page
    assert "−200 (−300 to −100)" in page
    assert "<p>big: not here.</p>" in page
    assert "<script" not in page
    assert "<svg" not in techniques_page([row("none", None)])


def test_an_undecided_row_decides_the_exit_code() -> None:
    assert job.exit_code([row("a", (-2, -3, -1))], interrupted=False) == ExitCode.OK
    assert job.exit_code([row("a", None)], interrupted=False) == ExitCode.UNDECIDED
    assert job.exit_code([MISSING], interrupted=False) == ExitCode.OK
    assert job.exit_code([], interrupted=True) == ExitCode.INTERRUPTED


def test_all_faults_of_the_command_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["techniques", "--only", "magic", "--pairs", "3", "--smallest", "0"]
    assert guarded(lambda: app(command)) == ExitCode.USAGE
    error = capsys.readouterr().err
    for part in ("--only 'magic' is not a technique", "--pairs 3 is too few", "--smallest 0 is too small"):
        assert part in error
