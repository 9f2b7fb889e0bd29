"""Tests of clips that are not what their manifest says: one clear sentence each."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.library import open_corpus
from tests.unit.corpora.conftest import Workshop, burst, encoded


def only_fault(workshop: Workshop) -> str:
    with pytest.raises(ManifestError) as caught:
        open_corpus(workshop.save())
    assert len(caught.value.faults) == 1
    fault = caught.value.faults[0]
    assert fault.startswith(f"{workshop.folder}/manifest.jsonl:2: one: {workshop.folder}/clips/one.flac: ")
    assert "\n" not in fault
    return fault


def not_a_number(value: float) -> bytes:
    samples = burst()
    samples[5_000] = value
    return encoded(samples, form="WAV", subtype="FLOAT")


def promising_hours() -> bytes:
    content = bytearray(encoded(burst()))
    # The last 36 bits before the MD5 of FLAC's STREAMINFO are the number of samples.
    content[21] |= 0x0F
    content[22:26] = b"\xff\xff\xff\xff"
    return bytes(content)


def part(form: str, keep: float) -> bytes:
    content = encoded(burst(), form=form)
    return content[: int(len(content) * keep)]


def test_a_sound_corpus_opens_and_reads_exactly(workshop: Workshop) -> None:
    workshop.add("one", seed=5)
    corpus = open_corpus(workshop.save())
    read = corpus.read(corpus.utterances[0])
    np.testing.assert_allclose(read, burst(seed=5), atol=1 / 32_768)
    assert read.dtype == np.float64


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((content, "is not audio that can be read") for content in (
            b"RIFF", b"not audio at all" * 100, b"\x00" * 5_000, b"fLaC" + b"\xff" * 200)),
        (part("FLAC", 0.6), "is not audio that can be read"),
        (part("WAV", 0.6), "is truncated: it contains"),
        (part("WAV", 0.999), "is truncated: it contains"),
        (encoded(burst(), rate_hz=22_050), "has a rate of 22050 Hz, but its manifest says 16000"),
        (encoded(burst(), rate_hz=4_000), "has a rate of 4000 Hz; resample it"),
        (encoded(burst(), rate_hz=96_000), "has a rate of 96000 Hz; resample it"),
        (encoded(np.stack([burst()] * 2, axis=1)), "has 2 channels"),
        (not_a_number(np.nan), "not numbers (NaN or infinite)"),
        (not_a_number(np.inf), "not numbers (NaN or infinite)"),
        (encoded(np.zeros(16_000 * 600 + 1, dtype=np.int16)), "is longer than 10 minutes"),
        (promising_hours(), "is longer than 10 minutes"),
        (encoded(np.zeros(22_400)), "is silent between its speech bounds"),
        (encoded(burst(), form="OGG", subtype="VORBIS"), "is OGG, which is lossy"),
    ],
)  # fmt: skip
def test_a_clip_that_cannot_be_used_is_named(workshop: Workshop, content: bytes, says: str) -> None:
    workshop.add("one")
    workshop.replace("one", content)
    assert says in only_fault(workshop)


def swapped_for_a_link(file: Path) -> None:
    outside = file.parents[2] / "outside.flac"
    file.rename(outside)
    file.symlink_to(outside)


def in_a_linked_folder(file: Path) -> None:
    outside = file.parents[2] / "outside"
    file.parent.rename(outside)
    file.parent.symlink_to(outside)


def swapped_for_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Path.unlink, "is missing"),
        (lambda file: file.write_bytes(b""), "is empty"),
        (lambda file: file.write_bytes(encoded(burst(seed=9))), "is not the file its manifest describes"),
        (lambda file: file.write_bytes(file.read_bytes()[:-20_000]), "is not audio that can be read"),
        (swapped_for_a_link, "symbolic link"),
        (in_a_linked_folder, "symbolic link"),
        (swapped_for_a_pipe, "is not a regular file"),
    ],
)
def test_a_file_that_is_not_the_clip_is_named(workshop: Workshop, change: Callable[[Path], object], says: str) -> None:
    change(workshop.add("one"))
    assert says in only_fault(workshop)


def test_more_samples_than_stated_are_named(workshop: Workshop) -> None:
    workshop.add("one", samples=20_000, speech_end_sample=19_000)
    assert "contains 22400 samples, but its manifest says 20000" in only_fault(workshop)


def test_every_damaged_clip_is_named(workshop: Workshop) -> None:
    for number, name in enumerate(("a", "b", "c")):
        workshop.add(name, seed=number)
    (workshop.folder / "clips/a.flac").unlink()
    (workshop.folder / "clips/c.flac").write_bytes(b"")
    with pytest.raises(ManifestError) as caught:
        open_corpus(workshop.save())
    assert [fault.split(": ")[1] for fault in caught.value.faults] == ["a", "c"]


def test_a_clip_that_goes_after_opening_is_an_error(workshop: Workshop) -> None:
    file = workshop.add("one")
    corpus = open_corpus(workshop.save())
    file.unlink()
    with pytest.raises(CorpusError, match="is missing"):
        corpus.read(corpus.utterances[0])
