"""Tests of how a run states the edges of its speech: once, in its evidence and in the JSON."""

from typing import Any

import pytest

from loadtest.reports.rows import run_rows
from loadtest.reports.run_info import RunCorpus
from tests.unit.loadtest.reports import reports_material as material


@pytest.mark.parametrize(
    ("stated", "phrase"),
    [
        ({"edges": "exact", "fade_ms": 5.0, "recorded_ends": 0}, ", exact edges (5 ms fade)"),
        ({"edges": "exact", "fade_ms": 5.0}, ", exact edges (5 ms fade)"),
        ({"edges": "exact", "fade_ms": 2.5, "recorded_ends": 3}, ", exact edges (2.5 ms fade, 3 as recorded)"),
        ({"edges": "recorded"}, ", recorded edges"),
        ({"edges": "exact"}, ", exact edges"),
        ({}, ""),
    ],
)
def test_the_corpus_row_states_the_edges_once(stated: dict[str, Any], phrase: str) -> None:
    corpus = RunCorpus(name="mine", kind="generated", utterances=48, licenses=("CC0-1.0",), **stated)
    rows = dict(run_rows(material.run_info(corpus=corpus), material.summary()))
    assert rows["corpus"] == f"mine: generated speech, 48 utterances (CC0-1.0){phrase} · noise babble · 10 dB SNR"
