"""A comparison of runs for people and for programs: differences in one direction, each with its sign."""

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


def test_people_read_a_difference_below_0_with_a_minus_sign(faster: RunComparison) -> None:
    terminal = "\n".join(cell for found in faster.differences for cell in narrow_row(found))
    page = re.sub(r"<style>.*?</style>|<[^>]*>", " ", comparison_html([faster]), flags=re.DOTALL)
    for text in (terminal, page, comparison_markdown([faster])):
        assert re.search(rf"{MINUS}3\d\d ms", text)
        assert re.search(rf"{MINUS}\d+ to {MINUS}\d+", text)
        assert not _HYPHEN_BEFORE_NUMBER.search(text)


def test_a_sentence_in_the_picture_of_a_difference_has_the_same_sign(faster: RunComparison) -> None:
    labels = re.findall(r'aria-label="([^"]*)"|<title>([^<]*)</title>', comparison_html([faster]))
    spoken = " ".join(part for found in labels for part in found)
    assert re.search(rf"{MINUS}3\d\d ms", spoken)
    assert not _HYPHEN_BEFORE_NUMBER.search(spoken)


def test_programs_read_the_same_difference_as_a_number(faster: RunComparison) -> None:
    text = json.dumps(comparison_object([faster]), ensure_ascii=False)
    (p95,) = (each for each in json.loads(text)["comparisons"][0]["figures"] if each["name"] == "voice_to_voice_p95")
    assert p95["difference"] < -0.2
    assert MINUS not in text.replace(faster.sentence, "")
