"""Tests of each stage of a profile: its effect, and that it does not delay the samples."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.rendering.profiles import opus
from corpora.rendering.profiles.channels import carry, decode_g722, packets_of
from corpora.rendering.profiles.grid import convolve, round_samples, round_taps
from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.packets import conceal
from corpora.rendering.profiles.profile import CHANNEL_WORDS, CODECS, Profile
from corpora.rendering.profiles.rooms import impulse_response
from corpora.rendering.profiles.stretch import stretch
from corpora.rendering.render import background, render
from tests import g711_reference
from tests.unit.corpora.conftest import encoded

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def english() -> Corpus:
    return open_corpus("voiceprobe-en")


def burst(rate_hz: int, at: int, length: int, count: int, seed: int = 3) -> NDArray[np.int16]:
    """Band-limited noise at a known position in silence, for exact measurements of a lag."""
    noise = np.random.default_rng(seed).standard_normal(length) * np.hanning(length) * 6000
    samples = np.zeros(count)
    samples[at : at + length] = noise
    taps = signal.firwin(129, (400, 3_000), pass_zero=False, fs=rate_hz)
    return np.rint(signal.oaconvolve(samples, taps)[64 : 64 + count]).astype(np.int16)


def lag_samples(out: NDArray[Any], reference: NDArray[Any]) -> float:
    """The lag of `out` behind `reference`, to a fraction of a sample."""
    correlation = signal.correlate(out.astype(float), reference.astype(float), "full", method="fft")
    peak = int(np.argmax(correlation))
    left, top, right = correlation[peak - 1 : peak + 2]
    return peak - (len(reference) - 1) + (left - right) / (2 * (left - 2 * top + right))


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("codec", [*CODECS, "opus:12", "opus:64"])
def test_a_codec_adds_no_delay(codec: str, rate_hz: int) -> None:
    sound = burst(rate_hz, rate_hz // 2, rate_hz // 10, rate_hz)
    output = carry(sound, rate_hz, (codec,), None)
    assert output.shape == sound.shape
    assert output.dtype == np.int16
    assert abs(lag_samples(output, sound)) < 1.0


@pytest.mark.parametrize(("codec", "law"), [("g711u", g711_reference.ULAW), ("g711a", g711_reference.ALAW)])
def test_g711_is_bit_exact(codec: str, law: g711_reference.Law) -> None:
    every = np.arange(-32_768, 32_768, dtype=np.int64).astype(np.int16)
    decoded = [law.decode(law.encode(sample)) for sample in every.tolist()]
    assert carry(every, 8_000, (codec,), None).tolist() == decoded


def test_the_telephone_band_ends_at_300_and_3400_hz() -> None:
    seconds = np.arange(16_000) / 16_000

    def gain_db(tone_hz: float) -> float:
        tone = np.rint(8_000 * np.sin(2 * np.pi * tone_hz * seconds)).astype(np.int16)
        output = carry(tone, 16_000, ("band",), None)[4_000:-4_000].astype(float)
        return 20 * np.log10(max(np.std(output), 1e-3) / np.std(tone[4_000:-4_000].astype(float)))

    assert max(abs(gain_db(tone_hz)) for tone_hz in (400, 1_000, 3_200)) < 0.2
    assert max(gain_db(tone_hz) for tone_hz in (150, 3_700, 5_000)) < -30


@pytest.mark.parametrize("rate_hz", [8_000, 24_000])
def test_a_lower_opus_bitrate_has_a_larger_error(english: Corpus, rate_hz: int) -> None:
    speech = render(english, english.utterances[0], Profile(), rate_hz, 1).pcm
    # The reference is the highest bitrate, because Opus's high-pass filter shifts low tones at any bitrate.
    output = [carry(speech, rate_hz, (f"opus:{kbit}",), None).astype(float) for kbit in (96, 6, 12, 32)]
    off = [float(np.std(variant - output[0])) for variant in output[1:]]
    assert off[0] > off[1] > off[2]


def test_opus_conceals_only_lost_packets(english: Corpus) -> None:
    speech = render(english, english.utterances[0], Profile(), 16_000, 1).pcm
    lost = np.zeros(packets_of(len(speech), 16_000), dtype=np.bool_)
    lost[40] = True
    whole = carry(speech, 16_000, ("opus",), None)
    concealed = carry(speech, 16_000, ("opus",), lost)
    lookahead = 104
    assert np.array_equal(concealed[: 40 * 320 - lookahead], whole[: 40 * 320 - lookahead])
    damaged = slice(40 * 320 - lookahead, 41 * 320 - lookahead)
    assert not np.array_equal(concealed[damaged], whole[damaged])
    assert concealed[damaged].any()  # concealed, not silenced


def test_the_opus_library_has_a_version() -> None:
    assert opus.missing() is None
    assert "libopus" in opus.library_version()


def test_without_libopus_an_opus_profile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "_library", lambda: None)
    with pytest.raises(CorpusError, match="Opus needs libopus, which was not found; install PyAV"):
        Profile(channel=("opus",))


def test_the_convolution_equals_that_of_integers() -> None:
    random = np.random.default_rng(5)
    samples, taps = round_samples(random.uniform(-1, 1, 5_000)), round_taps(random.uniform(-1, 1, 300))
    whole = np.convolve((samples * 2**20).astype(object), (taps * 2**14).astype(object))
    expected = [round(value / 2**14) for value in whole]  # to even, as rint does
    assert (convolve(samples, taps) * 2**20).astype(np.int64).tolist() == expected


@pytest.mark.parametrize(("room", "rt60"), [("0.3s", 0.3), ("0.8s", 0.8), ("far-field", 0.6)])
def test_a_room_has_the_requested_reverberation_time(room: str, rt60: float) -> None:
    taps, direct = impulse_response(room, RATE_HZ)
    assert direct == 0
    assert taps[0] == 1.0
    energy = np.cumsum(np.square(np.trim_zeros(taps, "b")[::-1]))[::-1]
    decay_db = 10 * np.log10(energy[round(0.01 * RATE_HZ) :] / energy[round(0.01 * RATE_HZ)])
    times = np.flatnonzero((decay_db < -5) & (decay_db > -25))  # the usual range, from -5 to -25 dB
    slope = np.polyfit(times / RATE_HZ, decay_db[times], 1)[0]
    assert -60 / slope == pytest.approx(rt60, rel=0.05)


def test_far_field_reflections_are_louder_than_direct_path() -> None:
    for room, ratio_db in (("0.4s", 6.0), ("far-field", -6.0)):
        taps, _ = impulse_response(room, RATE_HZ)
        assert -10 * np.log10(np.sum(np.square(taps[1:]))) == pytest.approx(ratio_db, abs=0.05)


def hall(direct: int, echoes: dict[int, float], size: int = 8_000) -> NDArray[np.float64]:
    """An impulse response with its direct path and echoes: relative levels by delay in samples."""
    taps = np.zeros(size)
    taps[direct] = 0.4
    for delay, level in echoes.items():
        taps[direct + delay] = 0.4 * level
    return taps


def test_impulse_response_is_drawn_from_folder_per_rendering(workshop: Any, tmp_path: Any) -> None:
    folder = tmp_path / "halls"
    folder.mkdir()
    # The loudest sample of the second is an echo, almost half a second after the direct path.
    for name, taps in (
        ("a", hall(700, {1_600: 0.5})),
        ("b", hall(50, {7_000: 1.3})),
        ("c", hall(3_000, {400: 0.7, 4_000: 0.3})),
    ):
        (folder / f"{name}.wav").write_bytes(encoded(taps, form="WAV", subtype="PCM_24"))
    workshop.add("one", seconds=0.5)
    workshop.add("two", seconds=0.7, seed=2)
    corpus = open_corpus(workshop.save())
    profile = Profile(room=f"file:{folder}")
    drawn: dict[str, set[str | None]] = {}
    for utterance in corpus.utterances:
        clean = render(corpus, utterance, Profile(), RATE_HZ, 1)
        for variant in range(12):
            wet = render(corpus, utterance, profile, RATE_HZ, 1, variant=variant)
            drawn.setdefault(utterance.id, set()).add(wet.obtained.room_response)
            assert (wet.speech_start_sample, wet.speech_end_sample) == (3_200, clean.speech_end_sample)
            before = np.abs(wet.pcm[: wet.speech_start_sample - 80].astype(float))
            assert before.max() < 0.003 * np.abs(wet.pcm.astype(float)).max()  # nothing precedes the speech
            first = slice(3_200, 3_500)  # only the direct path, before any echo
            assert abs(lag_samples(wet.pcm[first], clean.pcm[first])) < 0.5
            again = render(corpus, utterance, profile, RATE_HZ, 1, variant=variant)
            assert np.array_equal(again.pcm, wet.pcm)
    assert drawn == {"one": {"a.wav", "b.wav", "c.wav"}, "two": {"a.wav", "b.wav", "c.wav"}}


def test_a_single_impulse_response_is_not_random(tmp_path: Any) -> None:
    (tmp_path / "a.wav").write_bytes(encoded(hall(700, {}), form="WAV", subtype="PCM_24"))
    assert not Profile(room=f"file:{tmp_path / 'a.wav'}").varies
    assert not Profile(room=f"file:{tmp_path}").varies
    (tmp_path / "b.wav").write_bytes(encoded(hall(900, {}), form="WAV", subtype="PCM_24"))
    assert Profile(room=f"file:{tmp_path}").varies


def test_the_users_impulse_response_keeps_its_direct_path(tmp_path: Any) -> None:
    taps = np.zeros(4_000)
    taps[690:700], taps[700], taps[1_900] = 0.01, 0.8, 0.2  # a precursor, the direct path and one echo
    (tmp_path / "hall.wav").write_bytes(encoded(taps, form="WAV", subtype="PCM_24"))
    response, direct = impulse_response(f"file:{tmp_path / 'hall.wav'}", RATE_HZ)
    assert int(np.argmax(np.abs(response))) == direct == 10
    assert response[direct + 1_200] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("rate_hz", [8_000, 24_000])
def test_a_room_does_not_delay_the_speech_and_adds_a_tail(workshop: Any, rate_hz: int) -> None:
    workshop.add("one", seconds=1.0)
    corpus = open_corpus(workshop.save())
    clean = render(corpus, corpus.utterances[0], Profile(), rate_hz, 1)
    for room in ("0.4s", "far-field"):
        wet = render(corpus, corpus.utterances[0], Profile(room=room), rate_hz, 1)
        assert (wet.speech_start_sample, wet.speech_end_sample) == (clean.speech_start_sample, clean.speech_end_sample)
        assert abs(lag_samples(wet.pcm, clean.pcm)) < 0.5
        assert np.abs(wet.pcm[wet.speech_end_sample + rate_hz // 50 :]).max() > 100  # the reverberation continues
        assert wet.obtained.level_dbov == pytest.approx(-26.0, abs=0.05)


@pytest.mark.parametrize("factor", [0.8, 0.93, 1.0, 1.1, 1.25])
def test_stretched_speech_keeps_its_first_and_last_samples(factor: float) -> None:
    speech = round_samples(burst(RATE_HZ, 0, RATE_HZ, RATE_HZ) / 32_768.0)
    length = round(len(speech) / factor)
    changed = stretch(speech, length, RATE_HZ)
    quarter = round(0.0075 * RATE_HZ)
    assert len(changed) == length
    assert np.argmax(np.abs(changed[:quarter])) == np.argmax(np.abs(speech[:quarter]))
    assert abs(lag_samples(changed[:quarter], speech[:quarter])) < 0.5
    assert abs(lag_samples(changed[-quarter:], speech[-quarter:])) < 0.5


@pytest.mark.parametrize("length", [1, 2, 3, 5, 700])
def test_speech_of_a_few_samples_can_be_stretched(length: int) -> None:
    assert len(stretch(np.full(400, 0.1), length, RATE_HZ)) == min(length, max(400, length))


@pytest.mark.parametrize(("speed", "pitch"), [(0.8, 1.0), (1.25, 1.0), (1.0, 1.2), (1.0, 0.85), (1.1, 0.9)])
def test_speed_changes_only_length_and_pitch_only_frequency(workshop: Any, speed: float, pitch: float) -> None:
    seconds = np.arange(RATE_HZ) / RATE_HZ
    tone = np.concatenate((np.zeros(3_200), 0.2 * np.sin(2 * np.pi * 500 * seconds), np.zeros(3_200)))
    workshop.add("tone")
    workshop.replace("tone", encoded(tone))
    corpus = open_corpus(workshop.save())
    changed = render(corpus, corpus.utterances[0], Profile(speed=speed, pitch=pitch), 24_000, 1)
    length = changed.speech_end_sample - changed.speech_start_sample + 1
    assert length == round(24_000 / speed)
    middle = changed.pcm[changed.speech_start_sample + 4_000 : changed.speech_end_sample - 4_000].astype(float)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 2**18))
    assert np.argmax(spectrum) * 24_000 / 2**18 == pytest.approx(500 * pitch, rel=0.01)
    inside = np.abs(changed.pcm[changed.speech_start_sample : changed.speech_end_sample + 1].astype(float))
    assert np.abs(changed.pcm[: changed.speech_start_sample - 48]).max() < 0.02 * inside.max()
    assert np.abs(changed.pcm[changed.speech_end_sample + 49 :]).max() < 0.02 * inside.max()


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 48_000])
def test_concealment_repeats_and_fades_and_keeps_the_rest(rate_hz: int) -> None:
    sound = burst(rate_hz, 0, rate_hz, rate_hz)
    missing = np.zeros(packets_of(len(sound), rate_hz), dtype=np.bool_)
    missing[[10, 20, 21, 22, 23, 24]] = True
    output = conceal(sound, rate_hz, missing)
    edges = [round(packet * rate_hz / 50) for packet in range(51)]
    assert output.shape == sound.shape
    untouched = [packet for packet in range(50) if not missing[packet] and not missing[packet - 1]]
    for packet in untouched:
        assert np.array_equal(output[edges[packet] : edges[packet + 1]], sound[edges[packet] : edges[packet + 1]])
    loudness = [np.std(output[edges[packet] : edges[packet + 1]].astype(float)) for packet in range(19, 25)]
    assert loudness[0] > loudness[1] > loudness[2] > loudness[3] > loudness[4] == loudness[5] == 0.0
    assert not conceal(sound, rate_hz, np.ones(50, dtype=np.bool_)).any()


def test_gain_clipping_and_dc_change_the_samples(english: Corpus) -> None:
    utterance = english.utterances[0]
    clean = render(english, utterance, Profile(), 16_000, 1)
    amplified = render(english, utterance, Profile(gain_db=-6.0, dc=0.1), 16_000, 1)
    assert np.abs(amplified.pcm - (clean.pcm * 10 ** (-6 / 20) + 3_276.8)).max() < 1.0
    clipped = render(english, utterance, Profile(gain_db=12.0, clip_dbov=-12.0), 16_000, 1)
    assert np.abs(clipped.pcm.astype(int)).max() == round(32_768 * 10 ** (-12 / 20))
    assert clipped.obtained.clipped_ratio is not None
    assert 0.01 < clipped.obtained.clipped_ratio < 0.5
    assert amplified.obtained.clipped_ratio == 0.0
    assert clean.obtained.clipped_ratio is None


def test_the_measured_loss_is_that_of_the_packets_with_speech(english: Corpus) -> None:
    ratios = []
    for utterance in english.utterances[:30]:
        obtained = render(
            english, utterance, Profile(loss=PacketLoss(0.1, 2.0), jitter=Jitter(20, 60)), 8_000, 1
        ).obtained
        assert obtained.loss_ratio is not None
        assert obtained.late_ratio is not None
        ratios.append(obtained.loss_ratio)
    assert np.mean(ratios) == pytest.approx(0.1, abs=0.04)
    assert len(set(ratios)) > 5  # the measured loss differs between clips


@pytest.mark.parametrize("word", CHANNEL_WORDS)
def test_a_background_passes_through_the_same_channel(english: Corpus, word: str) -> None:
    noise = background(english, Profile("white", 10.0, channel=(word,)), 16_000, 2.0, 1)
    frequency_hz, density = signal.welch(noise.astype(float), 16_000, nperseg=1_024)
    inside = density[(frequency_hz > 500) & (frequency_hz < 3_000)].mean()
    assert density[frequency_hz > 4_200].mean() < inside * 1e-3


@pytest.mark.parametrize("noise", ["white", "brown", "hum", "hum-60", "music", "file"])
def test_a_background_is_as_loud_as_the_noise_under_the_speech(english: Corpus, noise: str, tmp_path: Any) -> None:
    if noise == "file":
        own = np.random.default_rng(1).standard_normal(RATE_HZ * 3) * 0.05
        (tmp_path / "fan.wav").write_bytes(encoded(own, form="WAV"))
        noise = f"file:{tmp_path}"
    profile = Profile(noise, 12.0)
    utterance = next(candidate for candidate in english.utterances if candidate.length == "long")
    noisy, clean = (
        render(english, utterance, with_profile, 16_000, 1).pcm.astype(float) for with_profile in (profile, Profile())
    )
    under = noisy - clean
    line = background(english, profile, 16_000, 10.0, 1)
    levels = [20 * np.log10(np.std(pcm.astype(float))) for pcm in (under, line)]
    assert levels[0] == pytest.approx(levels[1], abs=1.5)


def test_hum_continues_from_the_background_into_the_utterance(english: Corpus) -> None:
    line = background(english, Profile("hum", 10.0), 16_000, 1.0, 1)
    assert np.array_equal(line[:-320], line[320:])  # 50 Hz: one period per frame of 20 ms
    utterance = english.utterances[0]
    clean, noisy = (
        render(english, utterance, with_profile, 16_000, 1).pcm for with_profile in (Profile(), Profile("hum", 10.0))
    )
    under = noisy.astype(float)[:320] - clean[:320]
    assert np.corrcoef(under, line[:320])[0, 1] > 0.999


PINNED = {
    "brown-10dB": "3d70e023cfa9a20b",
    "hum-10dB": "0917f98f926b4ce4",
    "hum-60-10dB": "e0f6798a7434c57f",
    "music-10dB": "7ddfbae5e2364a8f",
    "telephone": "33b1e58c461e9f7d",
    "telephone-a": "6f8b92c38e0935dd",
    "g722": "9742f4837568830d",
    "gsm": "2a260ac56c01893c",
    "room-0.4s": "7d1565fdb372b00c",
    "far-field": "7bd0068b5c0ae3af",
    "speed-1.2": "e7555e18499d06ec",
    "pitch-0.9": "e5b7d3604351331d",
    "pink-15dB+telephone+loss-10%/2+jitter-20ms/40ms+gain-6dB+dc-0.01": "af66a922833247a2",
}


def test_the_bytes_of_every_stage_are_pinned(english: Corpus) -> None:
    """Fails if another processor or library gives other bytes.

    All stages but Opus use integers, tables, or values on a grid, so their bytes are the same on any machine. Opus uses
    floating point, so its bytes depend on the version of its library.
    """
    english = replace(english, edges="recorded")
    profiles = [
        *(Profile(noise, 10.0) for noise in ("brown", "hum", "hum-60", "music")),
        *(Profile(channel=(word,)) for word in (*CHANNEL_WORDS, "g722", "gsm")),
        *(Profile(room=room) for room in ("0.4s", "far-field")),
        Profile(speed=1.2),
        Profile(pitch=0.9),
        Profile(
            "pink", 15.0, channel=("telephone",), loss=PacketLoss(0.1, 2.0), jitter=Jitter(20, 40), gain_db=6, dc=0.01
        ),
    ]
    digests: dict[str, str] = {}
    for profile in profiles:
        rendered = render(english, english.utterances[3], profile, 16_000, 2026)
        line = background(english, profile, 16_000, 0.5, 2026)
        content = rendered.pcm.astype("<i2").tobytes() + line.astype("<i2").tobytes()
        digests[profile.label] = hashlib.sha256(content).hexdigest()[:16]
    assert digests == PINNED


def test_g722_octets_decode_to_the_samples_of_the_recommendation() -> None:
    """The hash is of what a decoder written from the Recommendation, without FFmpeg, makes of octets of all values."""
    octets = b"".join(hashlib.sha256(f"b-{number}".encode()).digest() for number in range(50))
    assert hashlib.sha256(decode_g722(octets).astype("<i2").tobytes()).hexdigest() == (
        "e772e1c96dc16b81f029685e42f641ff7623adacbe3cdf66125603d677cde808"
    )
    assert len(decode_g722(b"")) == 0
