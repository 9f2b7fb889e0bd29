"""Replies of raw audio: the end by silence, further frames of one, and a file's header at its beginning."""

import io
import itertools
import struct
import wave
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadtest.audio import g711
from loadtest.conversation.conversation import NO_CHANGE
from loadtest.conversation.exchange import Exchange, Interrupt, Say
from loadtest.conversation.outcome import failure_of
from loadtest.conversation.plan import Backchannel, CallPlan, ReplyPoint
from loadtest.conversation.record import build_turn
from loadtest.conversation.state import State
from loadtest.conversation.wire import WireTraits
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.failure import Failure
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.test_conversation_record import CALL, OPTIONS
from tests.unit.loadtest.conversation.world import (
    MS,
    RATE_HZ,
    World,
    audio,
    event,
    make_clip,
    make_plan,
    reply,
    silence,
    tone,
)

BARGE_IN = ReplyPoint(after_ns=500 * MS)


def piece(ms: int = 200) -> VoiceEvent:
    """Audio of a reply that has no name."""
    return audio(tone(ms), None)


def plan(*turns: dict[str, Any], silence_ms: int = 1_000, longest_ms: int = 120_000, **options: Any) -> CallPlan:
    base = make_plan(**options)
    limits = replace(base.limits, reply_silence_ns=silence_ms * MS, longest_reply_ns=longest_ms * MS)
    return replace(base, turns=tuple(replace(base.turns[0], **changes) for changes in turns or ({},)), limits=limits)


def quiet(*turns: dict[str, Any], **options: Any) -> World:
    return World(plan(*turns, **options), wire=WireTraits(closes_replies=False, closes_questions=False))


def turn(world: World, index: int = -1) -> Turn:
    return build_turn(world.exchanges[index], CALL, OPTIONS)


def test_reply_ends_after_one_second_without_audio() -> None:
    world = quiet().speak().after(300)
    heard = world.now
    world.hear(piece(500)).after(1_480)
    assert world.conversation.state is State.HEARING
    world.after(20)
    exchange = world.last
    assert (exchange.outcome, exchange.reason) == ("ok", None)
    answer = exchange.timeline.answer
    assert answer is not None
    assert answer.done_perf_ns == heard, "the arrival of the last audio"
    record = turn(world)
    assert record.first_audio_perf_ns == heard
    assert record.reply_end_perf_ns == pytest.approx(heard + 500 * MS, abs=MS)
    assert record.underrun_count == 0, "silence at the end is no underrun"
    assert record.reply_audio_ns == 500 * MS
    assert record.response_id is None


@pytest.mark.parametrize("pause_ms", [20, 500, 980])
def test_a_pause_that_is_shorter_does_not_end_it(pause_ms: int) -> None:
    world = quiet().speak().after(300).hear(piece(200)).after(200 + pause_ms).hear(piece(200))
    heard = world.now
    world.after(1_300)
    (exchange,) = world.exchanges
    assert len(exchange.timeline.replies) == 1
    record = turn(world)
    assert record.reply_end_perf_ns == pytest.approx(heard + 200 * MS, abs=MS)
    assert (record.underrun_count, record.underrun_worst_ns) == (1, pause_ms * MS), "a player starves in the pause"


def test_a_pause_of_silent_samples_is_part_of_it_and_no_underrun() -> None:
    world = quiet().speak().after(300).hear(piece(200), audio(silence(1_500), None), piece(200))
    world.after(2_880)
    assert not world.exchanges
    world.after(20)
    record = turn(world)
    assert (record.outcome, record.underrun_count, record.reply_audio_ns) == ("ok", 0, 1_900 * MS)


def test_reply_sent_faster_than_real_time_is_played_to_end() -> None:
    world = quiet().speak().hear(*[piece(1_000)] * 8).after(8_980)
    assert world.conversation.state is State.HEARING
    world.after(20)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]


def test_the_length_of_the_silence_is_a_setting() -> None:
    world = quiet(silence_ms=300).speak().hear(piece(200)).after(480)
    assert not world.exchanges
    assert world.after(20).last.outcome == "ok"


def test_reply_silence_is_never_longer_than_reply_timeout() -> None:
    world = quiet(silence_ms=3_000, reply_ms=600).speak().hear(piece(200)).after(780)
    assert not world.exchanges
    assert (world.after(20).last.outcome, world.last.reason) == ("ok", None)


def test_late_audio_belongs_to_no_turn_and_next_has_own_name() -> None:
    world = quiet({}, {}).speak().hear(piece(200)).after(1_200)
    first = world.last
    world.hear(piece(100))  # an afterthought
    world.after(600)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(1_000).speech_ends().after(300)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert [exchange.outcome for exchange in world.exchanges] == ["ok", "ok"]
    assert first.timeline.answer is not None
    assert world.last.timeline.first_audio_perf_ns == answered


@pytest.mark.parametrize("speech_ms", [200, 1_000])
@pytest.mark.parametrize("think_ms", [0, 500])
def test_a_greeting_before_the_first_question_does_not_answer_it(speech_ms: int, think_ms: int) -> None:
    world = quiet(think_ms=think_ms).hear(piece(700)).after(600)
    assert not world.actions, "the caller hears the greeting out"
    world.after(100 + think_ms + 20)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(speech_ms).speech_ends().after(280)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)
    assert world.last.timeline.early_replies == 0


def test_a_greeting_alone_is_no_answer() -> None:
    world = quiet(reply_ms=2_000).hear(piece(300)).after(300).speak().after(2_000)
    assert world.last.outcome == "no_reply"


def test_the_rest_of_a_greeting_that_pauses_is_no_answer() -> None:
    world = quiet(think_ms=100, reply_ms=2_000).hear(piece(300)).after(420)
    assert isinstance(world.actions[-1], Say)
    world.speech_starts().after(200).hear(piece(100)).after(800).speech_ends().after(2_000)
    assert world.last.outcome == "no_reply"


def test_replies_that_queue_end_one_after_the_other() -> None:
    one, other = audio(tone(400), "a"), audio(tone(400), "b")
    world = quiet().speak().hear(one, other).after(1_780)
    assert not world.exchanges
    world.after(20)
    assert [reply.is_over for reply in world.last.timeline.replies.values()] == [True, True]
    assert world.last.outcome == "ok"


def test_text_without_audio_ends_no_turn() -> None:
    text = event(EventKind.LLM_TEXT, text="It is on.")
    world = quiet().speak().hear(text).after(1_500)
    assert world.conversation.state is State.WAITING
    world.hear(piece(200)).after(1_200)
    record = turn(world)
    assert (record.outcome, len(world.last.timeline.replies)) == ("ok", 1)
    assert record.llm_first_token_perf_ns is not None


def test_text_alone_is_no_answer() -> None:
    world = quiet(reply_ms=3_000).speak().hear(event(EventKind.LLM_TEXT, text="It is on.")).after(3_000)
    assert (world.last.outcome, world.last.reason) == (
        "no_reply",
        "the endpoint answered with text alone, and with nothing audible",
    )


def test_a_reply_that_never_falls_silent_ends_at_its_longest() -> None:
    world = quiet(longest_ms=3_000).speak()
    for _ in range(20):
        world.hear(piece(200)).after(200)
    assert (world.last.outcome, world.conversation.state) == ("timeout", State.OVER)


def test_a_transcript_that_is_owed_is_waited_for() -> None:
    world = quiet().speak().hear(event(EventKind.ASR_PARTIAL, text="turn"), piece(200)).after(1_300)
    assert not world.exchanges
    world.hear(event(EventKind.ASR_FINAL, text="turn the light on"))
    assert world.last.outcome == "ok"


def test_the_think_time_counts_from_the_end_of_the_reply() -> None:
    world = quiet({}, {"think_ns": 3_000 * MS}).speak().hear(piece(200))
    ends = world.now + 200 * MS
    world.after(1_200)
    assert world.exchanges
    assert world.conversation.deadline_perf_ns == ends + 3_000 * MS


def test_a_silent_turn_that_is_asked_again_ends_by_silence() -> None:
    world = quiet({"clip": None, "silence_ns": 800 * MS}).after(500).hear(piece(300)).after(1_300)
    assert turn(world).reprompted is True
    assert world.last.outcome == "ok"


def test_patience_ends_before_reply_and_never_in_its_pauses() -> None:
    patient = {"patience_ns": 600 * MS}
    assert quiet(patient).speak().after(620).last.outcome == "abandoned"
    world = quiet(patient).speak().after(500).hear(piece(200)).after(1_000).hear(piece(200)).after(1_200)
    assert world.last.outcome == "ok"


def test_connection_lost_in_silence_after_reply_is_error() -> None:
    assert quiet().speak().hear(piece(200)).after(500).lose("gone").last.outcome == "error"


def barge_in(*, manual: bool = False) -> World:
    """A caller who has begun to speak 500 ms into a reply of 5 s, of which 1 s has come."""
    world = quiet({}, {"barge_in": BARGE_IN}, manual=manual).speak().hear(*[piece(250)] * 4).after(420)
    assert isinstance(world.actions[-1], Say)
    return world.after(100).speech_starts()


def test_interrupting_caller_is_answered_after_old_reply_stops() -> None:
    world = barge_in()
    began = world.now
    world.after(200).hear(event(EventKind.SPEECH_STARTED)).after(600).speech_ends().after(400)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    old, new = turn(world, 0), turn(world, 1)
    assert (old.outcome, old.cut_short) == ("ok", True)
    assert (new.barge_in_end, new.barge_in_stop_ns) == ("ended_by_itself", None), "nothing asked to drop what was left"
    assert (new.outcome, new.barge_in_recovered, new.first_audio_perf_ns) == ("ok", True, answered)
    assert new.speech_start_perf_ns == began


def test_late_pieces_of_an_interrupted_reply_do_not_answer() -> None:
    world = barge_in()
    for _ in range(30):  # sent as it is spoken, by an endpoint that does not stop
        world.hear(piece(20)).after(20)
    world.speech_ends()
    for _ in range(30):
        world.hear(piece(20)).after(20)
    assert world.conversation.exchange is not None
    assert world.conversation.exchange.timeline.answer is None, "it is still the old reply"
    world.after(1_500)
    answered = world.now
    world.hear(piece(200)).after(1_300)
    assert world.last.timeline.first_audio_perf_ns == answered


def test_reply_without_more_audio_ended_and_was_not_stopped() -> None:
    world = barge_in().after(900).speech_ends().after(300)  # what had come was over 500 ms ago
    answered = world.now
    world.hear(piece(300)).after(1_400)
    new = turn(world)
    assert (new.outcome, new.first_audio_perf_ns) == ("ok", answered)
    assert (new.barge_in_end, new.barge_in_stop_ns) == ("ended_by_itself", None), "nothing shows that it was cut"


def test_under_manual_turns_the_client_stops_the_reply() -> None:
    world = barge_in(manual=True)
    assert any(isinstance(action, Interrupt) for action in world.actions)
    world.after(600).speech_ends().after(400)
    answered = world.now
    world.hear(piece(300)).after(1_400)
    assert (world.last.outcome, world.last.timeline.first_audio_perf_ns) == ("ok", answered)


def test_a_reply_that_had_fallen_silent_was_not_interrupted() -> None:
    world = quiet({}, {"barge_in": ReplyPoint(after_ns=900 * MS)}).speak().hear(piece(300)).after(820)
    assert isinstance(world.actions[-1], Say)
    world.after(80).speech_starts().after(600).speech_ends().after(300).hear(piece(300)).after(1_400)
    assert turn(world).barge_in_reason == "the reply had fallen silent before the caller's first speech sample"


def test_event_after_silence_ends_turn_even_if_clock_was_idle() -> None:
    world = quiet({}, {}).speak().hear(piece(200))
    world.now += 1_250 * MS  # no one has looked at the time since
    world.hear(piece(100))
    assert [exchange.outcome for exchange in world.exchanges] == ["ok"]
    assert turn(world).reply_audio_ns == 200 * MS


def test_a_wire_that_closes_its_replies_waits_for_the_end_of_one() -> None:
    world = World(plan()).speak().hear(piece(200)).after(1_500)
    assert not world.exchanges
    world.hear(event(EventKind.RESPONSE_DONE, status="completed"))
    assert world.last.outcome == "ok"


DONE = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed")
QUIET_MS = 100
SOUND = silence(QUIET_MS) + tone(200)
# What follows the samples in files of some services: 1.7 s of bytes that are loud when they are played as PCM.
SIGNED = b"C2PA" + struct.pack("<I", 80_000) + b"\0\0\1\0jumb" + bytes(range(32, 232)) * 400
LIST = b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 14) + b"Lavf61.7.100\0\0"
# A frame of 200 bytes, its length in the 13 bits from the fourth byte's last two on.
AAC = (b"\xff\xf1\x60\x40\x19\x1f\xfc" + bytes(range(1, 194))) * 20
# MP3 of 128 kbit/s at 44.1 kHz: a frame is 417 bytes, so the second header is there.
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
    return world.hear(started, *(audio(chunk, rate_hz=rate_hz) for chunk in pieces), DONE).after(6_000).exchanges[0]


def onset_ms(turn: Exchange) -> float | None:
    timeline = turn.timeline
    first = timeline.nearest.first_audio_perf_ns if timeline.nearest else None
    return None if first is None else (first - (timeline.speech_end_perf_ns or 0)) / MS


FILES = {
    "plain": wav(),
    "no length": wav(size=0),
    "unknown length": wav(size=0xFFFFFFFF),
    "length of a piece": wav(size=400),
    "C2PA": wav() + SIGNED,
    "C2PA, no length": wav(size=0) + SIGNED,
    "LIST": wav() + LIST,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "piece"), [*(("plain", piece) for piece in (2, 44, 50, 1_000_000)), *itertools.product(FILES, (6, 960))]
)
def test_wav_header_is_no_onset_and_its_trailer_no_speech(name: str, piece: int) -> None:
    turn = heard(FILES[name], piece)
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


def test_mp3_in_two_byte_chunks_is_detected_at_second_frame() -> None:
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
def test_samples_that_resemble_file_header_are_samples(pcm: bytes, piece: int) -> None:
    turn = heard(pcm, piece)
    assert onset_ms(turn) == pytest.approx(300, abs=1)
    assert (turn.outcome, turn.reason) == ("ok", None)


def test_quiet_telephone_audio_that_resembles_mpeg_is_audio() -> None:
    quiet = b"\xff\xfb\x90\x64" + b"\xff" * 100 + g711.ulaw_encode(np.frombuffer(tone(60), "<i2"))
    turn = heard(_telephone(quiet), rate_hz=8_000)
    assert turn.outcome == "ok", "a reply that is shorter than such a frame is heard, too"
    assert onset_ms(turn) == pytest.approx(300, abs=15)


FRAME = audio(tone(20))


def hearing(**changes: object) -> World:
    """A caller who hears a reply that is being sent; the first of two turns is changed."""
    plan = make_plan(turns=2)
    world = World(replace(plan, turns=(replace(plan.turns[0], **changes), plan.turns[1]))).speak()  # type: ignore[arg-type]
    return world.hear(*reply(1_000)[:2]).after(20)


def backchanneling() -> World:
    return hearing(backchannel=Backchannel(make_clip(), ReplyPoint(after_ns=300 * MS))).after(300)


@pytest.mark.parametrize(
    ("world", "state"),
    [(hearing(), State.HEARING), (backchanneling(), State.BACKCHANNELING)],
    ids=["hears", "says mhm"],
)
def test_frame_of_current_reply_is_played_without_state_change(world: World, state: State) -> None:
    until, deadline = world.playout.playing_until_perf_ns, world.conversation.deadline_perf_ns
    assert world.conversation.on_event(FRAME, world.now) is NO_CHANGE
    assert world.playout.playing_until_perf_ns == until + 20 * MS
    assert (world.conversation.state, world.conversation.deadline_perf_ns) == (state, deadline)


def test_frames_extend_wait_that_deadline_had_set() -> None:
    world = hearing()
    for _ in range(600):
        world.hear(FRAME).after(20)
    assert not world.exchanges, "10 s after the first second of it more of the reply still comes"
    world.after(11_100)
    assert world.last.outcome == "ok"


@pytest.mark.parametrize(
    "other",
    [
        audio(tone(20), "r2"),
        event(EventKind.AUDIO, response_id="r1", audio=tone(20), rate_hz=24_000, metadata={"a": "b"}),
        event(EventKind.SPEECH_STARTED),
        event(EventKind.RESPONSE_DONE, response_id="r1", status="completed"),
    ],
    ids=["another reply", "metadata", "speech", "end"],
)
def test_event_other_than_frame_is_processed(other: object) -> None:
    world = hearing()
    assert world.conversation.on_event(other, world.now) is not NO_CHANGE  # type: ignore[arg-type]


def test_frame_is_checked_while_interrupted_reply_may_continue() -> None:
    plan = make_plan(turns=2)
    into = replace(plan.turns[1], barge_in=ReplyPoint(after_ns=300 * MS))
    world = World(replace(plan, turns=(plan.turns[0], into))).speak().hear(*reply(400)[:2]).after(320).speech_starts()
    world.after(500).speech_ends().hear(*reply(1_000, "r2")[:2]).after(20)
    assert world.conversation.state is State.HEARING
    assert not world.exchanges
    assert world.conversation.on_event(audio(tone(20), "r2"), world.now) is not NO_CHANGE


def test_a_frame_before_the_reply_is_audible_is_looked_at() -> None:
    world = World(make_plan()).speak().hear(event(EventKind.RESPONSE_STARTED, response_id="r1"))
    assert world.conversation.on_event(FRAME, world.now) is not NO_CHANGE
    assert world.conversation.state is State.HEARING
