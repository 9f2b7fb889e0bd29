"""Clips that are not what their manifest says: one clear sentence each."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.library import open_corpus

Encode = Callable[..., bytes]


def only_fault(workshop: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        open_corpus(workshop.save())
    assert len(caught.value.faults) == 1
    fault = caught.value.faults[0]
    assert fault.startswith(f"{workshop.folder}/manifest.jsonl:2: one: {workshop.folder}/clips/one.flac: ")
    assert "\n" not in fault
    return fault


def test_a_sound_corpus_opens_and_reads_exactly(workshop: Any, make_burst: Any) -> None:
    workshop.add("one", seed=5)
    corpus = open_corpus(workshop.save())
    read = corpus.read(corpus.utterances[0])
    np.testing.assert_allclose(read, make_burst(seed=5), atol=1 / 32_768)
    assert read.dtype == np.float64


def test_missing(workshop: Any) -> None:
    workshop.add("one").unlink()
    assert "is missing" in only_fault(workshop)


def test_empty(workshop: Any) -> None:
    workshop.add("one").write_bytes(b"")
    assert "is empty" in only_fault(workshop)


@pytest.mark.parametrize("content", [b"RIFF", b"not audio at all" * 100, b"\x00" * 5_000, b"fLaC" + b"\xff" * 200])
def test_not_audio(workshop: Any, content: bytes) -> None:
    workshop.add("one")
    workshop.replace("one", content)
    assert "is not audio that can be read" in only_fault(workshop)


@pytest.mark.parametrize(("form", "keep"), [("FLAC", 0.6), ("WAV", 0.6), ("WAV", 0.999)])
def test_truncated(workshop: Any, encode: Encode, make_burst: Any, form: str, keep: float) -> None:
    workshop.add("one")
    content = encode(make_burst(), form=form)
    workshop.replace("one", content[: int(len(content) * keep)])
    fault = only_fault(workshop)
    assert "is truncated: it contains" in fault or (
        form == "FLAC" and "cannot be" not in fault and "not audio" in fault
    )


def test_truncated_without_a_new_hash_is_called_truncated_too(workshop: Any) -> None:
    file = workshop.add("one", seconds=2.0)
    file.write_bytes(file.read_bytes()[:-20_000])
    fault = only_fault(workshop)
    assert "truncated" in fault or "not audio" in fault


def test_another_clip_of_the_same_length(workshop: Any, encode: Encode, make_burst: Any) -> None:
    workshop.add("one").write_bytes(encode(make_burst(seed=9)))
    assert "is not the file its manifest describes" in only_fault(workshop)


def test_wrong_rate(workshop: Any, encode: Encode, make_burst: Any) -> None:
    workshop.add("one")
    workshop.replace("one", encode(make_burst(), rate_hz=22_050))
    assert "has a rate of 22050 Hz, but its manifest says 16000" in only_fault(workshop)


@pytest.mark.parametrize("rate_hz", [4_000, 96_000])
def test_a_rate_beyond_reason(workshop: Any, encode: Encode, make_burst: Any, rate_hz: int) -> None:
    workshop.add("one")
    workshop.replace("one", encode(make_burst(), rate_hz=rate_hz))
    assert f"has a rate of {rate_hz} Hz; resample it" in only_fault(workshop)


def test_stereo(workshop: Any, encode: Encode, make_burst: Any) -> None:
    workshop.add("one")
    workshop.replace("one", encode(np.stack([make_burst()] * 2, axis=1)))
    assert "has 2 channels" in only_fault(workshop)


def test_more_samples_than_stated(workshop: Any) -> None:
    workshop.add("one", samples=20_000, speech_end_sample=19_000)
    assert "contains 22400 samples, but its manifest says 20000" in only_fault(workshop)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_a_number(workshop: Any, encode: Encode, make_burst: Any, value: float) -> None:
    workshop.add("one")
    samples = make_burst()
    samples[5_000] = value
    workshop.replace("one", encode(samples, form="WAV", subtype="FLOAT"))
    assert "not numbers (NaN or infinite)" in only_fault(workshop)


def test_longer_than_ten_minutes(workshop: Any, encode: Encode) -> None:
    workshop.add("one")
    workshop.replace("one", encode(np.zeros(16_000 * 600 + 1, dtype=np.int16)))
    assert "is longer than 10 minutes" in only_fault(workshop)


def test_a_header_that_promises_hours_is_not_believed(workshop: Any, encode: Encode, make_burst: Any) -> None:
    workshop.add("one")
    content = bytearray(encode(make_burst()))
    # The last 36 bits before the MD5 of FLAC's STREAMINFO are the number of samples.
    content[21] |= 0x0F
    content[22:26] = b"\xff\xff\xff\xff"
    workshop.replace("one", bytes(content))
    assert "is longer than 10 minutes" in only_fault(workshop)


def test_silence_between_the_bounds(workshop: Any, encode: Encode) -> None:
    workshop.add("one")
    workshop.replace("one", encode(np.zeros(22_400)))
    assert "is silent between its speech bounds" in only_fault(workshop)


def test_lossy_formats_are_refused(workshop: Any, encode: Encode, make_burst: Any) -> None:
    workshop.add("one")
    workshop.replace("one", encode(make_burst(), form="OGG", subtype="VORBIS"))
    assert "is OGG, which is lossy" in only_fault(workshop)


def test_symbolic_links_are_not_followed(workshop: Any, tmp_path: Path) -> None:
    file = workshop.add("one")
    file.rename(tmp_path / "outside.flac")
    file.symlink_to(tmp_path / "outside.flac")
    assert "symbolic link" in only_fault(workshop)


def test_a_linked_folder_is_not_followed(workshop: Any, tmp_path: Path) -> None:
    workshop.add("one")
    (workshop.folder / "clips").rename(tmp_path / "elsewhere")
    (workshop.folder / "clips").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in only_fault(workshop)


def test_a_pipe_does_not_hang(workshop: Any) -> None:
    file = workshop.add("one")
    file.unlink()
    os.mkfifo(file)
    assert "is not a regular file" in only_fault(workshop)


def test_every_damaged_clip_is_named(workshop: Any) -> None:
    for number, name in enumerate(("a", "b", "c")):
        workshop.add(name, seed=number)
    (workshop.folder / "clips/a.flac").unlink()
    (workshop.folder / "clips/c.flac").write_bytes(b"")
    with pytest.raises(ManifestError) as caught:
        open_corpus(workshop.save())
    assert [fault.split(": ")[1] for fault in caught.value.faults] == ["a", "c"]


def test_a_clip_that_changes_after_opening_is_noticed(workshop: Any) -> None:
    file = workshop.add("one")
    corpus = open_corpus(workshop.save())
    file.unlink()
    with pytest.raises(CorpusError, match="is missing"):
        corpus.read(corpus.utterances[0])
