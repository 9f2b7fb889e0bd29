"""Tests of truncated recordings, telephone formats and Lhotse's transforms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.unit.corpora.sources.importing.sources import (
    RATE_HZ,
    Samples,
    faults_of,
    import_source,
    opened,
    put,
    speech,
    texts,
)


@pytest.mark.parametrize("kind", ["wav", "mp3", "opus", "ogg", "flac", "m4a", "aiff"])
@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_truncated_recording_is_a_fault_with_its_name(source: Path, kind: str, kept: float) -> None:
    put(source / "whole.wav", speech(1), text="all of it")
    file = put(source / f"part.{kind}", speech(0), text="half of it")
    whole = file.read_bytes()
    file.write_bytes(whole[: round(len(whole) * kept)])
    (sentence,) = faults_of(source)
    assert sentence.startswith((f"part.{kind}: is truncated", f"part.{kind}: cannot be decoded"))
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert texts(outcome) == {"whole": "all of it"}
    assert outcome.faults == (sentence,)


def test_gsm_without_a_header_is_read(source: Path) -> None:
    wav = put(source / "a.wav", speech(0)[::2], 8_000)
    samples, _ = soundfile.read(wav)
    wav.unlink()
    soundfile.write(source / "a.gsm", samples, 8_000, format="RAW", subtype="GSM610")
    (source / "a.txt").write_text("by telephone")
    (utterance,) = opened(import_source(source, source.parent / "out", loudness="none")).utterances
    assert (utterance.text, utterance.sample_rate_hz) == ("by telephone", 8_000)
    assert utterance.samples == len((source / "a.gsm").read_bytes()) // 33 * 160
    decoded, _ = soundfile.read(source.parent / "out" / utterance.path)
    assert np.corrcoef(decoded[: len(samples)], samples)[0, 1] > 0.9


def test_gsm_that_ends_inside_a_frame_is_a_fault(source: Path) -> None:
    soundfile.write(source / "a.gsm", speech(0)[::2], 8_000, format="RAW", subtype="GSM610")
    (source / "a.gsm").write_bytes((source / "a.gsm").read_bytes()[:-5])
    assert faults_of(source) == ("a.gsm: is truncated or damaged: 28 bytes follow its last whole frame; restore it.",)


def test_a_wav_with_the_suffix_of_gsm_is_read_as_wav(source: Path) -> None:
    soundfile.write(source / "a.gsm", speech(0)[::2], 8_000, format="WAV", subtype="GSM610")
    assert len(import_source(source, source.parent / "out").imported) == 1


@pytest.mark.parametrize(("subtype", "suffix"), [("PCM_16", "sph"), ("ULAW", "SPH"), ("PCM_16", "nist")])
def test_nist_sphere_is_read(source: Path, subtype: str, suffix: str) -> None:
    soundfile.write(source / f"a.{suffix}", speech(0), RATE_HZ, format="NIST", subtype=subtype)
    (utterance,) = import_source(source, source.parent / "out").imported
    assert (utterance.samples, utterance.sample_rate_hz) == (len(speech(0)), RATE_HZ)


def sphere(coding: str, count: int, data: bytes) -> bytes:
    fields = {
        "sample_count": ("-i", str(count)),
        "sample_n_bytes": ("-i", "2"),
        "channel_count": ("-i", "1"),
        "sample_rate": ("-i", "16000"),
        "sample_byte_format": ("-s2", "01"),
        "sample_coding": (f"-s{len(coding)}", coding),
    }
    lines = [
        "NIST_1A",
        "   1024",
        *(f"{name} {kind} {value}" for name, (kind, value) in fields.items()),
        "end_head",
        "",
    ]
    return "\n".join(lines).encode().ljust(1024) + data


def test_compressed_or_truncated_nist_sphere_is_a_fault(source: Path) -> None:
    pcm = np.rint(speech(0) * 32_767).astype("<i2").tobytes()
    (source / "a.sph").write_bytes(sphere("pcm,embedded-shorten-v2.00", len(pcm) // 2, pcm[:9_000]))
    (source / "b.sph").write_bytes(sphere("pcm", len(pcm) // 2, pcm[:9_000]))
    compressed, cut = faults_of(source)
    assert compressed == (
        "a.sph: is NIST SPHERE compressed as 'pcm,embedded-shorten-v2.00', which is not supported; convert it with "
        "sph2pipe -f wav."
    )
    assert cut.startswith(f"b.sph: is truncated or damaged: it promises {len(pcm)} bytes of sound and holds 9000")


def chirp(seconds: float, speed: float = 1.0, rate_hz: int = RATE_HZ) -> Samples:
    """A frequency sweep with a Gaussian envelope, computed exactly for any speed."""
    times = np.arange(round(seconds / speed * rate_hz)) / rate_hz * speed
    bell = np.exp(-(((times - seconds / 2) / (seconds / 6)) ** 2))
    return 0.3 * bell * np.sin(2 * np.pi * (300 * times + 600 * times**2))


def cut(name: str, start_s: float, duration_s: float, *transforms: Any) -> dict[str, Any]:
    recording = {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}]}
    recording |= {"sampling_rate": RATE_HZ, "transforms": list(transforms)} if transforms else {}
    supervisions = [{"text": f"said {name}"}]
    place = {"start": start_s, "duration": duration_s, "channel": 0}
    return {"id": name, **place, "recording": recording, "supervisions": supervisions}


def transform(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "kwargs": arguments}


def cuts(source: Path, *rows: dict[str, Any]) -> None:
    (source / "cuts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("factor", [0.9, 1.1, 1.25])
def test_lhotse_speed_equals_its_formula(source: Path, factor: float) -> None:
    put(source / "a.wav", chirp(2.0))
    cuts(source, cut("fast", 0.0, 2.0 / factor, transform("Speed", factor=factor)), cut("plain", 0.0, 2.0))
    corpus = opened(import_source(source, source.parent / "out", loudness="none"))
    fast, plain = corpus.utterances
    reference = chirp(2.0, factor)
    actual = corpus.read(fast)
    assert (fast.text, fast.samples) == ("said fast", len(reference))
    assert np.max(np.abs(actual - reference)) < 1e-3 * np.max(np.abs(reference))
    assert fast.processing == f"speed {factor:g}"
    assert plain.samples == 2 * RATE_HZ
    assert np.max(np.abs(corpus.read(plain) - chirp(2.0))) < 1e-4


def test_the_times_of_a_cut_apply_after_its_speed(source: Path) -> None:
    put(source / "a.wav", chirp(2.0))
    cuts(source, cut("part", 0.5, 0.8, transform("Speed", factor=1.1)))
    corpus = opened(import_source(source, source.parent / "out", loudness="none"))
    (part,) = corpus.utterances
    assert part.samples == round(0.8 * RATE_HZ)
    reference, actual = chirp(2.0, 1.1)[8_000:20_800], corpus.read(part)
    assert np.max(np.abs(actual - reference)[200:-200]) < 2e-3 * np.max(np.abs(reference))


def test_lhotse_transforms_are_applied_in_order(source: Path) -> None:
    put(source / "a.wav", chirp(2.0))
    steps = [
        transform("Resample", source_sampling_rate=16_000, target_sampling_rate=12_000),
        transform("Speed", factor=1.1),
        transform("Volume", factor=0.5),
    ]
    cuts(source, cut("all", 0.0, 2.0 / 1.1, *steps))
    corpus = opened(import_source(source, source.parent / "out", loudness="none"))
    (utterance,) = corpus.utterances
    assert utterance.sample_rate_hz == 12_000
    reference, actual = 0.5 * chirp(2.0, 1.1, 12_000), corpus.read(utterance)
    length = min(len(reference), len(actual))
    assert abs(len(reference) - len(actual)) <= 1
    assert np.max(np.abs(actual[:length] - reference[:length])) < 2e-3 * np.max(np.abs(reference))
    assert utterance.processing == "resample 12000 Hz; speed 1.1; gain 0.5; resampled from 16000 Hz"


def test_the_same_audio_at_two_speeds_is_two_utterances_when_appended(source: Path) -> None:
    put(source / "a.wav", chirp(2.0))
    plain, slow = cut("u", 0.0, 2.0), cut("u_sp0.9", 0.0, 2.0 / 0.9, transform("Speed", factor=0.9))
    cuts(source, plain)
    import_source(source, source.parent / "out", append=True)
    cuts(source, plain, slow)
    outcome = import_source(source, source.parent / "out", append=True)
    assert (outcome.already, len(outcome.imported)) == (1, 1)
    assert texts(outcome) == {"u": "said u", "u_sp0.9": "said u_sp0.9"}


@pytest.mark.parametrize(
    ("last_transform", "expected"),
    [
        (transform("Tempo", factor=1.1), "its recording has the transform 'Tempo', which is not supported"),
        (transform("ReverbWithImpulseResponse", rir=None), "has the transform 'ReverbWithImpulseResponse'"),
        (transform("Narrowband", codec="mulaw"), "has the transform 'Narrowband'"),
        ({"kwargs": {}}, "has the transform None"),
        (7, "has the transform None"),
        (transform("Speed"), "the transform Speed of its recording has the factor None; it must be a number"),
        (transform("Speed", factor=0), "the transform Speed of its recording has the factor 0; it must be"),
        (transform("Speed", factor="1.1"), "the transform Speed of its recording has the factor '1.1'; it must be"),
        (transform("Resample", target_sampling_rate=-1), "Resample of its recording has the target_sampling_rate -1"),
        (None, "the transforms of its recording are not a list; correct them."),
    ],
)
def test_an_unsupported_transform_is_reported(source: Path, last_transform: Any, expected: str) -> None:
    put(source / "a.wav", chirp(2.0))
    row = cut("u", 0.0, 1.0, transform("Volume", factor=2.0), last_transform)
    if last_transform is None:
        row["recording"]["transforms"] = {"name": "Speed"}
    cuts(source, row)
    (sentence,) = faults_of(source)
    assert sentence.startswith(("cuts.jsonl:1: its recording", "cuts.jsonl:1: the transform"))
    assert expected in sentence
