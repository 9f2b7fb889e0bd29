"""Tests of the judgment of the edges benchmark, with clips whose figures are known by hand."""

from dataclasses import replace

import pytest

from corpora.manifest.library import BUNDLED, open_corpus
from tests.benchmarks.edges.report import Judged, error_rate, missed_goals, share_within, table, vad_after_ms


@pytest.fixture(scope="module")
def clip() -> Judged:
    """A clip of ten words with one error, whose VAD ends 20 ms late."""
    utterance = open_corpus(BUNDLED, check_clips=False).utterances[0]
    return Judged(utterance, errors=1, words=10, vad_end_ms=1_020.0, exact_end_ms=1_000.0)


def test_the_rate_is_all_errors_over_all_words(clip: Judged) -> None:
    assert error_rate([clip, replace(clip, errors=5, words=20)]) == pytest.approx(20.0)


def test_the_share_is_that_of_the_cut_clips(clip: Judged) -> None:
    ends = (980.0, 1_060.0, 979.0, 1_061.0, None)
    rows = [replace(clip, vad_end_ms=end) for end in ends] + [replace(clip, exact_end_ms=None)]
    assert share_within(rows) == pytest.approx(2 / 5)
    assert vad_after_ms(rows) == [-20.0, 60.0, -21.0, 61.0]
    assert share_within([replace(clip, exact_end_ms=None)]) == 0.0


def test_each_goal_can_be_missed(clip: Judged) -> None:
    recorded = [clip] * 200
    assert missed_goals(recorded, recorded) == []
    one_more_of_200_words = [replace(clip, errors=2)] * 10 + [clip] * 190
    assert missed_goals(recorded, one_more_of_200_words) == []
    (wer,) = missed_goals(recorded, [replace(clip, errors=2)] * 11 + [clip] * 189)
    assert wer == "the word error rate rises by 0.55 points, at most 0.5 are allowed"
    (vad,) = missed_goals(recorded, [replace(clip, vad_end_ms=900.0)] * 41 + [clip] * 159)
    assert vad == "the VAD ends within the range in 79.5%, at least 80% are required"
    (clips,) = missed_goals([clip] * 149, [clip] * 149)
    assert clips == "149 clips were judged, at least 150 are required"


def test_the_table_has_both_kinds_of_edges_side_by_side(clip: Judged) -> None:
    lines = list(table([replace(clip, errors=2, vad_end_ms=1_100.0)] * 4, [clip] * 4))
    assert lines[0] == "4 clips, 40 words; 0 clips have no certain end and were not cut"
    assert lines[3].split() == ["as", "recorded", "20.00%", "100", "100", "100", "100", "100", "0.0%"]
    assert lines[4].split() == ["cut", "10.00%", "20", "20", "20", "20", "20", "100.0%"]
    assert lines[5] == "word error rate of the cut clips: -10.00 points (95 % interval over clips: -10.00 to -10.00)"
