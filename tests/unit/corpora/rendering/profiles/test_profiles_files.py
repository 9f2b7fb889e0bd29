"""Tests of the user's own sounds: any format is read to its end, and truncated files are rejected before a run."""

from typing import Any

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.files import read_sounds
from corpora.rendering.profiles.profile import Profile

RATE_HZ = 16_000


@pytest.mark.parametrize(
    ("form", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")]
)
def test_a_sound_file_is_read_to_its_end(tmp_path: Any, encode: Any, form: str, subtype: str) -> None:
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(encode(np.random.default_rng(1).standard_normal(RATE_HZ * 2) * 0.05, form=form, subtype=subtype))
    assert Profile(f"file:{file}", 10.0).varies
    assert len(read_sounds(f"file:{file}", RATE_HZ)) == pytest.approx(2 * RATE_HZ, abs=1_200)


@pytest.mark.parametrize("part", ["noise", "room"])
def test_a_truncated_sound_file_is_one_sentence_before_anything_is_rendered(
    tmp_path: Any, encode: Any, part: str
) -> None:
    whole = encode(np.random.default_rng(1).standard_normal(RATE_HZ * 4) * 0.05)
    for kept in (0.3, 0.6, 0.95):
        (tmp_path / "fan.flac").write_bytes(whole[: round(len(whole) * kept)])
        for path in (tmp_path, tmp_path / "fan.flac"):
            with pytest.raises(CorpusError) as caught:
                Profile("white" if part == "room" else f"file:{path}", 10.0, room=f"file:{path}")
            for line in str(caught.value).splitlines():
                file = tmp_path / "fan.flac"
                assert line.startswith((f"{file}: is truncated", f"{file}: cannot be decoded"))
                assert "restore it" in line


@pytest.mark.parametrize(("form", "subtype"), [("WAV", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")])
def test_truncated_noise_is_rejected_in_every_format(tmp_path: Any, encode: Any, form: str, subtype: str) -> None:
    whole = encode(np.random.default_rng(1).standard_normal(RATE_HZ * 4) * 0.05, form=form, subtype=subtype)
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"fan\.\w+: is truncated or damaged: .*; restore it\."):
        Profile(f"file:{file}", 10.0)


@pytest.mark.parametrize("stated", [0, 16_000, 2_000_000_000, 0xFFFFFFFF])
def test_noise_whose_header_states_another_length_is_read_to_its_end(tmp_path: Any, encode: Any, stated: int) -> None:
    content = bytearray(encode(np.random.default_rng(1).standard_normal(RATE_HZ * 2) * 0.05, form="WAV"))
    at = content.index(b"data") + 4
    content[at : at + 4] = stated.to_bytes(4, "little")
    (tmp_path / "fan.wav").write_bytes(content)
    assert len(read_sounds(f"file:{tmp_path / 'fan.wav'}", RATE_HZ)) == 2 * RATE_HZ


@pytest.mark.parametrize(("form", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")])
def test_noise_after_other_noise_in_one_file_is_named(tmp_path: Any, encode: Any, form: str, subtype: str) -> None:
    whole = encode(np.random.default_rng(1).standard_normal(RATE_HZ) * 0.05, form=form, subtype=subtype)
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(whole + whole)
    with pytest.raises(CorpusError, match="contains 2 recordings; save each as its own file"):
        Profile(f"file:{file}", 10.0)
