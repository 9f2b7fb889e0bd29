"""The callers' clips and the endpoint's answers of each mode, as files that the programs in C read: see speech.h.

Callers speak clips of the corpus and think as long as those of `voiceprobe calibrate`; answers are those of its
endpoint, planned ahead. The ids in an answer have a fixed length: the program that sends it puts its own in their
place.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.protocols import registry
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import prepare
from loadtest.targets.ground_truth.conversation import TurnEvents, frame, samples_in
from loadtest.targets.ground_truth.plan import MS, TOKEN_GAP_NS, TOKENS, Behavior, ReplyPlanner, TurnPlan
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES, RATE_HZ

FRAME_NS: Final = 20 * MS
HOUR_NS: Final = 3_600_000 * MS
DELAYS_NS: Final = (50 * MS, 200 * MS, 800 * MS, 2000 * MS)
# A multiple of the delays, each of which a caller then has equally often.
ANSWERS: Final = 64
NAME: Final = "000000-000000"  # of the caller and of its turn
_DONE_AFTER_NS: Final = 1 * MS
_CHUNKS_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode: how long callers wait, in ns, before a turn, for a reply, and to spread their first turns; and
    what the endpoint does.

    It answers speech as the ground-truth endpoint behaves, or never, or with `at_once` sends 20 ms of audio every 20 ms
    from a caller's frame of that number on: then every caller has spoken.
    """

    think_ns: int = 0
    stagger_ns: int = 1000 * MS
    reply_ns: int = HOUR_NS
    replies: Behavior | None = None
    at_once: int = 0

    @property
    def words(self) -> list[str]:
        """The waits for a command line, in ms."""
        return [str(wait_ns // MS) for wait_ns in (self.think_ns, self.stagger_ns, self.reply_ns)]


# Conversations wait as in a calibration; first turns are spread over about the length of one.
MODES: Final = {
    "one-way": Mode(),
    "duplex": Mode(at_once=150),
    "conversations": Mode(300 * MS, 3000 * MS, 5000 * MS, replies="plain"),
}


def speaking_settings(host: str, sidecar: str | None = None, ca_file: str | None = None) -> SwarmSettings:
    """The settings of the callers, whose speech is the same in every process."""
    return SwarmSettings(
        host=host,
        corpus="voiceprobe-en",
        length="short",
        clips=8,
        scenario_name="bench",
        sidecar=sidecar,
        ca_file=ca_file,
    )


def prepared_speech() -> tuple[tuple[PreparedClip, ...], tuple[bytes, ...]]:
    """The clips and the background between them. Raises CorpusError."""
    settings = speaking_settings("ws://127.0.0.1/")
    prepared = prepare(settings, registry.make_caller(settings.protocol, settings.caller_options))
    return prepared.clips, prepared.background


def greeting() -> bytes:
    """Return the endpoint's first message: the session is open and takes audio."""
    kinds = ("session.created", "session.updated")
    return b"".join(frame(json.dumps({"type": kind, "session": {"id": "sess_1"}}).encode()) for kind in kinds)


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
        for sample, at in (
            (clip.rendered.speech_start_sample, clip.speech_start_frame),
            (clip.rendered.speech_end_sample, clip.speech_end_frame),
        ):
            parts.append(_numbers(at, sample - at * clip.frame_samples))
        parts += _frames(tuple(clip.frames))
    file.write_bytes(b"".join(parts))


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """One event of an answer: due so long after the end of the caller's speech, or else after its start."""

    due_ns: int
    after_speech: bool
    frame: bytes
    samples: int = 0  # of reply audio
    is_last: bool = False


def write_answers(mode: Mode, file: Path) -> None:
    """Write the answers: drawn by a planner of the calibration, one second of audio, or none."""
    answers: list[tuple[int, list[AnswerEvent]]] = []
    if mode.replies is not None:
        planner = ReplyPlanner(DELAYS_NS, mode.replies, 1, 0)
        plans = [planner.turn() for _ in range(ANSWERS)]
        answers = [(samples_in(plan.leading_silence_ns), list(answer_events(plan))) for plan in plans]
    elif mode.at_once:
        answers = [(0, list(audio_without_end()))]
    parts = [_numbers(len(answers))]
    for leading_samples, events in answers:
        parts.append(_numbers(leading_samples, len(events)))
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


def audio_without_end() -> Iterator[AnswerEvent]:
    """A reply that is begun, and its first second, which the endpoint sends again and again."""
    events = TurnEvents(NAME)
    yield AnswerEvent(0, False, events.created())
    for number in range(_CHUNKS_AT_ONCE):
        audio = events.audio(0, number * FRAME_SAMPLES, FRAME_SAMPLES)
        is_last = number == _CHUNKS_AT_ONCE - 1
        yield AnswerEvent((number + 1) * FRAME_NS, False, audio, FRAME_SAMPLES, is_last)


def _numbers(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _frames(frames: Sequence[bytes]) -> list[bytes]:
    return [_numbers(len(frames)), *(part for frame in frames for part in (_numbers(len(frame)), frame))]
