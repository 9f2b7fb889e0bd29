"""A file's header at the beginning of a reply's raw audio: said so, and never taken for sound."""

import io
import struct
import wave

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.outcome import failure_of
from loadtest.protocols.base import EventKind
from loadtest.protocols.failure import Failure
from tests.unit.loadtest.conversation.world import MS, RATE_HZ, World, audio, event, make_plan, silence, tone

DONE = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed")
QUIET_MS = 100
SOUND = silence(QUIET_MS) + tone(200)
# What follows the samples in files of some services: 1.7 s of bytes that are loud when they are played as PCM.
SIGNED = b"C2PA" + struct.pack("<I", 80_000) + b"\0\0\1\0jumb" + bytes(range(32, 232)) * 400
LIST = b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 14) + b"Lavf61.7.100\0\0"
# A frame of 200 bytes, its length in the 13 bits from the fourth byte's last two on.
AAC = (b"\xff\xf1\x60\x40\x19\x1f\xfc" + bytes(range(1, 194))) * 20
# MP3 of 128 kbit/s at 44.1 kHz: a frame is 417 bytes, so the second header stands there.
MP3 = (b"\xff\xfb\x90\x64" + bytes(range(1, 200)) * 3)[:417] * 12


def wav(pcm: bytes = SOUND, rate_hz: int = RATE_HZ, channels: int = 1, size: int | None = None) -> bytes:
    """A WAV file, of which `size` may be stated instead of its own."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(channels)
        written.setsampwidth(2)
        written.setframerate(rate_hz)
        written.writeframes(pcm)
    made = bytearray(file.getvalue())
    if size is not None:
        made[40:44] = struct.pack("<I", size)
    return bytes(made)


def heard(content: bytes, piece: int = 960, rate_hz: int = RATE_HZ) -> Exchange:
    """The turn of a caller to whom these bytes were sent as raw audio of a reply, all at once but in pieces."""
    world = World(make_plan(2, manual=True, reply_ms=2_000)).speak().after(300)
    content += bytes(len(content) % 2)
    pieces = [content[at : at + piece] for at in range(0, len(content), piece)]
    started = event(EventKind.RESPONSE_STARTED, response_id="r1")
    return world.hear(started, *(audio(each, rate_hz=rate_hz) for each in pieces), DONE).after(6_000).exchanges[0]


def onset_ms(turn: Exchange) -> float | None:
    timeline = turn.timeline
    first = timeline.nearest.first_audio_perf_ns if timeline.nearest else None
    return None if first is None else (first - (timeline.speech_end_perf_ns or 0)) / MS


@pytest.mark.slow
@pytest.mark.parametrize("piece", [2, 6, 44, 50, 960, 1_000_000])
@pytest.mark.parametrize(
    "file",
    [wav(), wav(size=0), wav(size=0xFFFFFFFF), wav(size=400), wav() + SIGNED, wav(size=0) + SIGNED, wav() + LIST],
    ids=["plain", "no length", "unknown length", "length of a piece", "C2PA", "C2PA, no length", "LIST"],
)
def test_the_header_of_a_wav_file_is_no_onset_and_what_follows_its_samples_no_speech(file: bytes, piece: int) -> None:
    turn = heard(file, piece)
    header_ms = 44 / 2 / RATE_HZ * 1_000
    assert onset_ms(turn) == pytest.approx(300 + header_ms + QUIET_MS, abs=1)
    assert turn.outcome == "ok"
    assert "a WAV header" in (turn.reason or "")
    answer = turn.timeline.answer
    assert answer is not None
    assert answer.playback is not None
    last = answer.playback.last_audio_perf_ns or 0
    speech_end = turn.timeline.speech_end_perf_ns or 0
    assert (last - speech_end) / MS == pytest.approx(300 + header_ms + QUIET_MS + 200, abs=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"OggS\0\2" + tone(400), "a file of Ogg"),
        (b"ID3\4\0\0" + tone(400), "a file of MP3"),
        (MP3, "a file of MP3"),
        (AAC, "a file of AAC"),
        (b"fLaC\0\0\0\x22" + tone(400), "a file of FLAC"),
        (b"\0\0\0\x1cftypM4A " + tone(400), "a file of MP4"),
        (b"\x1aE\xdf\xa3\1\0" + tone(400), "a file of WebM"),
        (wav(tone(400), channels=2), "WAV of kind 1 with 2 channels of 16 bits"),
    ],
    ids=["Ogg", "ID3", "MP3", "AAC", "FLAC", "MP4", "WebM", "stereo WAV"],
)
def test_a_file_in_another_format_is_no_answer(content: bytes, says: str) -> None:
    turn = heard(content)
    assert onset_ms(turn) is None
    assert turn.outcome == "error"
    assert says in (turn.reason or "")
    assert failure_of(turn) == Failure("bad_audio", "file_header")


def test_an_mp3_in_one_byte_pieces_of_a_sample_is_found_when_its_second_frame_comes() -> None:
    turn = heard(MP3, 2)
    assert (onset_ms(turn), turn.outcome) == (None, "error")


def _telephone(octets: bytes) -> bytes:
    return np.asarray(g711.ulaw_decode(octets), "<i2").tobytes()


def test_a_file_in_ulaw_is_found_in_what_was_decoded_of_it() -> None:
    samples = g711.ulaw_encode(np.frombuffer(tone(300), "<i2"))
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", 16, 7, 1, 8000, 8000, 1, 8, b"data", 0)
    turn = heard(_telephone(header + samples), rate_hz=8_000)
    assert onset_ms(turn) == pytest.approx(300 + 44 / 8, abs=1)
    assert turn.outcome == "ok"
    turn = heard(_telephone(wav(tone(300), rate_hz=8_000)), rate_hz=8_000)
    assert (onset_ms(turn), turn.outcome) == (None, "error"), "16-bit samples, heard as µ-law, are noise"
    turn = heard(_telephone(b"OggS" + bytes(range(256)) * 8), rate_hz=8_000)
    assert (onset_ms(turn), turn.outcome) == (None, "error")


def test_a_wav_file_of_another_rate_is_heard_and_named() -> None:
    turn = heard(wav(rate_hz=22_050))
    assert turn.outcome == "ok"
    assert f"a WAV header (of 22050 Hz, where {RATE_HZ} Hz were agreed)" in (turn.reason or "")


@pytest.mark.parametrize(
    "pcm",
    [
        struct.pack("<2h", -1_025, 100) + tone(300),  # FF FB 64 00: a sync word, and no frame after it
        struct.pack("<2h", -1_025, 0x6490) + tone(300),  # FF FB 90 64: the header of a frame, and no second one
        b"RI" + tone(300),
        bytes(12) + tone(300),
    ],
)
@pytest.mark.parametrize("piece", [2, 320])
def test_samples_that_look_like_the_beginning_of_a_file_are_samples(pcm: bytes, piece: int) -> None:
    turn = heard(pcm, piece)
    assert onset_ms(turn) == pytest.approx(300, abs=1)
    assert (turn.outcome, turn.reason) == ("ok", None)


def test_quiet_telephone_audio_that_looks_like_a_frame_of_mpeg_is_audio() -> None:
    quiet = b"\xff\xfb\x90\x64" + b"\xff" * 100 + g711.ulaw_encode(np.frombuffer(tone(60), "<i2"))
    turn = heard(_telephone(quiet), rate_hz=8_000)
    assert turn.outcome == "ok", "a reply that is shorter than such a frame is heard, too"
    assert onset_ms(turn) == pytest.approx(300, abs=15)
