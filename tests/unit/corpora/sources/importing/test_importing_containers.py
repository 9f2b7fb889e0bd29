"""Audio of every format and container, whole, truncated, clipped or of unknown length, as it is imported.

The files are built from whole ones by hand, or by PyAV; what they must hold is the recordings that they were made of.
"""

import io
import json
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
import soxr

from corpora.annotation.boundary_review import review_reasons
from corpora.annotation.bounds import find_speech_bounds
from corpora.annotation.levels import active_speech_level_dbov
from corpora.annotation.lint import diagnostics
from corpora.sources.importing.conditioning import loudness_lufs, read_recording
from corpora.sources.importing.decoding import parse_raw_format
from corpora.sources.importing.items import Item, Settings
from corpora.sources.importing.pipeline import Outcome
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

FIRST, SECOND = 0, 1


def encoded(folder: Path, suffix: str, number: int) -> bytes:
    file = put(folder.parent / f"made-{number}.{suffix}", lossless(number))
    return file.read_bytes()


def imported(source: Path, name: str, content: bytes) -> tuple[Outcome, Samples]:
    """The import of one file, and its samples."""
    (source / name).write_bytes(content)
    outcome = import_source(source, source.parent / "out", loudness="none")
    samples, _ = soundfile.read(source.parent / "out" / outcome.imported[0].path)
    return outcome, samples


def refused(source: Path, name: str, content: bytes) -> str:
    (source / name).write_bytes(content)
    return faults_of(source)[0]


def lossless(number: int) -> Samples:
    return np.rint(speech(number) * 32_767) / 32_768


def wav(
    pcm: bytes, data: int | None = None, riff: int | None = None, head: bytes = b"RIFF", more: bytes = b""
) -> bytes:
    """A WAV file whose header states these sizes, with chunks before its samples."""
    form = more + b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16)
    stated = len(pcm) if data is None else data
    whole = 4 + len(form) + 8 + len(pcm) if riff is None else riff
    return head + struct.pack("<I", whole) + b"WAVE" + form + b"data" + struct.pack("<I", stated) + pcm


PCM = np.rint(speech(FIRST) * 32_767).astype("<i2").tobytes()
OPEN_DS64 = b"ds64" + struct.pack("<IQQQI", 28, 0, 0, 0, 0)
DS64 = b"ds64" + struct.pack("<IQQQI", 28, len(PCM) + 72, len(PCM), len(PCM) // 2, 0)


@pytest.mark.parametrize(
    "content",
    [
        wav(PCM, 0, 0),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF),
        wav(PCM, 2_000_000_000, 2_000_000_036),
        wav(PCM, 0x7FFFFFFF, 0x80000023),
        wav(PCM, 0x7FFFF000, 0x7FFFF024),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"RF64", OPEN_DS64),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"RF64", DS64),
        wav(PCM, 0xFFFFFFFF, 0xFFFFFFFF, b"BW64", DS64),
        wav(PCM[:16_000]) + PCM[16_000:],  # the header was written for the first piece
        wav(PCM, 16_000),
        wav(PCM) + b"C2PA" + struct.pack("<I", 60_000) + bytes(range(250)) * 240,
        b"ID3\4\0\0\0\0\0\x0a" + bytes(10) + wav(PCM),
        wav(PCM) + b"<?xpacket begin='' id='W5M0MpCehiHzreSzNTczkc9d'?>" * 200,
        wav(PCM) + bytes(range(128, 256)) * 8,  # less than 100 ms
        wav(PCM, more=b"bext" + struct.pack("<I", 5) + b"abcde\0"),
    ],
)
def test_all_wav_samples_are_read_for_any_length_in_header(source: Path, content: bytes) -> None:
    outcome, samples = imported(source, "a.wav", content)
    assert outcome.faults == ()
    np.testing.assert_array_equal(samples, lossless(FIRST))


@pytest.mark.parametrize("stated", [len(PCM) + 20_000, 1_800_000_000])
def test_wav_shorter_than_its_header_states_is_truncated(source: Path, stated: int) -> None:
    assert f"it promises {stated} bytes of sound and holds {len(PCM)}" in refused(source, "a.wav", wav(PCM, stated))


def test_a_flac_file_without_a_length_is_read(source: Path) -> None:
    content = bytearray(encoded(source, "flac", FIRST))
    content[21] &= 0xF0  # the number of samples, in 36 bits, and then the hash of the samples
    content[22:42] = bytes(20)
    _, samples = imported(source, "a.flac", bytes(content))
    np.testing.assert_array_equal(samples, lossless(FIRST))
    (source.parent / "out").rename(source.parent / "kept")
    assert "cannot be decoded" in refused(source, "a.flac", bytes(content[: len(content) * 2 // 3]))


def test_a_wave64_file_that_was_piped_is_read(source: Path) -> None:
    file = io.BytesIO()
    soundfile.write(file, lossless(FIRST), RATE_HZ, format="W64", subtype="PCM_16")
    content = bytearray(file.getvalue())
    data = content.index(b"data\xf3\xac")
    content[16:24], content[data + 16 : data + 24] = b"\xff" * 8, b"\xff" * 7 + b"\x7f"
    _, samples = imported(source, "a.w64", bytes(content))
    np.testing.assert_array_equal(samples[: len(lossless(FIRST))], lossless(FIRST))


def test_mp3_in_wav_is_read(source: Path) -> None:
    frames = encoded(source, "mp3", FIRST)
    form = struct.pack("<HHIIHHHHIHHH", 0x55, 1, RATE_HZ, 4_000, 1, 0, 12, 1, 2, 144, 1, 1_393)
    fact = b"fact" + struct.pack("<II", 4, len(speech(FIRST)) + 5_000)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + fact + b"data" + struct.pack("<I", len(frames)) + frames
    content = b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks + b"\0" * (len(frames) % 2)
    _, samples = imported(source, "a.wav", content)
    assert len(samples) == pytest.approx(len(speech(FIRST)), abs=0.15 * RATE_HZ)


@pytest.mark.parametrize("suffix", ["wav", "aiff", "flac"])
def test_lossless_files_after_one_another_are_one_recording(source: Path, suffix: str) -> None:
    content = encoded(source, suffix, FIRST) + encoded(source, suffix, SECOND)
    _, samples = imported(source, f"a.{suffix}", content)
    np.testing.assert_array_equal(samples, np.concatenate((lossless(FIRST), lossless(SECOND))))


@pytest.mark.parametrize("suffix", ["mp3", "opus", "ogg", "m4a"])
def test_coded_files_after_one_another_are_one_recording(source: Path, suffix: str) -> None:
    parts = [encoded(source, suffix, number) for number in (FIRST, SECOND, FIRST)]
    _, samples = imported(source, f"a.{suffix}", b"".join(parts))
    whole = np.concatenate([speech(number) for number in (FIRST, SECOND, FIRST)])
    assert len(samples) == pytest.approx(len(whole), abs=0.3 * RATE_HZ)
    third = len(speech(FIRST)) // 2
    assert np.corrcoef(envelope(samples[:third]), envelope(whole[:third]))[0, 1] > 0.8
    assert np.corrcoef(envelope(samples[-third:]), envelope(whole[-third:]))[0, 1] > 0.4, "the third is heard, too"


def envelope(samples: Samples) -> Samples:
    """The level of each 100 ms, so that a coder's delay does not matter."""
    hop = RATE_HZ // 10
    return np.sqrt(np.mean(np.square(samples[: len(samples) // hop * hop]).reshape(-1, hop), axis=1))


def test_a_cut_of_a_later_recording_of_a_file_is_that_part(source: Path) -> None:
    (source / "a.flac").write_bytes(encoded(source, "flac", FIRST) + encoded(source, "flac", SECOND))
    start = len(speech(FIRST)) / RATE_HZ
    end = start + len(speech(SECOND)) / RATE_HZ
    (source / "list.csv").write_text(f"path,text,start_s,end_s\na.flac,second,{start},{end}\n")
    outcome = import_source(source, source.parent / "out", loudness="none")
    samples, _ = soundfile.read(source.parent / "out" / outcome.imported[0].path)
    np.testing.assert_array_equal(samples, lossless(SECOND))


def muxed(tracks: int, form: str, codec: str, **options: str) -> bytes:
    """The first clip twice, in each track of a file."""
    file = io.BytesIO()
    pcm = np.tile(np.rint(speech(FIRST) * 32_767).astype(np.int16), 2)
    with av.open(file, "w", format=form, options=options) as container:
        streams = [container.add_stream(codec, rate=RATE_HZ, layout="mono") for _ in range(tracks)]
        for at in range(0, len(pcm), 1_024):
            for stream in streams:
                frame = av.AudioFrame.from_ndarray(pcm[None, at : at + 1_024], format="s16", layout="mono")
                frame.rate, frame.pts = RATE_HZ, at
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("flags", ["frag_keyframe", "frag_keyframe+empty_moov", "frag_keyframe+empty_moov+delay_moov"])
def test_every_fragment_of_an_m4a_file_is_read(source: Path, flags: str) -> None:
    content = muxed(1, "mp4", "aac", movflags=flags, frag_duration="1200000", use_editlist="1")
    assert content.count(b"moof") > 1
    _, samples = imported(source, "a.m4a", content)
    assert len(samples) == pytest.approx(2 * len(speech(FIRST)), abs=0.2 * RATE_HZ)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.mka", lambda: muxed(2, "matroska", "libopus"), "a.mka: contains 2 audio tracks, of which only one"),
        ("a.ogg", lambda: muxed(2, "ogg", "libopus"), "a.ogg: contains 2 audio tracks, of which only one"),
        ("a.wav", lambda: wav(PCM, riff=2 * len(PCM) + 44) + b"data" + struct.pack("<I", len(PCM)) + PCM,
         "a.wav: contains more than one chunk of samples"),
        ("a.wav", lambda: wav(PCM) * 300, "contains more than 256 recordings"),
    ],
)  # fmt: skip
def test_loss_on_import_is_named(source: Path, name: str, content: Any, says: str) -> None:
    assert says in refused(source, name, content())


def test_a_tag_that_promises_more_than_the_file_is_passed_over(source: Path) -> None:
    content = b"ID3\4\0\0\x7f\x7f\x7f\x7f" + encoded(source, "mp3", FIRST)
    assert "a.mp3: cannot be decoded" in refused(source, "a.mp3", content)


def test_recordings_of_different_formats_in_one_file_are_named(source: Path) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.column_stack((speech(SECOND), speech(SECOND))), 48_000, format="FLAC")
    sentence = refused(source, "a.flac", encoded(source, "flac", FIRST) + file.getvalue())
    assert sentence == (
        "a.flac: contains 2 recordings, of which the first has 16000 Hz and 1 channel and number 2 has 48000 Hz and "
        "2 channels; save each as its own file."
    )


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_U8", "ULAW", "ALAW", "FLOAT"])
def test_clipping_is_judged_before_the_level_is_set(source: Path, subtype: str) -> None:
    loud = np.clip(speech(FIRST) / np.max(np.abs(speech(FIRST))) * 3, -1, 1)
    soundfile.write(source / "loud.wav", loud, RATE_HZ, subtype=subtype)
    soundfile.write(source / "fine.wav", speech(SECOND), RATE_HZ, subtype=subtype)
    outcome = import_source(source, source.parent / "out", loudness="asl", level_db=-36.0)
    fine, clipped = sorted(outcome.imported, key=lambda utterance: utterance.id)
    assert "clipped" not in (fine.processing or "")
    assert "came clipped in " in (clipped.processing or "")
    samples, _ = soundfile.read(source.parent / "out" / clipped.path)
    assert np.max(np.abs(samples)) < 0.5, "nothing of it is at full scale any more"
    clipped = [diagnostic for diagnostic in diagnostics(source.parent / "out") if "clipped" in diagnostic]
    assert len(clipped) == 1
    assert "loud: came clipped in " in clipped[0]


def test_clipping_outside_cut_or_in_other_channel_does_not_count(source: Path) -> None:
    loud = np.clip(speech(FIRST) / np.max(np.abs(speech(FIRST))) * 3, -1, 1)
    both = np.concatenate((speech(SECOND), loud))
    soundfile.write(source / "a.wav", both, RATE_HZ)
    soundfile.write(source / "b.wav", np.column_stack((both, 0.1 * both)), RATE_HZ)
    end = len(speech(SECOND)) / RATE_HZ
    rows = [f"a.wav,cut,0,{end},", f"b.wav,quiet,0,{len(both) / RATE_HZ},1", f"b.wav,loud,0,{len(both) / RATE_HZ},0"]
    (source / "list.csv").write_text("\n".join(["path,text,start_s,end_s,channel", *rows]) + "\n")
    outcome = import_source(source, source.parent / "out", max_s=60.0)
    assert {clip.text: "came clipped" in (clip.processing or "") for clip in outcome.imported} == {
        "cut": False, "quiet": False, "loud": True,
    }  # fmt: skip


SETTINGS = Settings(license="CC0-1.0", consent="asked", label="test", loudness="none", level_db=0.0)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "ogg", "opus", "aiff", "m4a", "g722", "raw"])
def test_a_recording_of_each_format_keeps_its_text_and_bounds(tmp_path: Path, kind: str) -> None:
    samples = speech()
    put(tmp_path / "in" / f"clip.{kind}", samples, text="a text")
    outcome = import_source(tmp_path / "in", tmp_path / "out", raw=parse_raw_format("s16le:16000:1"))
    (utterance,) = opened(outcome).utterances
    assert (utterance.text, utterance.license, utterance.consent) == ("a text", "CC0-1.0", "asked by a test")
    truth = find_speech_bounds(samples, RATE_HZ)
    # An encoder may add a delay before the audio (AAC: twice 1024 samples); the length of the speech is unchanged.
    delay = utterance.speech_start_sample - truth.start_sample
    assert -160 <= delay <= (2_400 if kind in ("m4a", "mp3") else 160)
    assert utterance.speech_end_sample - truth.end_sample - delay == pytest.approx(0, abs=480)


def test_an_unprocessed_lossless_recording_keeps_every_sample(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.flac", speech())
    outcome = import_source(tmp_path / "in", tmp_path / "out", loudness="none", level_db=0.0)
    corpus = opened(outcome)
    assert np.array_equal(corpus.read(corpus.utterances[0]), speech())
    assert corpus.utterances[0].processing is None


@pytest.mark.parametrize(
    ("requested_hz", "from_hz", "to_hz"), [(None, 192_000, 48_000), (16_000, 44_100, 16_000), (None, 44_100, 44_100)]
)
def test_resampling_in_blocks_equals_resampling_at_once(
    tmp_path: Path, requested_hz: int | None, from_hz: int, to_hz: int
) -> None:
    wide = np.asarray(soxr.resample(speech(), RATE_HZ, from_hz, quality="VHQ")) * 0.5
    file = put(tmp_path / "a.wav", wide, from_hz)
    original, _ = soundfile.read(file)
    settings = Settings("", "", "x", rate_hz=requested_hz, loudness="none")
    samples, rate_hz, steps = read_recording(Item("a", file, "a.wav"), settings)
    assert rate_hz == to_hz
    assert steps == ([f"resampled from {from_hz} Hz"] if from_hz != to_hz else [])
    whole = np.asarray(soxr.resample(original, from_hz, to_hz, quality="VHQ")) if from_hz != to_hz else original
    assert len(samples) == len(whole)
    assert np.max(np.abs(samples - whole)) < 1e-4


def test_the_active_speech_level_is_set(tmp_path: Path) -> None:
    file = put(tmp_path / "a.wav", speech() * 0.1)
    settings = Settings("", "", "x", loudness="asl", level_db=-30.0)
    samples, rate_hz, steps = read_recording(Item("a", file, "a.wav"), settings)
    bounds = find_speech_bounds(samples, rate_hz)
    assert active_speech_level_dbov(samples, rate_hz, bounds.start_sample, bounds.end_sample) == pytest.approx(
        -30, abs=0.1
    )
    assert steps[0].endswith("dB to -30.0 dBov ASL")


def test_bs1770_loudness_follows_the_recommendation_and_is_set(tmp_path: Path) -> None:
    # BS.1770-4: a 997 Hz sine at 0 dBFS on one channel has -3.01 LKFS, so at -20 dBFS it has -23.01.
    sine = 0.1 * np.sin(2 * np.pi * 997 * np.arange(3 * 48_000) / 48_000)
    assert loudness_lufs(sine, 48_000) == pytest.approx(-23.01, abs=0.05)
    file = put(tmp_path / "a.wav", speech() * 0.3)
    samples, rate_hz, steps = read_recording(
        Item("a", file, "a.wav"), Settings("", "", "x", loudness="bs1770", level_db=-23.0)
    )
    assert loudness_lufs(samples, rate_hz) == pytest.approx(-23.0, abs=0.05)
    assert steps[0].endswith("dB to -23.0 LUFS")


def test_a_clip_shorter_than_a_bs1770_block_has_a_loudness() -> None:
    sine = 0.1 * np.sin(2 * np.pi * 997 * np.arange(48_000) / 48_000)
    assert loudness_lufs(sine[:4_800], 48_000) == pytest.approx(-23.01, abs=0.5)


def test_a_clip_is_not_raised_into_clipping(tmp_path: Path) -> None:
    clicked = speech() * 0.05
    clicked[5_000] = 0.9
    file = put(tmp_path / "a.wav", clicked)
    samples, _, steps = read_recording(Item("a", file, "a.wav"), Settings("", "", "x", loudness="asl", level_db=-16.0))
    assert np.max(np.abs(samples)) == pytest.approx(10 ** (-1 / 20), rel=1e-3)
    assert "short of it for its peak" in steps[0]


@pytest.mark.parametrize("channel", [0, 1])
def test_a_channel_can_be_chosen(tmp_path: Path, channel: int) -> None:
    both = np.stack((speech(0)[:12_000], speech(1)[:12_000]), axis=1)
    file = put(tmp_path / "a.wav", both)
    samples, _, steps = read_recording(Item("a", file, "a.wav", channel=channel), SETTINGS)
    assert np.max(np.abs(samples - both[:, channel])) < 1e-4
    assert steps == [f"channel {channel} of 2"]


def test_equal_channels_require_no_choice_and_can_be_mixed(tmp_path: Path) -> None:
    same = np.repeat(speech()[:, None], 2, axis=1)
    file = put(tmp_path / "a.wav", same)
    for channel in (None, "mix"):
        settings = Settings("", "", "x", loudness="none", channel=channel)  # pyright: ignore[reportArgumentType]
        samples, _, _ = read_recording(Item("a", file, "a.wav"), settings)
        assert np.max(np.abs(samples - speech())) < 1e-4


def test_doubtful_bounds_are_detected_by_uncertainty_and_edges(tmp_path: Path) -> None:
    clean = speech(3)  # a clip whose bounds stay sure after a change of level
    noise = np.random.default_rng(1).standard_normal(len(clean)) * 0.02
    put(tmp_path / "in" / "noisy.wav", clean + noise)
    put(tmp_path / "in" / "clean.wav", clean)
    bounds = find_speech_bounds(clean, RATE_HZ)
    put(tmp_path / "in" / "tight.wav", clean[bounds.start_sample + 800 : bounds.end_sample - 800])
    outcome = import_source(tmp_path / "in", tmp_path / "out")
    reasons = {utterance.id: " ".join(review_reasons(utterance, "recorded")) for utterance in outcome.imported}
    assert reasons["clean"] == ""
    assert "known only to" in reasons["noisy"]
    assert "begins where the clip does" in reasons["tight"]
    assert "ends where the clip does" in reasons["tight"]
    exact = {utterance.id: " ".join(review_reasons(utterance, "exact")) for utterance in outcome.imported}
    assert "begins where the clip does" in exact["tight"]
    assert not any(" ends " in reasons for reasons in exact.values()), "with exact edges, no end is in doubt"


def test_a_recording_without_a_text_is_imported(tmp_path: Path) -> None:
    put(tmp_path / "in" / "sub" / "yes.wav", speech(0), text="yes please")
    put(tmp_path / "in" / "sub" / "no.wav", speech(1))
    assert texts(import_source(tmp_path / "in", tmp_path / "out")) == {"yes": "yes please", "no": None}


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


def test_same_audio_at_two_speeds_is_two_utterances_on_append(source: Path) -> None:
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
