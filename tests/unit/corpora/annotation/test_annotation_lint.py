"""Tests of the corpus check: it reports each fault in a corpus that has it, and nothing in one without faults."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from corpora.annotation.lint import diagnostics
from corpora.cli import app
from corpora.manifest.library import BUNDLED, open_corpus
from tests.unit.corpora.conftest import RATE_HZ, Workshop, burst, encoded

EDGE = round(0.2 * RATE_HZ)


def reported_faults(workshop: Workshop) -> list[str]:
    return list(diagnostics(workshop.save()))


def one_clip(workshop: Workshop, samples: Any, **changes: Any) -> list[str]:
    """The findings in a corpus of one clip with these samples."""
    workshop.add("it", text="this is what was said", bounds_confidence_db=60.0)
    workshop.rows[0] |= {"samples": len(samples), "speech_end_sample": len(samples) - EDGE - 1} | changes
    workshop.replace("it", encoded(samples))
    return reported_faults(workshop)


@pytest.mark.slow
def test_a_corpus_without_faults_has_no_diagnostics(workshop: Workshop) -> None:
    workshop.add("one", seed=1)
    workshop.add("two", seed=2, seconds=2.0)
    assert reported_faults(workshop) == []
    # flite breathes or hums after some texts, which does not matter where each clip is faded out.
    bundled = list(diagnostics(open_corpus(BUNDLED).path))
    assert [finding for finding in bundled if "speech begins is known only to" not in finding] == []


def clipped() -> Any:
    samples = burst()
    samples[8000:8010] = 0.99999
    return samples


def with_a_pause() -> Any:
    return np.concatenate((burst(pad=0.2)[:-EDGE], np.zeros(round(2.5 * RATE_HZ)), burst(seed=2)[EDGE:]))


def narrow() -> Any:
    samples = burst()
    spectrum = np.fft.rfft(samples)
    spectrum[np.fft.rfftfreq(len(samples), 1 / RATE_HZ) > 3400] = 0
    return np.fft.irfft(spectrum, len(samples))


def on_a_floor(level: float) -> Any:
    return burst() + level * np.random.default_rng(9).standard_normal(len(burst()))


@pytest.mark.parametrize(
    ("samples", "changes", "expected"),
    [
        (clipped(), {}, "is clipped in 1 places, first at 0.50 s; record it with less gain"),
        (burst(amplitude=0.001), {}, "is almost silent: its speech is at -60 dBov"),
        (with_a_pause(), {}, "is silent for 2.5 s in the middle of its speech"),
        (narrow(), {}, "has nothing above 4.3 kHz at a rate of 16000 Hz, so it was recorded at 8 kHz"),
        (burst()[EDGE:], {"speech_start_sample": 0}, "begins with speech at the edge of the file"),
        (
            on_a_floor(2e-2),
            {"speech_end_uncertainty_ms": 80.0},
            "no sound in it is certain enough to end it exactly, and where it ends in the recording is known only to "
            "±80 ms; record it with less noise, or review it",
        ),
        (burst(), {"speech_start_uncertainty_ms": 30.1}, "where its speech begins is known only to ±30.1 ms"),
        (
            on_a_floor(2e-2),
            {"speech_end_uncertainty_ms": None},
            "and where it ends in the recording is unknown to any accuracy",
        ),
        (
            burst(),
            {"speech_end_uncertainty_ms": -1},
            "speech_end_uncertainty_ms is -1; it must be a number of milliseconds",
        ),
        (on_a_floor(5e-3), {"bounds_confidence_db": 60.0}, "where its speech ends is known to ±"),
        (
            on_a_floor(1e-5),
            {"speech_end_sample": 12_000},
            "s, not at 0.750 s as its manifest states; annotate it again",
        ),
        (burst(), {"text": "much too long a text for so little speech in it"}, "letters for 1.00 s of speech"),
        (burst(9.0), {"text": "three short expected"}, "correct the text, the bounds or the sample rate"),
        (burst(), {"license": "unknown"}, "its license is 'unknown', which is not a license"),
        (burst(), {"license": "???"}, "write the SPDX name of the actual one"),
        (burst(), {"license": ""}, "license is ''; it must be one line of 1 to 10000 characters"),
        (
            burst(),
            {"speech_end_sample": 99_999},
            "speech_start_sample 3200 and speech_end_sample 99999 do not lie within its 22400 samples",
        ),
        (burst(), {"sample_rate_hz": 8_000}, "has a rate of 16000 Hz, but its manifest says 8000"),
        (np.zeros(22_400), {}, "is silent between its speech bounds"),
    ],
)
def test_a_finding_says_what_is_wrong_where_and_how_to_fix_it(
    workshop: Workshop, samples: Any, changes: dict[str, Any], expected: str
) -> None:
    reported = one_clip(workshop, samples, **changes)
    assert any(expected in finding for finding in reported), reported
    assert all(re.match(r".*manifest\.jsonl:\d+: it: ", finding) for finding in reported)
    assert all("\n" not in finding for finding in reported)


def test_duplicate_audio_is_found_in_different_file_formats(workshop: Workshop) -> None:
    samples, _ = soundfile.read(workshop.add("one"), dtype="int16")
    workshop.add("two", seed=2)
    workshop.replace("two", encoded(samples, form="WAV"))
    (fault,) = reported_faults(workshop)
    assert "two: has the same audio as one" in fault


def test_truncated_file_is_detected(workshop: Workshop) -> None:
    workshop.add("it")
    content = encoded(burst(), form="WAV")
    workshop.replace("it", content[: len(content) // 2])
    assert any("truncated" in finding for finding in reported_faults(workshop))


def test_bounds_set_by_a_person_are_not_questioned(workshop: Workshop) -> None:
    noisy = on_a_floor(1e-3)
    assert one_clip(workshop, noisy, bounds_confidence_db=None) == []


def test_reviewed_bounds_are_not_questioned(workshop: Workshop) -> None:
    assert one_clip(workshop, on_a_floor(1e-3), bounds_confidence_db=39.0, reviewed=True) == []


@pytest.mark.parametrize("edges", ["exact", "recorded"])
@pytest.mark.parametrize("stated_ms", [80.0, None])
def test_an_uncertain_end_is_a_fault_only_of_recorded_edges(
    workshop: Workshop, edges: str, stated_ms: float | None
) -> None:
    reported = one_clip(workshop.with_edges(edges), burst(), speech_end_uncertainty_ms=stated_ms)
    if edges == "exact":
        assert reported == []
    elif stated_ms is None:
        assert "the uncertainty of where its speech ends is unknown; review it" in reported[0]
    else:
        assert "where its speech ends is known only to ±80 ms, worse than ±30 ms; review" in reported[0]


def test_a_clip_without_uncertainties_is_flagged_once(workshop: Workshop) -> None:
    workshop.with_edges("recorded").add("one", reviewed=True)
    for field in ("speech_start_uncertainty_ms", "speech_end_uncertainty_ms"):
        del workshop.rows[0][field]
    (fault,) = reported_faults(workshop)
    assert "the uncertainty of where its speech begins and ends is unknown" in fault


def test_an_uncertainty_at_the_limit_is_not_a_finding(workshop: Workshop) -> None:
    assert one_clip(workshop, burst(), speech_start_uncertainty_ms=30.0, speech_end_uncertainty_ms=0) == []


def test_a_clip_without_a_text_is_not_checked_against_one(workshop: Workshop) -> None:
    assert one_clip(workshop, burst(9.0), text=None) == []


def test_conversations_are_checked_too(workshop: Workshop) -> None:
    workshop.add("one")
    folder = workshop.save()
    (folder / "conversations.jsonl").write_text('{"id": "talk", "turns": [{"utterance": "another"}]}\n')
    assert any("another" in finding for finding in diagnostics(folder))


def test_the_command_prints_the_diagnostics_and_exits_with_two(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    workshop.add("one", license="none")
    folder = workshop.save()

    def call(*arguments: str) -> object:
        with pytest.raises(SystemExit) as exit_info:
            app(list(arguments))
        return exit_info.value.code

    assert call("check", str(folder)) == 2
    assert capsys.readouterr().out.count("\n") == 1
    workshop.rows.clear()
    workshop.add("one")
    assert call("check", str(workshop.save())) == 0
    assert "no faults found" in capsys.readouterr().out
    assert call("check", str(tmp_path / "nothing")) == 2


def test_progress_is_reported_after_each_clip(workshop: Workshop) -> None:
    workshop.add("one")
    workshop.add("two", seed=2)
    reported: list[tuple[int, int]] = []

    def record(done: int, total: int) -> None:
        reported.append((done, total))

    assert list(diagnostics(workshop.save(), record)) == []
    assert reported == [(1, 2), (2, 2)]
