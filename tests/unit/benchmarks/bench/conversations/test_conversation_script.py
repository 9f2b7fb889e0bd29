"""What is said and answered, as the files for the programs in C have it."""

import dataclasses
import struct
from pathlib import Path

import pytest

from loadtest.calibration import job as calibration
from loadtest.targets.ground_truth.command import parse_delays
from loadtest.targets.ground_truth.events import samples_in
from loadtest.targets.ground_truth.frames import FrameCutter
from loadtest.targets.ground_truth.plan import MS, Behavior, ReplyPlanner
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES
from tests.benchmarks.bench.cases import REPLIES
from tests.benchmarks.bench.conversations.script import (
    ANSWERS,
    DELAYS_NS,
    NAME,
    WAITS,
    answer_events,
    prepared_speech,
    write_answers,
    write_speech,
)
from tests.benchmarks.bench.conversations.speakers import Waits


def test_callers_wait_as_those_of_a_calibration_do() -> None:
    assert (WAITS.think_ns / 1e9, WAITS.reply_ns) == (calibration.THINK_S, calibration.REPLY_TIMEOUT.ns)
    assert parse_delays(calibration.DELAYS) == DELAYS_NS
    assert Waits.parse(WAITS.words) == WAITS
    assert WAITS.before_first_turn_ns(0, 10) == WAITS.think_ns
    assert WAITS.before_first_turn_ns(5, 10) == WAITS.think_ns + WAITS.stagger_ns // 2


def test_speech_is_written_frame_by_frame_with_the_places_of_its_bounds(tmp_path: Path) -> None:
    clips, background = prepared_speech()
    write_speech(clips[:1], background[:3], tmp_path / "speech")
    data = (tmp_path / "speech").read_bytes()
    (count,) = struct.unpack_from("=q", data)
    assert count == 3
    at = 8 + sum(8 + len(frame) for frame in background[:3])
    clips_written, start, start_offset, end, end_offset, frames = struct.unpack_from("=6q", data, at)
    (clip,) = clips[:1]
    assert (clips_written, frames) == (1, len(clip.frames))
    assert (start, end) == (clip.speech_start_frame, clip.speech_end_frame)
    assert start * FRAME_SAMPLES + start_offset == clip.rendered.speech_start_sample
    assert end * FRAME_SAMPLES + end_offset == clip.rendered.speech_end_sample
    rest = b"".join(struct.pack("=q", len(frame)) + frame for frame in clip.frames)
    assert data[at + 48 :] == rest
    cut = FrameCutter().cut(b"".join(clip.frames))
    assert [frame.data for frame in cut] == list(clip.frames)


def test_speech_whose_bounds_an_endpoint_could_not_recognize_is_refused(tmp_path: Path) -> None:
    clips, background = prepared_speech()
    with pytest.raises(ValueError, match="occurs twice"):
        write_speech((clips[0], clips[0]), background, tmp_path / "speech")
    slower = dataclasses.replace(clips[0], frame_samples=160)
    with pytest.raises(ValueError, match="480 samples at 24000 Hz"):
        write_speech((slower,), background, tmp_path / "speech")


@pytest.mark.parametrize("behavior", REPLIES)
def test_an_answer_has_its_events_in_order_and_names_of_one_length(behavior: Behavior, tmp_path: Path) -> None:
    plan = ReplyPlanner((50 * MS, 2000 * MS), behavior, 1, 0).turn()
    events = list(answer_events(plan))
    while_speaking = [event.due_ns for event in events if not event.after_speech]
    after_speech = [event.due_ns for event in events if event.after_speech]
    assert (while_speaking, after_speech) == (sorted(while_speaking), sorted(after_speech))
    assert [event.after_speech for event in events] == [False] * len(while_speaking) + [True] * len(after_speech)
    assert [event.is_last for event in events] == [False] * (len(events) - 1) + [True]
    assert all(NAME.encode() in event.frame for event in events)
    assert sum(event.samples for event in events) == samples_in(sum(chunk.audio_ns for chunk in plan.chunks))
    write_answers(behavior, tmp_path / "answers")
    assert struct.unpack_from("=q", (tmp_path / "answers").read_bytes()) == (ANSWERS,)
