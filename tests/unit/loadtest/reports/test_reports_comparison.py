"""A comparison of runs for people and for programs: differences in one direction, each with its sign."""

import html
import json
import re

import numpy as np
import pytest

from loadtest.reports.comparison import comparison_markdown, comparison_object, narrow_row
from loadtest.reports.comparison_html import comparison_html
from telemetry.comparison.runs import ComparedRun
from telemetry.comparison.verdict import RegressionMargin, RunComparison, compare_runs
from telemetry.model.formatting import MINUS
from tests.rollout_cohorts import cohort_of, latencies_ms

_HYPHEN_BEFORE_NUMBER = re.compile(r"(?<![\w-])-\d")


@pytest.fixture(scope="module")
def faster() -> RunComparison:
    """A run that answers 300 ms sooner than its baseline."""

    def run(name: str, shift_ms: float, seed: int) -> ComparedRun:
        values, calls = latencies_ms(np.random.default_rng(seed), 1500)
        return ComparedRun(name, cohort_of(name, values + shift_ms, calls), {"target": "ws://one"})

    return compare_runs(run("base", 0.0, 1), run("faster", -300.0, 2), RegressionMargin(), ())


@pytest.mark.slow
def test_people_read_a_difference_below_0_with_a_minus_sign(faster: RunComparison) -> None:
    terminal = "\n".join(cell for difference in faster.differences for cell in narrow_row(difference))
    page = re.sub(r"<style>.*?</style>|<[^>]*>", " ", comparison_html([faster]), flags=re.DOTALL)
    for text in (terminal, page, comparison_markdown([faster])):
        assert re.search(rf"{MINUS}3\d\d ms", text)
        assert re.search(rf"{MINUS}\d+ to {MINUS}\d+", text)
        assert not _HYPHEN_BEFORE_NUMBER.search(text)


def test_sentences_in_difference_picture_use_the_same_sign(faster: RunComparison) -> None:
    labels = re.findall(r'aria-label="([^"]*)"|<title>([^<]*)</title>', comparison_html([faster]))
    spoken = " ".join(part for label in labels for part in label)
    assert re.search(rf"{MINUS}3\d\d ms", spoken)
    assert not _HYPHEN_BEFORE_NUMBER.search(spoken)


def test_programs_read_the_same_difference_as_a_number(faster: RunComparison) -> None:
    text = json.dumps(comparison_object([faster]), ensure_ascii=False)
    (p95,) = (
        figure for figure in json.loads(text)["comparisons"][0]["figures"] if figure["name"] == "voice_to_voice_p95"
    )
    assert p95["difference"] < -0.2
    assert MINUS not in text.replace(faster.sentence, "")


def test_programs_read_what_a_mark_rests_on(faster: RunComparison) -> None:
    document = comparison_object([faster])
    assert document["marks"]["error_level"] == 0.05
    (compared,) = document["comparisons"]
    figures = {figure["name"]: figure for figure in compared["figures"]}
    assert compared["marked_over"] == sum(figure["p_value"] is not None for figure in figures.values())
    p95 = figures["voice_to_voice_p95"]
    assert (p95["is_shown"], p95["worse"]) == (True, False)
    assert p95["p_value"] < 0.05 / compared["marked_over"]
    assert figures["errors"]["is_shown"] is False
    assert figures["errors"]["p_value"] == 1


def test_comparison_explains_correction_and_figure_of_margin(
    faster: RunComparison,
) -> None:
    page = html.unescape(comparison_html([faster]))
    for text in (page, comparison_markdown([faster])):
        assert "Holm's correction over all figures" in text
        assert "this figure is judged alone, by its own interval" in text
        assert re.search(r"better: shown after Holm's correction over \d+ figures", text)


@pytest.fixture(scope="module")
def unbounded() -> RunComparison:
    """A run of which nearly every turn beyond the p95 is not answered."""
    rng = np.random.default_rng(3)
    values, calls = latencies_ms(rng, 1500)
    base = ComparedRun("base", cohort_of("base", values, calls), {})
    slow = ComparedRun("slow", cohort_of("slow", values + 400, calls, rng.random(1500) < 0.035), {})
    return compare_runs(base, slow, RegressionMargin(), ())


def test_unbounded_difference_is_words_and_never_a_number(unbounded: RunComparison) -> None:
    text = json.dumps(comparison_object([unbounded]), allow_nan=False)
    (p95,) = (
        figure for figure in json.loads(text)["comparisons"][0]["figures"] if figure["name"] == "voice_to_voice_p95"
    )
    assert (p95["upper"], p95["unbounded"]) == (None, "above")
    assert p95["lower"] > 0.1
    page = comparison_html([unbounded])
    cells = "\n".join(cell for difference in unbounded.differences for cell in narrow_row(difference))
    for output in (page, comparison_markdown([unbounded]), cells):
        assert re.search(r"\+\d+ ms or more", output)
        assert not re.search(r"\b(inf|nan)\b", output)
