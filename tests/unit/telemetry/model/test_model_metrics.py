"""How metrics, outcomes and causes are shown stands with their definitions, and every view reads it there."""

from io import StringIO
from typing import get_args

import pytest
from rich.console import Console

from dashboard.components import figures
from docs_build.pages import PAGES
from loadtest.reports.summary import COHORT_METRICS, summary_object
from loadtest.reports.terminal import final_view
from telemetry.model import formatting, semconv
from telemetry.model.metrics import DEFINITIONS, HEADLINE, ITL, METRIC_NAMES, METRICS, View, shown_in
from telemetry.store.questions.summaries import PHASE_METRICS
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


def test_terminal_json_page_and_docs_show_each_metric_where_its_definition_says() -> None:
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
    assert set(COHORT_METRICS) == {name for name, each in DEFINITIONS.items() if "cohorts" in each.views}
    assert set(PHASE_METRICS) == {name for name, each in DEFINITIONS.items() if "phases" in each.views}


def test_every_outcome_and_every_cause_has_a_label() -> None:
    assert set(semconv.OUTCOME_LABELS) == set(semconv.OUTCOMES) == set(get_args(semconv.Outcome))
    assert set(semconv.FAILURE_LABELS) == set(get_args(semconv.FailureKind))
    assert semconv.failure_label("http_status", "429") == "HTTP status 429"
    assert semconv.failure_label("dns", None) == "host name"
    assert semconv.failure_label(None, None) == "not recorded"
    assert semconv.failure_label("of_tomorrow", None) == "of tomorrow"


@pytest.mark.parametrize("name", ["connect", "leading_silence", "barge_in_stop", "underrun_count", "voice_to_voice"])
def test_what_a_wire_cannot_show_has_no_value_though_something_was_timed(name: str) -> None:
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
