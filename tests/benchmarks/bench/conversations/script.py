"""What callers say and what an endpoint answers, as files that the programs in C read: see script.h for the format.

Callers say clips of the corpus and think as long as those of `voiceprobe calibrate`; answers are those of its endpoint,
planned ahead. The ids in an answer have a fixed length: the program that sends it puts its own in their place.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.protocols import registry
from loadtest.speech.preparation import prepare
from loadtest.targets.ground_truth.events import TurnEvents, samples_in
from loadtest.targets.ground_truth.plan import MS, TOKEN_GAP_NS, TOKENS, Behavior, ReplyPlanner, TurnPlan
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES, RATE_HZ
from tests.benchmarks.bench.conversations.speakers import Waits, speaking_settings

# As in a calibration; first turns are spread over about the length of one.
WAITS: Final = Waits(think_ns=300 * MS, stagger_ns=3000 * MS, reply_ns=5000 * MS)
DELAYS_NS: Final = (50 * MS, 200 * MS, 800 * MS, 2000 * MS)
# A multiple of the delays, each of which a caller then has equally often.
ANSWERS: Final = 64
NAME: Final = "000000-000000"  # of the caller and of its turn
_DONE_AFTER_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """One event of an answer: due so long after the end of the caller's speech, or else after its start."""

    due_ns: int
    after_speech: bool
    frame: bytes
    samples: int = 0  # of reply audio
    is_last: bool = False


def prepared_speech() -> tuple[tuple[PreparedClip, ...], tuple[bytes, ...]]:
    """The clips and the background between them. Raises CorpusError."""
    settings = speaking_settings("ws://127.0.0.1/")
    prepared = prepare(settings, registry.make_caller(settings.protocol, settings.caller_options))
    return prepared.clips, prepared.background


def write_speech(clips: Sequence[PreparedClip], background: Sequence[bytes], file: Path) -> None:
    """Write what callers say. Raises ValueError where an endpoint could not tell by a frame where it is in a clip."""
    every = [frame for clip in clips for frame in clip.frames] + list(background)
    bounds = [clip.frames[index] for clip in clips for index in (clip.speech_start_frame, clip.speech_end_frame)]
    if any(every.count(frame) > 1 for frame in bounds):
        raise ValueError("a clip's first or last frame of speech occurs twice")
    parts = [*_frames(background), _numbers(len(clips))]
    for clip in clips:
        if (clip.rendered.rate_hz, clip.frame_samples) != (RATE_HZ, FRAME_SAMPLES):
            raise ValueError(f"frames of {FRAME_SAMPLES} samples at {RATE_HZ} Hz are needed")
        for sample, frame in (
            (clip.rendered.speech_start_sample, clip.speech_start_frame),
            (clip.rendered.speech_end_sample, clip.speech_end_frame),
        ):
            parts.append(_numbers(frame, sample - frame * clip.frame_samples))
        parts += _frames(tuple(clip.frames))
    file.write_bytes(b"".join(parts))


def write_answers(behavior: Behavior, file: Path) -> None:
    """Write the answers, drawn by a planner of the calibration."""
    planner = ReplyPlanner(DELAYS_NS, behavior, 1, 0)
    parts = [_numbers(ANSWERS)]
    for plan in (planner.turn() for _ in range(ANSWERS)):
        events = list(answer_events(plan))
        parts.append(_numbers(samples_in(plan.leading_silence_ns), len(events)))
        for event in events:
            parts.append(_numbers(event.due_ns, event.after_speech, event.samples, event.is_last))
            parts += [_numbers(len(event.frame)), event.frame]
    file.write_bytes(b"".join(parts))


def answer_events(plan: TurnPlan) -> Iterator[AnswerEvent]:
    """The events of one answer: those while the caller speaks, then those after it, each group in order of time."""
    events = TurnEvents(NAME)
    yield AnswerEvent(0, False, events.speech_started())
    yield AnswerEvent(plan.partial_ns, False, events.partial())
    answer = [
        AnswerEvent(plan.endpoint_ns, True, events.speech_stopped()),
        AnswerEvent(plan.final_ns, True, events.final()),
        AnswerEvent(plan.first_token_ns, True, events.created()),
    ]
    answer += [
        AnswerEvent(plan.first_token_ns + index * TOKEN_GAP_NS, True, events.token(index)) for index in range(TOKENS)
    ]
    leading, start = samples_in(plan.leading_silence_ns), 0
    for chunk in plan.chunks:
        samples = samples_in(chunk.audio_ns)
        due_ns = plan.first_chunk_ns + chunk.after_ns
        answer.append(AnswerEvent(due_ns, True, events.audio(leading, start, samples), samples))
        start += samples
    end_ns = max(event.due_ns for event in answer) + _DONE_AFTER_NS
    yield from sorted(answer, key=lambda event: event.due_ns)
    yield AnswerEvent(end_ns, True, events.done(), is_last=True)


def _numbers(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _frames(frames: Sequence[bytes]) -> list[bytes]:
    return [_numbers(len(frames)), *(part for frame in frames for part in (_numbers(len(frame)), frame))]
