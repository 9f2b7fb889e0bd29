"""Profiles from texts, tables and the user's own sounds, with all faults at once; lost and late packets by theory."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles import opus
from corpora.rendering.profiles.files import read_sounds
from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.packets import late_packets, lost_packets
from corpora.rendering.profiles.parsing import profile_from_table, profile_from_text
from corpora.rendering.profiles.profile import Profile
from tests.unit.corpora.conftest import encoded


def test_a_text_and_a_table_give_the_same_profile() -> None:
    text = "noise=babble snr=10 speed=1.1 pitch=0.95 room=0.4s level=-24 channel=band+opus:16 loss=5%/3/80% "
    text += "jitter=20ms/60ms gain=-3 clip=-6 dc=0.02"
    table = {
        "noise": "babble",
        "snr": 10,
        "speed": 1.1,
        "pitch": 0.95,
        "room": 0.4,
        "level": -24,
        "channel": "band+opus:16",
        "loss": "5%/3/80%",
        "jitter": "20/60",
        "gain": -3,
        "clip": -6,
        "dc": 0.02,
    }
    expected_profile = Profile(
        noise="babble",
        snr_db=10.0,
        speed=1.1,
        pitch=0.95,
        room="0.4s",
        level_dbov=-24.0,
        channel=("band", "opus:16"),
        loss=PacketLoss(0.05, 3.0, 0.8),
        jitter=Jitter(20.0, 60.0),
        gain_db=-3.0,
        clip_dbov=-6.0,
        dc=0.02,
    )
    assert profile_from_text(text) == profile_from_table(table) == expected_profile
    assert profile_from_text(text).digest == expected_profile.digest


@pytest.mark.parametrize(
    ("text", "label", "noise", "channel"),
    [
        ("", "clean", "clean", "clean"),
        ("clean", "clean", "clean", "clean"),
        ("noise=pink snr=-2.5", "pink--2.5dB", "pink", "clean"),
        ("channel=telephone loss=5%", "telephone+loss-5%", "clean", "telephone+loss-5%"),
        ("noise=hum snr=20 room=far-field", "hum-20dB+far-field", "hum", "far-field"),
        ("loss=0.01/4 jitter=10/30", "loss-1%/4+jitter-10ms/30ms", "clean", "loss-1%/4+jitter-10ms/30ms"),
        ("speed=1.2 level=-30", "speed-1.2+level--30dBov", "clean", "speed-1.2+level--30dBov"),
    ],
)
def test_labels(text: str, label: str, noise: str, channel: str) -> None:
    profile = profile_from_text(text)
    assert (profile.label, profile.noise_label, profile.channel_label) == (label, noise, channel)


def test_all_faults_are_reported_at_once() -> None:
    text = "nois=pink snr=loud speed=3 room=kitchen channel=telefax+opus:900 loss=120% jitter=20 gain=99 clip=3 dc=2"
    with pytest.raises(CorpusError) as caught:
        profile_from_text(text)
    lines = str(caught.value).splitlines()
    for start in (
        "nois: is not a key of a profile; did you mean noise?",
        "snr: 'loud' is not a number",
        "jitter: '20' is not a jitter; write mean delay and buffer",
        "A speed of 3 cannot be rendered; use 0.8 to 1.25.",
        "The room 'kitchen' is unknown; use a reverberation time",
        "The channel 'telefax' is unknown; use any of telephone, telephone-a, band,",
        "The Opus bitrate must be 6 to 128 kbit/s, as in opus:24, got '900'.",
        "The loss must be above 0 % and below 100 % of the packets, got 1.2.",
        "A gain of 99 dB cannot be rendered",
        "Clipping at 3 dBov cannot be rendered",
        "A DC offset of 2 of full scale cannot be rendered",
    ):
        assert any(line.startswith(start) for line in lines), start
    assert len(lines) == 11


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("telephone", "'telephone' is not part of a profile; write key=value"),
        ("snr=1 snr=2 noise=white", "snr: is given twice"),
        ("noise='white", "close the quotes"),
        ("loss=5%/2/90%/1", "has too many parts"),
        ("loss=5%/0.5", "The length of a burst must be 1 to 100 packets, got 0.5"),
        ("loss=80%/1", "use longer bursts"),
        ("loss=50%/2/40%", "The loss must be below the loss inside bursts"),
        ("loss=5%/2/0%", "The loss inside bursts must be above 0 %"),
        ("speed=nan", "speed: 'nan' is not a number"),
        ("room=0.01s", "use a reverberation time from 0.05s"),
        ("level=-60", "A level of -60 dBov cannot be rendered"),
        ("level=-40 noise=white snr=45", "would be lost in the quantization noise of 16 bits"),
        ("noise=white", "The noise white requires an SNR"),
        ("snr=3", "An SNR requires a noise"),
        ("jitter=0ms/0ms", "A jitter of 0 ms with a buffer of 0 ms is out of range"),
        ("noise=file:/nowhere/at/all snr=3", "/nowhere/at/all: is neither a sound file nor a folder"),
    ],
)
def test_an_invalid_text_is_an_error(text: str, expected: str) -> None:
    with pytest.raises(CorpusError) as caught:
        profile_from_text(text)
    assert expected in str(caught.value)


def test_a_table_with_values_of_wrong_types_is_an_error(tmp_path: Path) -> None:
    for table, expected in (
        ({"noise": 3}, "noise: 3 is not a text"),
        ({"snr": True, "noise": "white"}, "snr: True is not a number"),
        ({"channel": ""}, "channel: '' is not a text"),
        ({"snr": [1]}, "snr: [1] is not a number"),
    ):
        with pytest.raises(CorpusError) as caught:
            profile_from_table(table)
        assert expected in str(caught.value)


def test_noise_file_of_user_has_content_digest_and_file_name(tmp_path: Path) -> None:
    sound = [0.1, -0.1] * 400
    cafe, copy, other = tmp_path / "cafe.wav", tmp_path / "copy.wav", tmp_path / "other.wav"
    for file in (cafe, copy):
        file.write_bytes(encoded(sound, form="WAV"))
    other.write_bytes(encoded(sound[::-1], form="WAV"))
    profiles = [profile_from_text(f"noise='file:{file}' snr=5") for file in (cafe, copy, other)]
    assert profiles[0].label == "cafe-5dB"
    assert profiles[0].digest == profiles[1].digest != profiles[2].digest
    cafe.write_bytes(encoded(sound[::-1] * 2, form="WAV"))
    assert profile_from_text(f"noise=file:{cafe} snr=5").digest != profiles[0].digest


def test_a_folder_of_noise(tmp_path: Path) -> None:
    folder = tmp_path / "street"
    folder.mkdir()
    with pytest.raises(CorpusError, match="contains no sound files"):
        profile_from_text(f"noise=file:{folder} snr=5")
    (folder / "a.wav").write_bytes(b"no sound")
    with pytest.raises(CorpusError, match=r"a\.wav: cannot be decoded to its end"):
        profile_from_text(f"noise=file:{folder} snr=5")
    (folder / "a.wav").write_bytes(encoded([0.1] * 100, form="WAV"))
    assert profile_from_text(f"noise=file:{folder} snr=5").label == "street-5dB"


def test_digests_differ_by_profile_and_by_opus_library(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "noise=pink snr=5", "noise=pink snr=6", "noise=white snr=5", "room=0.4s", "room=0.5s", "speed=1.1"]
    texts += ["channel=g711u", "channel=g711a", "channel=opus", "channel=opus:12", "loss=1%", "loss=1%/2", "pitch=1.1"]
    texts += ["jitter=10/30", "gain=1", "clip=-1", "dc=0.1", "level=-25", "room=far-field"]
    digests = {text: profile_from_text(text).digest for text in texts}
    assert len(set(digests.values())) == len(texts)
    monkeypatch.setattr(opus, "library_version", lambda: "libopus 99")
    assert profile_from_text("channel=opus").digest != digests["channel=opus"]
    assert profile_from_text("channel=g711u").digest == digests["channel=g711u"]


RATE_HZ = 16_000


@pytest.mark.parametrize(
    ("form", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")]
)
def test_a_sound_file_is_read_to_its_end(tmp_path: Any, form: str, subtype: str) -> None:
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(encoded(np.random.default_rng(1).standard_normal(RATE_HZ * 2) * 0.05, form=form, subtype=subtype))
    assert Profile(f"file:{file}", 10.0).varies
    assert len(read_sounds(f"file:{file}", RATE_HZ)) == pytest.approx(2 * RATE_HZ, abs=1_200)


@pytest.mark.parametrize("part", ["noise", "room"])
def test_truncated_sound_file_is_one_sentence_before_rendering(tmp_path: Any, part: str) -> None:
    whole = encoded(np.random.default_rng(1).standard_normal(RATE_HZ * 4) * 0.05)
    for kept in (0.3, 0.6, 0.95):
        (tmp_path / "fan.flac").write_bytes(whole[: round(len(whole) * kept)])
        for path in (tmp_path, tmp_path / "fan.flac"):
            with pytest.raises(CorpusError) as caught:
                Profile("white" if part == "room" else f"file:{path}", 10.0, room=f"file:{path}")
            for line in str(caught.value).splitlines():
                file = tmp_path / "fan.flac"
                assert line.startswith((f"{file}: is truncated", f"{file}: cannot be decoded"))
                assert "restore it" in line


@pytest.mark.parametrize("stated", [0, 16_000, 2_000_000_000, 0xFFFFFFFF])
def test_noise_with_wrong_length_in_header_is_read_to_its_end(tmp_path: Any, stated: int) -> None:
    content = bytearray(encoded(np.random.default_rng(1).standard_normal(RATE_HZ * 2) * 0.05, form="WAV"))
    at = content.index(b"data") + 4
    content[at : at + 4] = stated.to_bytes(4, "little")
    (tmp_path / "fan.wav").write_bytes(content)
    assert len(read_sounds(f"file:{tmp_path / 'fan.wav'}", RATE_HZ)) == 2 * RATE_HZ


@pytest.mark.parametrize(("form", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")])
def test_noise_after_other_noise_in_one_file_is_named(tmp_path: Any, form: str, subtype: str) -> None:
    whole = encoded(np.random.default_rng(1).standard_normal(RATE_HZ) * 0.05, form=form, subtype=subtype)
    file = tmp_path / f"fan.{form.lower()}"
    file.write_bytes(whole + whole)
    with pytest.raises(CorpusError, match="contains 2 recordings; save each as its own file"):
        Profile(f"file:{file}", 10.0)


@pytest.mark.parametrize(
    "loss",
    [PacketLoss(0.05), PacketLoss(0.1, 4.0), PacketLoss(0.2, 8.0, 0.6), PacketLoss(0.01, 2.0)],
    ids=lambda loss: loss.label,
)
def test_loss_has_the_requested_rate_and_bursts(loss: PacketLoss) -> None:
    lost = lost_packets(loss, 200_000, 7)
    assert np.mean(lost) == pytest.approx(loss.ratio, rel=0.1)
    if loss.burst_packets is not None and loss.bad_loss == 1.0:
        runs = [len(list(run)) for is_lost, run in itertools.groupby(lost.tolist()) if is_lost]
        assert np.mean(runs) == pytest.approx(loss.burst_packets, rel=0.1)
    assert np.array_equal(lost, lost_packets(loss, 200_000, 7))
    assert np.array_equal(lost[:50], lost_packets(loss, 50, 7))
    assert not np.array_equal(lost, lost_packets(loss, 200_000, 8))


@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.2])
def test_loss_without_bursts_is_independent_per_packet(ratio: float) -> None:
    packets = 400_000
    lost = lost_packets(PacketLoss(ratio), packets, 11)
    # Both are counts of independent events: single losses, and two losses in a row.
    for observed, expected in ((np.sum(lost), ratio * packets), (np.sum(lost[1:] & lost[:-1]), ratio**2 * packets)):
        assert abs(observed - expected) < 4 * np.sqrt(expected * (1 + 2 * ratio))
    runs = np.array([len(list(run)) for is_lost, run in itertools.groupby(lost.tolist()) if is_lost])
    lengths = np.arange(1, 4)
    expected_counts = len(runs) * (1 - ratio) * ratio ** (lengths - 1.0)
    counts = np.array([np.sum(runs == length) for length in lengths])
    assert np.all(np.abs(counts - expected_counts) < 4 * np.sqrt(expected_counts) + 1)


@pytest.mark.parametrize(
    "loss", [PacketLoss(0.05, 3.0), PacketLoss(0.1, 1.0), PacketLoss(0.2, 8.0, 0.6)], ids=lambda loss: loss.label
)
def test_losses_in_bursts_follow_the_two_state_markov_chain(loss: PacketLoss) -> None:
    """Compare how often two packets some steps apart are both lost with powers of the transition matrix."""
    packets = 400_000
    lost = lost_packets(loss, packets, 12).astype(float)
    bad = loss.ratio / loss.bad_loss
    leave = 1 / (loss.burst_packets or 1)
    transitions = np.array([[1 - bad * leave / (1 - bad), bad * leave / (1 - bad)], [leave, 1 - leave]])
    for step in (1, 2, 3, 5, 10):
        again = bad * np.linalg.matrix_power(transitions, step)[1, 1] * loss.bad_loss**2
        assert np.mean(lost[step:] * lost[:-step]) == pytest.approx(again, rel=0.08, abs=2e-4)


def test_a_deeper_buffer_has_fewer_late_packets() -> None:
    shares = [np.mean(late_packets(Jitter(20.0, buffer), 100_000, 1)) for buffer in (20.0, 40.0, 80.0)]
    assert shares == pytest.approx([np.exp(-1), np.exp(-2), np.exp(-4)], rel=0.1)
