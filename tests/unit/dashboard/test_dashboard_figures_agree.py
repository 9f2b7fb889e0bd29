"""Figures of one name are one figure: of one store the reports, the list of runs and the pages say the same, and what
they say is counted here from the turns themselves. What the store answers to each page is in the golden answers."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest
from rich.console import Console

from dashboard.components import figures, selectors, trust
from dashboard.pages import now
from dashboard.pages.now import NowView
from dashboard.source import ObjectivesInForce, Source
from loadtest.exit_codes import ExitCode
from loadtest.reports.run_report import RunReport
from loadtest.reports.terminal import final_view
from loadtest.run.artifacts import HTML, JUNIT, MARKDOWN, SUMMARY, artifacts
from loadtest.run.judged_run import judged_run, read_pictures
from loadtest.run.report import list_runs
from telemetry.model.formatting import milliseconds, percent
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.turns import TurnsAnswer, TurnsQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.run_folders.entries import RunEntry
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, exchange, fill_store
from tests.run_folders import latency_run
from tests.unit.dashboard.opened_pages import plain
from tests.unit.telemetry.store.opened_stores import reader_of_runs

pytestmark = pytest.mark.slow

NOW = START_UNIX_NS + 4_000 * SECOND
TURNS = 420
RAMP = 60
_GONE = ("first_audio", "reply_end", "tts_first_chunk", "tts_last_chunk", "llm_first_token", "llm_last_token")
_UNHEARD: dict[str, Any] = {f"{name}_perf_ns": None for name in (*_GONE, "llm_first_sentence")}


def mixed_run() -> Run:
    """A ramp with the slowest turns, then turns that ended in every way, of two cohorts, most of them reported by the
    service too."""
    run = latency_run("r-1", 1)
    run.turns.clear()
    for index in range(TURNS):
        is_ramp = index < RAMP
        changes: dict[str, Any] = {"phase": "up" if is_ramp else "hold", "phase_kind": "ramp" if is_ramp else "hold"}
        changes |= {"cohort": "control" if index // 3 % 2 else "streaming", "cache_hit": None, "route": None}
        if index % 3 == 0:
            changes |= {"route": "cloud", "fallback": "rule" if index % 12 == 0 else None}
        if index % 5 == 0:
            changes |= {"cache_hit": index % 2 == 0, "cache_tier": "edge"}
        llm_ms = 4_000.0 + index if is_ramp else 100.0 + (index * 37) % 500
        client, service = exchange(index, run_id="r-1", llm_ms=llm_ms, **changes)
        run.turns += [
            msgspec.structs.replace(client, **_ending(index)),
            msgspec.structs.replace(service, sequence=None),
        ]
    run.turns = [turn for turn in run.turns if turn.source == "client" or int((turn.response_id or "")[9:]) % 4]
    return run


def _ending(index: int) -> dict[str, Any]:
    if index % 11 == 4:
        return {
            "outcome": ("no_reply", "timeout", "abandoned", "error")[index % 4],
            "leading_silence_ns": None,
        } | _UNHEARD
    if index % 47 == 9:
        return {"outcome": "error", "outcome_reason": "broke down behind its first sound"}
    if index % 53 == 7:
        # The endpoint broke off its reply, now before a sound and now after; or it was the caller who broke in.
        own = {"failure_kind": None if index % 4 == 3 else "interrupted"}
        return {"outcome": "interrupted"} | own | (_UNHEARD if index % 2 else {})
    if index % 90 == 21:
        return {"outcome": "invalid", "outcome_observed": "ok", "invalid_reasons": ("frame_lateness",)}
    if index % 59 == 13:
        return {"turn_kind": "silence", "speech_start_perf_ns": None, "speech_end_perf_ns": None}
    if index % 101 == 33:
        return {"outcome": "cut", "cut_by": "the stop time-out of 5 s"} | _UNHEARD
    return {}


@dataclass(frozen=True)
class World:
    """The turns, and all that is shown of them."""

    turns: list[Turn]
    report: RunReport
    now: NowView
    listed: TurnsAnswer
    record_turns: int
    runs_text: str
    entry: RunEntry

    @cached_property
    def counted(self) -> list[Turn]:
        """The turns over which figures are taken."""
        callers = [turn for turn in self.turns if turn.source == "client"]
        return [turn for turn in callers if turn.phase_kind != "ramp" and turn.turn_kind != "silence"]

    @cached_property
    def valid(self) -> list[Turn]:
        return [turn for turn in self.counted if turn.outcome != "invalid"]

    @cached_property
    def eligible(self) -> list[Turn]:
        return [turn for turn in self.valid if turn.outcome != "cut"]

    def values(self, metric: str) -> list[float]:
        return [value for turn in self.valid if (value := METRICS[metric].value(turn)) is not None]

    @cached_property
    def files(self) -> dict[str, bytes]:
        return artifacts(self.report)

    @cached_property
    def summary_object(self) -> dict[str, Any]:
        return json.loads(self.files[SUMMARY])

    @cached_property
    def terminal(self) -> str:
        output = io.StringIO()
        console = Console(file=output, width=200)
        console.print(final_view(self.report))
        return output.getvalue()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    run, objectives = mixed_run(), default_objectives()
    store = fill_store(tmp_path_factory.mktemp("figures") / "store", run)
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        result = judged_run(reader, "r-1", objectives)
        pictures = read_pictures(reader, result.summary)
        listing = io.StringIO()
        assert list_runs(store, Console(file=listing, width=200), now_unix_ns=NOW) is ExitCode.OK
        (record,) = reader.runs()
        yield World(
            turns=run.turns,
            report=replace(result, pictures=pictures),
            now=now.ask(Source(str(store), reader, ObjectivesInForce(tuple(objectives))), {}),
            listed=reader.turns_page(TurnsQuestion(page_size=100)),
            record_turns=record.turns,
            runs_text=listing.getvalue(),
            entry=RunCatalog([str(store.parent)], objectives).entries()[0],
        )


def test_the_turns_are_counted_alike(world: World) -> None:
    turns = len(world.counted)
    assert 0 < turns < TURNS - RAMP, "silent turns and those of the ramp are left out"
    of_command = world.summary_object["turns"]
    assert (of_command["total"], of_command["eligible"]) == (turns, len(world.eligible))
    assert of_command["invalid"] == len(world.counted) - len(world.valid)
    assert world.now.run is not None
    assert world.now.summary is not None
    overview = trust.overview(world.now.run, world.now.summary, "ended", NOW, UTC)
    assert f" {turns} turns" in plain(overview)
    assert world.listed.total == turns
    assert world.listed.with_value == len(world.values("voice_to_voice"))
    assert world.record_turns == turns
    assert (world.entry.turns, world.entry.invalid) == (turns, of_command["invalid"])
    assert f" {turns} " in world.runs_text
    assert selectors.run_label(world.now.run).endswith(f" {turns} turns")
    invalid = f"invalid: {of_command['invalid']} of {turns} turns"
    suite = ET.fromstring(world.files[JUNIT])  # noqa: S314 - our own file
    assert invalid in (suite.findtext(".//system-out") or "")
    assert re.search(rf"invalid\s+{of_command['invalid']} of {turns} turns", world.terminal)
    assert f"{of_command['invalid']} of {turns} turns" in world.files[MARKDOWN].decode()
    assert f"{of_command['invalid']} of {turns} turns" in plain(world.files[HTML].decode())


def test_no_list_of_the_slowest_turns_has_one_of_a_ramp(world: World) -> None:
    key = METRICS["voice_to_voice"].value
    known = [turn for turn in world.valid if key(turn) is not None]
    slowest = [turn.span_id for turn in sorted(known, key=lambda turn: (-(key(turn) or 0), turn.started_unix_ns))]
    assert [turn.span_id for turn in world.now.slowest] == slowest[:5]
    assert [row.turn.span_id for row in world.report.pictures.slowest] == slowest[:5]
    by_trace = {(turn.trace_id, turn.turn_index): turn.span_id for turn in world.turns if turn.source == "client"}
    assert [by_trace[turn.trace_id, turn.turn_index] for turn in world.listed.turns[:20]] == slowest[:20]
    assert [by_trace[turn.trace_id, turn.turn_index] for turn in world.listed.outliers[:20]] == slowest[:20]
    assert max(world.report.pictures.values_ns or ()) == key(next(turn for turn in known if turn.span_id == slowest[0]))


def test_the_stages_are_over_every_valid_turn(world: World) -> None:
    """A turn that the generator cut is valid, and what was measured of it counts."""
    assert len(world.valid) > len(world.eligible)
    assert world.now.summary is not None
    assert f"over {len(world.valid)} valid turns" in plain(figures.stages(world.now.summary, world.now.statuses))
    assert max(len(world.values(name)) for name in ("asr_final_latency", "underrun_worst")) == len(world.valid)


def test_turns_that_were_not_answered_are_counted_alike(world: World) -> None:
    unheard = [turn for turn in world.eligible if turn.first_audio_perf_ns is None]
    unanswered = [turn for turn in unheard if (turn.outcome, turn.failure_kind) != ("interrupted", None)]
    broken_off = sum(turn.outcome == "interrupted" for turn in unanswered)
    assert 0 < broken_off < len(unheard) - len(unanswered) + broken_off, "the caller who broke in left an open turn"
    assert 20 < len(unanswered) < len(world.eligible)
    assert any(turn.outcome == "error" for turn in world.eligible if turn not in unanswered), (
        "answered, then broke down"
    )
    assert world.summary_object["metrics"]["voice_to_voice"]["unanswered"] == len(unanswered)
    of = f"{len(unanswered)} of {len(world.eligible)} turns"
    assert f"{of} went unanswered" in world.terminal
    assert world.now.summary is not None
    shown = plain(figures.tiles(world.now.summary, world.now.statuses))
    assert f"Not answered {percent(len(unanswered) / len(world.eligible))} {of}" in shown


@pytest.mark.parametrize("metric", ["voice_to_voice", "asr_final_latency", "llm_first_token_latency", "endpointing"])
def test_percentiles_are_the_same_everywhere(world: World, metric: str) -> None:
    values = world.values(metric)
    written = world.summary_object["metrics"][metric]
    assert written["n"] == len(values)
    expected = np.quantile(values, [0.5, 0.95, 0.99])
    named = [written[f"{name}_s"] * 1e9 for name in ("p50", "p95", "p99")]
    assert named == pytest.approx(expected, rel=1e-9)
    label = METRICS[metric].label
    mark = r"\*?"
    in_ms = [re.escape(milliseconds(value)) for value in named]
    row = re.escape(label) + "".join(rf"\s+{text}{mark}" for text in in_ms)
    assert re.search(row, world.terminal)
    row = re.escape(label) + r"\** \|" + r" \|".join(rf" {text}\\?{mark}" for text in in_ms)
    assert re.search(row, world.files[MARKDOWN].decode())
    assert world.now.summary is not None
    in_page = [re.escape(milliseconds(value, unit=False)) for value in named]
    row = re.escape(label) + "".join(rf"\s+{text}" for text in in_page)
    assert re.search(row, plain(figures.stages(world.now.summary, world.now.statuses)))


def test_service_stage_has_other_name_than_client_metric(world: World) -> None:
    """The service's endpointing ends before its event has come over the network."""
    of_bar = world.now.budget["endpointing"]
    assert of_bar.p50_ns != world.summary_object["metrics"]["endpointing"]["p50_s"] * 1e9
    for html in (figures.budget(world.now.budget), world.files[HTML].decode()):
        assert "endpointing by the service" in plain(html)
        assert "leading silence by the service" not in plain(html)


def test_fallbacks_and_caches_are_counted_alike(world: World) -> None:
    reported = [turn for turn in world.valid if turn.fallback is not None or turn.route is not None]
    fell_back = [turn for turn in reported if turn.fallback is not None]
    summary = world.summary_object
    assert (summary["fallback"]["reported"], summary["fallback"]["rate"]) == (
        len(reported),
        pytest.approx(len(fell_back) / len(reported)),
    )
    assert f"{percent(len(fell_back) / len(reported))} of {len(reported)} turns that reported" in world.terminal
    cached = [turn for turn in world.valid if turn.cache_hit is not None]
    hits = sum(bool(turn.cache_hit) for turn in cached)
    assert (summary["cache"]["reported"], summary["cache"]["hits"]) == (len(cached), hits)
    assert f"{percent(hits / len(cached))} hits of {len(cached)} turns that reported" in world.terminal
    assert world.now.summary is not None
    shown = plain(figures.cohorts(world.now.summary.cohorts, world.now.cohort_statuses))
    for cohort in ("control", "streaming"):
        mine = [turn.fallback is not None for turn in reported if turn.cohort == cohort]
        of_cache = [bool(turn.cache_hit) for turn in cached if turn.cohort == cohort]
        shares = f"{percent(sum(of_cache) / len(of_cache))} {percent(sum(mine) / len(mine))}"
        assert re.search(rf"{cohort} .*? {re.escape(shares)}", shown)


def test_endpoint_that_reports_only_hit_or_miss_has_no_fallbacks(tmp_path: Path) -> None:
    run = Run(turns=[exchange(index, route=None, cache_hit=index % 2 == 0)[0] for index in range(40)])
    with reader_of_runs(tmp_path / "store", run, wall_clock_ns=lambda: NOW) as reader:
        summary = reader.summary(Filter())
        result = judged_run(reader, "run-1", default_objectives())
    assert (summary.fallback.reported, summary.fallback.counts) == (0, {})
    made = artifacts(result)
    assert json.loads(made[SUMMARY])["fallback"]["rate"] is None
    assert "| fallback | not reported by the endpoint |" in made[MARKDOWN].decode()
    shown = plain(figures.cohorts(summary.cohorts, {}))
    assert "0 %" not in shown
