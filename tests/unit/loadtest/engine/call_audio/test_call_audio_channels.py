"""The two channels of a call are what was sent and what was played, sample by sample."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.engine.audio_track import AudioTrack
from loadtest.engine.call_audio.heard_audio import MOST_AHEAD_S, TOO_FAR_AHEAD, TOO_SLOW, HeardAudio
from loadtest.engine.call_audio.sent_audio import SentAudio, SentFormat
from loadtest.engine.hub_sender import HubSender
from telemetry.store.recordings.kept_call import MissingAudio
from tests.unit.loadtest.conversation.world import FRAME_SAMPLES, MS, RATE_HZ, make_clip

BACKGROUND_FRAMES = 7
LOOP = np.repeat(np.arange(1, BACKGROUND_FRAMES + 1, dtype=np.int16), FRAME_SAMPLES)


def numbered(value: int, speech_ms: int) -> PreparedClip:
    """An utterance of which every sample is the same number, as is every frame."""
    clip = make_clip(speech_ms=speech_ms, lead_ms=0, tail_ms=0)
    pcm = np.full(len(clip.rendered.pcm), value, np.int16)
    return replace(clip, rendered=replace(clip.rendered, pcm=pcm), frames=(str(value).encode(),) * len(clip.frames))


class Tap:
    """Hands on what an AudioTrack reports, as the process gets it."""

    def __init__(self, sent: SentAudio) -> None:
        self.sent = sent

    def began(self, first_sample_perf_ns: int) -> None: ...

    def spoke(self, frame: int, clip: PreparedClip) -> None:
        self.sent.spoke(frame, clip.rendered.pcm)

    def muted(self, frame: int) -> None:
        self.sent.muted(frame)

    def hung_up(self, now_perf_ns: int) -> None: ...


@given(
    st.lists(st.tuples(st.sampled_from(["say", "mute", "send"]), st.integers(1, 30)), max_size=40),
    st.integers(0, BACKGROUND_FRAMES - 1),
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_sent_audio_is_rebuilt_frame_by_frame(steps: list[tuple[str, int]], first: int, pieces: list[int]) -> None:
    frames = [str(number + 1).encode() for number in range(BACKGROUND_FRAMES)]
    expected: list[int] = []
    transport: Any = SimpleNamespace(
        send_frame=lambda frame: expected.append(int(frame)) or True, unsent_bytes=lambda: 0, frame_bytes=1
    )
    now = 0
    hub = HubSender(0, lambda: now, lambda stream, error: pytest.fail(str(error)))
    track, sent = AudioTrack(), SentAudio(SentFormat(RATE_HZ, FRAME_SAMPLES, LOOP, first))
    track.tap = Tap(sent)
    stream = hub.add(transport, 20 * MS)
    track.begin(stream, (*frames[first:], *frames[:first]), 20 * MS, now)
    for number, (step, size) in enumerate(steps):
        if step == "send":
            for _ in range(size):
                now = stream.due_perf_ns
                hub.collect(now)
        else:
            track.mute()
            if step == "say":
                track.say(numbered(100 + number, size * 20), now)
    rebuilt: list[int] = []
    while len(rebuilt) < len(expected):
        end = min(len(expected), len(rebuilt) + pieces[len(rebuilt) % len(pieces)])
        rebuilt += sent.taken(len(rebuilt), end)[::FRAME_SAMPLES].tolist()
    assert rebuilt == expected


def test_the_last_frame_of_an_utterance_is_padded_as_it_was_sent() -> None:
    sent = SentAudio(SentFormat(RATE_HZ, FRAME_SAMPLES, LOOP, 3))
    sent.spoke(0, np.full(FRAME_SAMPLES + 10, 50, np.int16))
    taken = sent.taken(0, 2)
    assert taken[FRAME_SAMPLES : FRAME_SAMPLES + 10].tolist() == [50] * 10
    assert taken[FRAME_SAMPLES + 10 :].tolist() == [1] * (FRAME_SAMPLES - 10)  # the loop from its beginning


class HeardTap:
    """Hands on what a PlayoutBuffer reports."""

    def __init__(self, heard: HeardAudio) -> None:
        self.heard = heard

    def played(self, playback: int, rate_hz: int, start_perf_ns: int, audio: bytes) -> None:
        self.heard.played(playback, rate_hz, start_perf_ns, np.frombuffer(audio, "<i2"))

    def stopped(self, playback: int, now_perf_ns: int) -> None:
        self.heard.stopped(playback, now_perf_ns)


def test_each_sample_lies_where_the_playout_clock_played_it() -> None:
    rate, began = 24_000, 5_000_000_123
    heard, playout = HeardAudio(rate, began), PlayoutBuffer("rms-10ms")
    playout.tap = HeardTap(heard)
    random = np.random.default_rng(3)
    first, second = playout.begin(rate), playout.begin(rate)
    now = began + 40 * MS
    moments: dict[int, int] = {}
    value = 1
    for turn, playback in enumerate((first, second)):
        for _ in range(50):
            samples = int(random.integers(1, 700))
            playout.feed(playback, np.full(samples, value, "<i2").tobytes(), now)
            moments[value] = playback.starts_perf_ns[-1]
            value += 1
            now += int(random.integers(0, 60)) * MS  # in time, ahead, and late
        if turn == 0:
            playout.stop(first, now)
            stop = now
    channel = heard.taken(0, heard.sample_at(now + 5_000 * MS))
    for number, start_perf_ns in moments.items():
        audible = np.flatnonzero(channel == number)
        if not audible.size:
            assert number <= 50
            assert start_perf_ns >= stop
            continue
        # Half a sample by rounding, and one where pieces follow one another without a gap.
        assert abs(began + int(audible[0]) * 1e9 / rate - start_perf_ns) <= 1.5e9 / rate
    before = channel[: heard.sample_at(stop)]
    assert set(before[before > 0].tolist()) <= set(range(1, 51))


def test_audio_that_comes_far_too_early_is_not_kept_and_named() -> None:
    heard = HeardAudio(8_000, 0)
    minute = np.ones(60 * 8_000, np.int16)
    for number in range(MOST_AHEAD_S // 60 + 5):
        heard.played(1, 8_000, number * 60 * 1_000 * MS, minute)
    assert heard.missing == [MissingAudio(MOST_AHEAD_S * 8_000, (MOST_AHEAD_S + 300) * 8_000, TOO_FAR_AHEAD)]
    assert heard.taken(0, 8_000).all()


def test_dropped_audio_is_silent_and_named() -> None:
    heard = HeardAudio(8_000, 0)
    heard.played(1, 8_000, 0, np.ones(8_000, np.int16))
    heard.lost(1_000 * MS, 500 * MS)
    heard.played(1, 8_000, 1_500 * MS, np.ones(4_000, np.int16))
    channel = heard.taken(0, 16_000)
    assert np.flatnonzero(channel == 0).tolist() == list(range(8_000, 12_000))
    assert heard.missing == [MissingAudio(8_000, 12_000, TOO_SLOW)]


def test_a_reply_at_another_rate_takes_the_same_time() -> None:
    heard = HeardAudio(24_000, 0)
    heard.played(1, 16_000, 1_000 * MS, np.full(16_000, 7, np.int16))
    channel = heard.taken(0, 72_000)
    assert np.flatnonzero(channel).tolist() == list(range(24_000, 48_000))
