"""Tests of the detector of speech bounds against the hand labels of the bundled clips.

`python -m tests.benchmarks.boundary_labels report` compares all labeled clips, which requires their packages.
"""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from corpora.annotation.bounds import SpeechBounds
from corpora.manifest.clips import Samples
from tests.benchmarks.boundary_labels.choose import Excluded
from tests.benchmarks.boundary_labels.labels import (
    LABELS,
    Labeled,
    Mark,
    labels_of,
    read_labels,
    with_audio,
)
from tests.benchmarks.boundary_labels.report import BoundError, measure, share, table, within_own
from tests.benchmarks.boundary_labels.sources import Candidate


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def _prompt(row: dict[str, str]) -> str:
    """The id without the rate: en8.digits_8 and en16.digits_8 are the same prompt."""
    language_and_rate, _, prompt = row["id"].partition(".")
    return f"{language_and_rate.rstrip('168')}.{prompt}"


@pytest.fixture(scope="module")
def bundled() -> list[BoundError]:
    return measure(with_audio(read_labels(), None))


def test_every_batch_has_both_bounds_and_a_prompts_rates_are_in_the_same_split() -> None:
    labeled = read_labels()
    assert len(labeled) >= 150
    assert len({clip.id for clip in labeled}) == len(labeled)
    split = Counter(clip.split for clip in labeled)
    assert set(split) == {"choose", "report"}
    assert abs(split["choose"] - split["report"]) <= 5
    by_prompt: dict[str, set[str]] = {}
    for clip in labeled:
        by_prompt.setdefault(_prompt({"id": clip.id}), set()).add(clip.split)
    assert all(len(splits) == 1 for splits in by_prompt.values())
    assert sum(clip.end.apart_ms is not None for clip in labeled) >= 20


@pytest.mark.parametrize(("draw", "earlier", "clips"), [("fresh", ("first",), 120), ("third", ("first", "fresh"), 90)])
def test_a_later_draw_shares_no_prompt_and_no_text_with_earlier_ones(
    draw: str, earlier: tuple[str, ...], clips: int
) -> None:
    drawn = _rows(labels_of(draw) / "clips.csv")
    before = [row for name in earlier for row in _rows(labels_of(name) / "clips.csv")]
    assert len(drawn) == clips
    assert {row["split"] for row in drawn} == {draw}
    assert not {_prompt(row) for row in before} & {_prompt(row) for row in drawn}
    assert not {row["text"].casefold() for row in before} & {row["text"].casefold() for row in drawn}
    assert not {row["sha256"] for row in before} & {row["sha256"] for row in drawn}


def test_a_prompt_is_excluded_by_its_other_rate_and_by_its_text() -> None:
    excluded = Excluded(frozenset({"en8.digits_8"}), frozenset({"goodbye."}))
    at_8, at_16, other, same_text = (
        Candidate(name, "", "", "", "en", 8_000, text, "", lambda: np.zeros(1, np.int16))
        for name, text in (
            ("en8.digits_8", "eight"),
            ("en16.digits_8", "eight"),
            ("en8.digits_9", "nine"),
            ("en8.vm-goodbye", "Goodbye."),
        )
    )
    assert excluded.match([at_8, at_16])
    assert excluded.match([same_text])
    assert not excluded.match([other])
    assert not Excluded().match([at_8, at_16])


def test_the_labels_follow_the_method_beside_them() -> None:
    assert (Path(LABELS).parent / "METHOD.md").is_file()
    for clip in read_labels():
        assert 0 <= clip.start.at_ms < clip.end.at_ms, clip.id
        assert min(clip.start.sure_ms, clip.end.sure_ms) >= 2, clip.id


def test_sure_bounds_are_close_to_their_labels(bundled: list[BoundError]) -> None:
    assert len(bundled) == 32
    sure = [row for row in bundled if row.is_sure]
    assert len(sure) >= 16
    assert share(sure, within_own) == 1.0


def test_errors_are_within_the_stated_uncertainty(bundled: list[BoundError]) -> None:
    """The difference may be as large as the combined uncertainty of bound and label."""
    within_uncertainty = share(bundled, lambda row: abs(row.error_ms) <= np.hypot(row.stated_ms, row.mark.sure_ms))
    assert within_uncertainty is not None
    assert within_uncertainty >= 0.95


def test_a_wrong_detector_is_reported_in_the_table() -> None:
    clip = Labeled("it", "bundled", 1_000, "nasal", "choose", "", Mark(100, 5, None), Mark(900, 20, 3.0))

    def detect_late(samples: Samples, rate_hz: int) -> SpeechBounds:
        return SpeechBounds(100, 959, 60.0, 0.010, 0.010)

    found = measure([(clip, np.zeros(1_000))], detect_late)
    assert [(row.side, row.error_ms) for row in found] == [("end", 60.0), ("start", 0.0)]
    lines = list(table(found))
    assert any("+60.0 it" in line and "EXCEEDED" in line for line in lines)
    assert any(line.startswith("all") and " 100%" in line for line in lines)


def test_audio_that_was_not_labeled_is_rejected(tmp_path: Path) -> None:
    import soundfile

    (tmp_path / "audio").mkdir()
    clip = read_labels()[0]
    soundfile.write(tmp_path / "audio" / f"{clip.id}.wav", np.ones(100) / 2, clip.rate_hz)
    with pytest.raises(ValueError, match="not those that were labeled"):
        list(with_audio([clip], tmp_path))
