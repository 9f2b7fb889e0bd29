"""Properties of corpora and packages with arbitrary contents: the result is correct, or a CorpusError is raised."""

import hashlib
import io
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.manifest.manifest import read_manifest, write_manifest
from corpora.rendering.render import Profile, render
from corpora.sources.archives import read_members
from tests.corpus_faults import find_faults

RATE_HZ = 16_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def noise_burst(start: int, count: int, after: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    voice = 0.1 * np.random.default_rng(seed).standard_normal(count)
    return np.concatenate((np.zeros(start), np.clip(voice, -0.99, 0.99), np.zeros(after)))


def clip_and_row(samples: Any, name: str = "one", **changes: Any) -> tuple[bytes, dict[str, Any]]:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, format="FLAC")
    content = file.getvalue()
    row: dict[str, Any] = dict.fromkeys(("text", "speaker", "language", "domain", "license", "source"), "x")
    row |= {"id": name, "path": f"{name}.flac", "sha256": hashlib.sha256(content).hexdigest()}
    row |= {"sample_rate_hz": RATE_HZ, "samples": len(samples)}
    row |= {"speech_start_sample": 0, "speech_end_sample": len(samples) - 1}
    return content, row | changes


@contextmanager
def folder_with(clips: dict[str, bytes], rows: list[Any]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, content in clips.items():
            (folder / name).write_bytes(content)
        header = {"corpus": "made", "kind": "generated", "format": 2}
        (folder / "manifest.jsonl").write_text("\n".join(json.dumps(row) for row in [header, *rows]))
        yield folder


CLIP, ROW = clip_and_row(noise_burst(3_200, 8_000, 1_600, 1))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from([*ROW, "consent", "pii_kinds", "bounds_confidence_db", "?"]), value=JSON)
def test_any_value_in_any_field_is_accepted_or_reported(field: str, value: Any) -> None:
    with folder_with({"one.flac": CLIP}, [ROW | {field: value}]) as folder:
        faults = find_faults(folder)
        assert all(str(folder) in fault and "\n" not in fault for fault in faults)
        if not faults:
            corpus = open_corpus(folder)
            assert len(corpus.utterances) == 1
            write_manifest(folder, corpus.name, corpus.kind, corpus.utterances, edges=corpus.edges)
            assert read_manifest(folder).utterances == corpus.utterances


@settings(max_examples=100, deadline=None)
@given(
    position=st.integers(0, len(CLIP) - 1),
    replacement=st.binary(min_size=1, max_size=40),
    cut=st.none() | st.integers(1, len(CLIP) - 1),
)
def test_any_damage_to_a_clip_is_one_sentence(position: int, replacement: bytes, cut: int | None) -> None:
    damaged = bytearray(CLIP)
    damaged[position : position + len(replacement)] = replacement
    content = bytes(damaged[:cut])
    row = ROW | {"sha256": hashlib.sha256(content).hexdigest()}
    with folder_with({"one.flac": content}, [row]) as folder:
        assert len(find_faults(folder)) <= 1
    with folder_with({"one.flac": content}, [ROW]) as folder:
        assert len(find_faults(folder)) == (content != CLIP)


@settings(max_examples=100, deadline=None)
@given(
    content=st.binary(max_size=300)
    | st.binary(max_size=300).map(lambda tail: b"!<arch>\n" + tail)
    | st.binary(max_size=300).map(lambda tail: b"\x1f\x8b\x08" + tail)
    | st.binary(max_size=300).map(lambda tail: b"\xfd7zXZ\x00" + tail)
)
def test_any_bytes_as_a_package_are_rejected_in_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "package"
        file.write_bytes(content)
        with pytest.raises(CorpusError) as caught:
            read_members(file, lambda _: True)
        assert str(caught.value).startswith(str(file))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    before=st.integers(0, 200).map(lambda hops: hops * 32),
    hops=st.integers(20, 1_000),
    after=st.integers(0, 200).map(lambda hops: hops * 32),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_in_digital_silence_are_exact_to_a_millisecond(before: int, hops: int, after: int, seed: int) -> None:
    if (before + after) < 0.1 * hops * 32 + RATE_HZ // 50:
        # Part of the file must be silent; otherwise the speech is not above the noise floor.
        after += hops * 32 + RATE_HZ // 50
    bounds = find_speech_bounds(noise_burst(before, hops * 32, after, seed), RATE_HZ)
    assert 0 <= bounds.start_sample - before <= RATE_HZ // 1_000
    assert 0 <= before + hops * 32 - 1 - bounds.end_sample <= RATE_HZ // 1_000


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(gain_db=st.floats(-40, 10), shift=st.integers(0, 40_000), seed=st.integers(0, 2**32 - 1))
def test_gain_and_position_in_the_file_do_not_change_the_bounds(gain_db: float, shift: int, seed: int) -> None:
    samples = noise_burst(1_600, 16_000, 1_600, seed) + 1e-5 * np.random.default_rng(seed).standard_normal(19_200)
    bounds = find_speech_bounds(samples, RATE_HZ)
    moved = find_speech_bounds(np.concatenate((np.zeros(shift), samples * 10 ** (gain_db / 20))), RATE_HZ)
    # The silence put before it lowers the floor, and the levels are taken at other samples: of 400 draws the worst
    # moved by 1.6 ms, a sixth of what the surest bound states.
    allowed = RATE_HZ // 500
    assert abs(moved.start_sample - shift - bounds.start_sample) <= allowed
    assert abs(moved.end_sample - shift - bounds.end_sample) <= allowed


def small_corpus(folder: Path) -> Corpus:
    rows: list[Any] = []
    for number in range(4):
        content, row = clip_and_row(
            noise_burst(1_600, 8_000 + 900 * number, 1_600, number),
            f"clip-{number}",
            speech_start_sample=1_600,
            speech_end_sample=9_599 + 900 * number,
        )
        (folder / row["path"]).write_bytes(content)
        rows.append(row)
    header = {"corpus": "made", "kind": "generated", "format": 2}
    (folder / "manifest.jsonl").write_text("\n".join(json.dumps(row) for row in [header, *rows]))
    return open_corpus(folder)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    noise=st.sampled_from(["white", "pink", "babble"]),
    snr_db=st.floats(-5, 50),
    rate_hz=st.sampled_from([8_000, 16_000, 22_050, 24_000, 48_000]),
    seed=st.integers(-(2**70), 2**70),
    which=st.integers(0, 3),
)
def test_any_profile_has_the_requested_snr(noise: str, snr_db: float, rate_hz: int, seed: int, which: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        corpus = small_corpus(Path(scratch))
        utterance = corpus.utterances[which]
        rendered = render(corpus, utterance, Profile(noise, snr_db), rate_hz, seed)
        again = render(corpus, utterance, Profile(noise, snr_db), rate_hz, seed)
    assert rendered.snr_obtained_db is not None
    assert math.isclose(rendered.snr_obtained_db, snr_db, abs_tol=0.1)
    assert np.array_equal(rendered.pcm, again.pcm)
    assert abs(rendered.speech_start_sample / rate_hz - 0.1) <= 0.51 / rate_hz
    assert rendered.speech_start_sample < rendered.speech_end_sample < len(rendered.pcm)
