"""Metrics, outcomes, causes and the generator's health: one definition each, which every view reads."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from rich.console import Console

from dashboard import descriptions
from dashboard.components import figures
from docs_build.pages import PAGES
from loadtest.reports import rows
from loadtest.reports import summary as json_summary
from loadtest.reports.summary import COHORT_METRICS, summary_object
from loadtest.reports.terminal import final_view
from telemetry.export import instrumentation
from telemetry.model import formatting, generator_health, semconv
from telemetry.model.generator_health import (
    GAUGES,
    HEALTH_FIGURES,
    SUMMARY_FIGURES,
    HealthFigure,
    gauge_metric,
    invalid_text,
    is_not_as_recorded,
)
from telemetry.model.metrics import DEFINITIONS, HEADLINE, ITL, METRIC_NAMES, METRICS, View, shown_in
from telemetry.model.turns import Turn
from telemetry.store import answers
from telemetry.store.answers import Filter, Generator
from telemetry.store.questions import instrument as generator_query
from telemetry.store.questions.summaries import PHASE_METRICS
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
from tests.unit.loadtest.reports import reports_material as material


def test_a_metric_within_a_sentence_keeps_its_acronym() -> None:
    phrases = {name: metric.phrase for name, metric in DEFINITIONS.items()}
    assert phrases["voice_to_voice"] == "voice to voice"
    assert phrases["llm_first_token_latency"] == "LLM first token"
    assert phrases["barge_in_stop"] == "barge-in stop"
    assert not any("_" in phrase for phrase in phrases.values())


def test_every_metric_has_a_label_of_its_own() -> None:
    labels = [metric.label for metric in DEFINITIONS.values()]
    assert all(labels)
    assert len(set(labels)) == len(labels)
    assert set(METRIC_NAMES) - set(METRICS) == {ITL}


@pytest.mark.parametrize("view", get_args(View))
def test_a_view_shows_the_metrics_that_name_it_in_their_order(view: View) -> None:
    shown = shown_in(view)
    assert list(shown) == [name for name in METRIC_NAMES if view in DEFINITIONS[name].views]
    assert HEADLINE in shown or view == "terminal"


def test_a_figure_is_written_by_its_metric() -> None:
    shown = {name: DEFINITIONS[name].format(0.25) for name in ("wer", "audio_rtfx", "tokens_per_s")}
    assert shown == {"wer": "25 %", "audio_rtfx": "0.25", "tokens_per_s": "0.2/s"}
    assert DEFINITIONS[ITL].format(12_340_000, unit=False) == "12.3"
    assert DEFINITIONS[HEADLINE].format(None) == formatting.DASH


def test_each_view_shows_the_metrics_its_definition_names() -> None:
    summary = material.summary(
        metrics={name: material.stats(name, 180, p50=1.0, p95=1.0, p99=1.0, max=1.0) for name in METRIC_NAMES}
    )
    out = StringIO()
    Console(file=out, width=160).print(final_view(material.report(whole=summary)))
    page, reference = figures.stages(summary, ()), PAGES["reference/metrics.md"]()
    whole = summary_object(material.report(whole=summary))
    for name, metric in DEFINITIONS.items():
        in_terminal = bool({"terminal", "terminal-always"} & set(metric.views))
        assert (f"\n{metric.label}  " in out.getvalue()) is in_terminal, name
        assert (f">{metric.label}</th>" in page) is ("page" in metric.views), name
        assert f"| `{name}` | {metric.label} |" in reference, name
        assert whole["metrics"][name]["definition"] == metric.definition, name
    assert set(COHORT_METRICS) == {name for name, definition in DEFINITIONS.items() if "cohorts" in definition.views}
    assert set(PHASE_METRICS) == {name for name, definition in DEFINITIONS.items() if "phases" in definition.views}


def test_every_outcome_and_every_cause_has_a_label() -> None:
    assert set(semconv.OUTCOME_LABELS) == set(semconv.OUTCOMES) == set(get_args(semconv.Outcome))
    assert set(semconv.FAILURE_LABELS) == set(get_args(semconv.FailureKind))
    assert semconv.failure_label("http_status", "429") == "HTTP status 429"
    assert semconv.failure_label("dns", None) == "host name"
    assert semconv.failure_label(None, None) == "not recorded"
    assert semconv.failure_label("of_tomorrow", None) == "of tomorrow"


@pytest.mark.parametrize("name", ["connect", "leading_silence", "barge_in_stop", "underrun_count", "voice_to_voice"])
def test_unobservable_metric_has_no_value_even_if_timed(name: str) -> None:
    timed = {"connect_ns": 5, "leading_silence_ns": 6, "barge_in_stop_ns": 7, "underrun_count": 1}
    turn = client_turn(**timed)
    assert METRICS[name].value(turn) is not None
    assert METRICS[name].value(client_turn(**timed, withheld_metrics=(name,), withheld_reasons=("why",))) is None


@pytest.mark.parametrize(
    ("tokens", "chunks", "rate"),
    [
        (21, 21, 10.0),  # one by one
        (41, 21, 20.0),  # by two
        (101, 25, 50.0),  # by four: what came with the first piece hardly counts
        (45, 3, None),  # three sentences, the first of which came before the time begins
        (45, 1, None),
        (1, 1, None),
        (None, 21, None),  # pieces of text are no tokens
    ],
)
def test_the_rate_of_tokens_is_of_tokens_that_come_one_by_one(
    tokens: int | None, chunks: int, rate: float | None
) -> None:
    turn = client_turn(
        llm_tokens=tokens,
        llm_chunks=chunks,
        llm_first_token_perf_ns=4_000_000_000,
        llm_last_token_perf_ns=6_000_000_000,
    )
    assert METRICS["tokens_per_s"].value(turn) == rate
    wall = METRICS["tokens_per_s_wall"].value(turn)
    assert wall == (None if tokens is None else pytest.approx(tokens / 3))


ROOT = Path(__file__).parents[4]
NEW = HealthFigure(
    name="timer_slip_worst_ns",
    label="timer slip",
    unit="ns",
    definition="Longest delay of a timer.",
    combine="max",
    gauge="timer_slip_worst_ns",
    terminal_row="process",
    page_line="its process",
)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> HealthFigure:
    """The table with one row more, as every module that reads it sees it."""
    summary, gauges = (*SUMMARY_FIGURES, NEW), {**GAUGES, "timer_slip_worst_ns": NEW}
    for module in (generator_health, json_summary, rows, descriptions, generator_query):
        monkeypatch.setattr(module, "SUMMARY_FIGURES", summary)
    for module in (generator_health, instrumentation, generator_query):
        monkeypatch.setattr(module, "GAUGES", gauges)
    monkeypatch.setattr(answers, "HEALTH_FIGURES", {**HEALTH_FIGURES, NEW.name: NEW})
    return NEW


class _Meter:
    """Keeps the gauges that are made, and reads one."""

    def __init__(self) -> None:
        self.gauges: dict[str, Any] = {}

    def create_observable_gauge(self, name: str, callbacks: list[Any], **_: object) -> None:
        self.gauges[name] = callbacks[0]

    def read(self, name: str) -> list[float]:
        return [observation.value for observation in self.gauges[name](None)]


def gauges(meter: _Meter) -> instrumentation.GeneratorGauges:
    telemetry: Any = SimpleNamespace(meter=meter, identity=SimpleNamespace(process_id="p"))
    return instrumentation.GeneratorGauges(telemetry, "r")


def store_with(folder: Path, values: Mapping[str, float]) -> Generator:
    attributes: dict[str, object] = {"run_id": "r", "process_id": "p"}
    with StoreWriter(folder) as writer:
        writer.append(Batch(points=[PointRow(name, 1, value, attributes) for name, value in values.items()]))
    with StoreReader(folder) as reader:
        return reader.summary(Filter(run_id="r")).generator


def test_new_health_row_is_gauge_store_figure_json_key_and_shown(added: HealthFigure, tmp_path: Path) -> None:
    meter = _Meter()
    made = gauges(meter)
    made.report(timer_slip_worst_ns=2_000_000)
    made.report(timer_slip_worst_ns=1_000_000)
    assert meter.read("voice.generator.timer_slip_worst_ns") == [2_000_000]
    health = store_with(tmp_path, {"voice.generator.timer_slip_worst_ns": 2e6, gauge_metric("cpu_ratio"): 0.5})
    assert (health[added.name], health["cpu_ratio_worst"], health.processes) == (2_000_000, 0.5, 1)
    whole = replace(material.summary(), generator=health)
    made_json = json_summary.summary_object(material.report(run=material.run_info(), whole=whole, verdicts=[]))
    assert made_json["generator"]["timer_slip_worst_s"] == 0.002
    assert "timer_slip_worst_s" in json_summary.schema()["properties"]["generator"]["required"]
    assert "timer slip ≤ 2.0 ms" in dict(rows.evidence_rows(material.run_info(), whole))["process"]
    assert "timer slip ≤ 2.0 ms" in descriptions.describe_generator(health, "its process")


def test_every_row_is_in_the_reference_and_every_key_is_its_own() -> None:
    spans, summary = (PAGES[f"reference/{name}.md"]() for name in ("spans", "json-summary"))
    for figure in HEALTH_FIGURES.values():
        assert figure.metric is None or f"`{figure.metric}`" in spans
        assert not figure.in_summary or f"`{figure.json_key}`" in summary
    keys = [figure.json_key for figure in SUMMARY_FIGURES]
    assert len(set(keys)) == len(keys)


def test_health_figures_are_turn_columns_or_come_from_gauges() -> None:
    for figure in HEALTH_FIGURES.values():
        assert figure.turn_column is None or figure.turn_column in Turn.__struct_fields__
        assert figure.turn_column is not None or figure.gauge is not None


def test_a_process_that_reports_an_unknown_figure_fails_at_once() -> None:
    with pytest.raises(KeyError):
        gauges(_Meter()).report(no_such_figure=1)


@pytest.mark.parametrize(
    ("name", "before", "now", "merged"),
    [
        ("loop_lag_worst_ns", 9, 4, 9),
        ("calls_in_flight", 9, 4, 4),
        ("frames_sent", 10, 20, 20),
        ("clock_offset_drift_worst_ns", -50, 20, -50),
        ("clock_offset_drift_worst_ns", 20, -50, -50),
    ],
)
def test_two_reports_are_merged_as_the_row_says(name: str, before: int, now: int, merged: int) -> None:
    assert HEALTH_FIGURES[name].merge(before, now) == merged


def test_process_figure_is_named_only_at_its_source_and_in_table() -> None:
    named = [
        path.relative_to(ROOT).as_posix()
        for package in ("telemetry", "loadtest", "dashboard", "docs_build")
        for path in (ROOT / package).rglob("*.*")
        if path.suffix in (".py", ".json") and "gc_pause_worst" in path.read_text(encoding="utf-8")
    ]
    assert sorted(named) == ["loadtest/swarm/worker.py", "telemetry/model/generator_health.py"]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ((), False),
        (("frame lateness",), True),
        (("drift",), True),
        (("clock step",), False),
        (("internal error", "EADDRNOTAVAIL"), False),
        (("clock step", "drift"), True),
    ],
)
def test_a_turn_with_late_frames_or_drift_was_not_as_recorded(reasons: tuple[str, ...], expected: bool) -> None:
    assert is_not_as_recorded(reasons) is expected


@pytest.mark.parametrize(
    ("not_as_recorded", "faults", "by_reason", "text"),
    [
        (0, 0, {}, ""),
        (4, 0, {"frame lateness": 3, "drift": 2}, "4 not said as recorded (frame lateness 3, drift 2)"),
        (0, 1, {"clock step": 1}, "1 by a fault of the generator (clock step 1)"),
        (0, 2, {}, "2 by faults of the generator"),  # an older reporter gives no reason
        (1, 0, {"drift": 1, "clock step": 1}, "1 not said as recorded (drift 1; also clock step 1)"),
        (
            1_204,
            2,
            {"drift": 1_204, "clock step": 2},
            "1,204 not said as recorded (drift 1,204), 2 by faults of the generator (clock step 2)",
        ),
    ],
)
def test_the_text_counts_turns_and_names_reasons(
    not_as_recorded: int, faults: int, by_reason: dict[str, int], text: str
) -> None:
    assert invalid_text(not_as_recorded, faults, by_reason) == text
