"""A user's own sounds: any kind is read to its end, and one that ends too early is refused before a run begins."""

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


@pytest.mark.parametrize("what", ["noise", "room"])
def test_a_sound_file_that_ends_too_early_gets_one_sentence_before_anything_is_rendered(
    tmp_path: Any, encode: Any, what: str
) -> None:
    whole = encode(np.random.default_rng(1).standard_normal(RATE_HZ * 4) * 0.05)
    for kept in (0.3, 0.6, 0.95):
        (tmp_path / "fan.flac").write_bytes(whole[: round(len(whole) * kept)])
        for path in (tmp_path, tmp_path / "fan.flac"):
            with pytest.raises(CorpusError) as caught:
                Profile("white" if what == "room" else f"file:{path}", 10.0, room=f"file:{path}")
            for line in str(caught.value).splitlines():
                assert line.startswith(f"{tmp_path / 'fan.flac'}: is ")
                assert "restore it" in line


@pytest.mark.parametrize(("form", "subtype"), [("WAV", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")])
def test_noise_of_which_a_part_is_missing_is_refused_whatever_its_decoder_says(
    tmp_path: Any, encode: Any, form: str, subtype: str
) -> None:
    whole = encode(np.random.default_rng(1).standard_normal(RATE_HZ * 4) * 0.05, form=form, subtype=subtype)
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError, match=r"fan\.\w+: is truncated or damaged: .*; restore it\."):
        Profile(f"file:{file}", 10.0)
