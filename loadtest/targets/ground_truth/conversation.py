"""One caller's conversation: speech frames in, scheduled sends out. Pure; all times are parameters."""

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from loadtest.audio.pcm import to_bytes
from loadtest.targets.ground_truth.frames import samples_of
from loadtest.targets.ground_truth.plan import (
    TOKEN_GAP_NS,
    TOKENS,
    Behavior,
    GroundTruthTurn,
    Player,
    ReplyPlanner,
    spoken_at,
)
from loadtest.targets.ground_truth.speech import RATE_HZ, SPEECH_FRAMES, burst

_TEXT: Final = 0x81
_REPLY_SEED: Final = 99
WORDS: Final = ("It is ", "as it ", "was.")  # too few for a words-to-audio comparison


def frame(payload: bytes) -> bytes:
    """Create an unmasked text frame."""
    length = len(payload)
    if length < 126:
        return struct.pack("!BB", _TEXT, length) + payload
    if length < 65_536:
        return struct.pack("!BBH", _TEXT, 126, length) + payload
    return struct.pack("!BBQ", _TEXT, 127, length) + payload


def samples_in(duration_ns: int) -> int:
    """Return the number of samples in a duration."""
    return duration_ns * RATE_HZ // 1_000_000_000


@lru_cache(maxsize=4096)
def reply_audio(leading_samples: int, start: int, samples: int) -> bytes:
    """Return the base64 of part of the reply: silence up to `leading_samples`, loud after that."""
    pcm = np.zeros(samples, np.int16)
    loud = max(0, leading_samples - start)
    if loud < samples:
        pcm[loud:] = burst(samples - loud, _REPLY_SEED)
    return base64.b64encode(to_bytes(pcm))


class TurnEvents:
    """The events of one turn, with its ids."""

    def __init__(self, name: str) -> None:
        self.response_id = f"resp_{name}"
        self._response = self.response_id.encode()
        self._item = f"item_{name}".encode()
        self._input_item = f"heard_{name}".encode()

    def _caller_event(self, kind: bytes, fields: bytes) -> bytes:
        return frame(b'{"type":"' + kind + b'","item_id":"' + self._input_item + b'",' + fields + b"}")

    def _reply_event(self, kind: bytes, fields: bytes) -> bytes:
        ids = b'","response_id":"' + self._response + b'","item_id":"' + self._item
        return frame(b'{"type":"' + kind + ids + b'","output_index":0,"content_index":0' + fields + b"}")

    def _response_event(self, kind: bytes, status: bytes, more: bytes) -> bytes:
        head = b'{"type":"' + kind + b'","response":{"id":"' + self._response + b'","object":"realtime.response",'
        return frame(head + b'"status":"' + status + b'",' + more + b'"metadata":{"voice.route":"rule"}}}')

    def speech_started(self) -> bytes:
        """The caller began to speak."""
        return self._caller_event(b"input_audio_buffer.speech_started", b'"audio_start_ms":0')

    def speech_stopped(self) -> bytes:
        """The caller's turn ended."""
        return self._caller_event(b"input_audio_buffer.speech_stopped", b'"audio_end_ms":0')

    def partial(self) -> bytes:
        """A partial transcript."""
        return self._caller_event(
            b"conversation.item.input_audio_transcription.delta", b'"content_index":0,"delta":"calibration "'
        )

    def final(self) -> bytes:
        """The final transcript."""
        return self._caller_event(
            b"conversation.item.input_audio_transcription.completed",
            b'"content_index":0,"transcript":"calibration burst"',
        )

    def created(self) -> bytes:
        """The reply begins."""
        return self._response_event(b"response.created", b"in_progress", b"")

    def token(self, index: int) -> bytes:
        """One token of the answer's text."""
        return self._reply_event(
            b"response.output_audio_transcript.delta", b',"delta":"' + WORDS[index].encode() + b'"'
        )

    def audio(self, leading_samples: int, start: int, samples: int) -> bytes:
        """A chunk of the answer's audio."""
        encoded = reply_audio(leading_samples, start, samples)
        return self._reply_event(b"response.output_audio.delta", b',"delta":"' + encoded + b'"')

    def done(self) -> bytes:
        """The end of the reply."""
        usage = b'"usage":{"output_tokens":3,"output_token_details":{"text_tokens":3}},'
        return self._reply_event(b"response.output_audio.done", b"") + self._response_event(
            b"response.done", b"completed", usage
        )


DONE: Final = "done"
# The end of the reply follows its last chunk after this time, so that they are sent in two TCP segments.
_DONE_AFTER_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes to send at a given time, with their turn, the timestamps that they mark and the audio that they carry."""

    due_perf_ns: int
    data: bytes
    turn: GroundTruthTurn
    marks: tuple[str, ...]
    chunks: tuple[int, ...] = ()  # the number of samples of each audio chunk


class GroundTruthConversation:
    """The endpoint's side of one connection."""

    def __init__(self, connection: int, name: str, behavior: Behavior, delays_ns: tuple[int, ...], seed: int) -> None:
        self.behavior: Behavior = behavior
        self._connection = connection
        self._name = name
        self._planner = ReplyPlanner(delays_ns, behavior, seed, connection)
        self._player = Player()
        self._turns = 0
        self._turn: GroundTruthTurn | None = None
        self._events = TurnEvents("")
        self.broken_turns = 0  # speech that stopped before its last frame

    def on_silence(self) -> None:
        """Handle a silent frame; within an utterance, it breaks the turn."""
        if self._turn is not None:
            self._turn = None
            self.broken_turns += 1

    def on_speech(self, frame: bytes, received_perf_ns: int, stamped: bool) -> list[Send]:
        """Handle a speech frame; `stamped` means that the timestamp is its own and not a later frame's."""
        turn = self._turn
        if turn is None:
            return self._begin(frame, received_perf_ns, stamped)
        turn.frames_perf_ns.append(received_perf_ns if stamped else None)
        if len(turn.frames_perf_ns) < SPEECH_FRAMES:
            return []
        self._turn = None
        last = int(np.flatnonzero(samples_of(frame))[-1])
        end = spoken_at(last, received_perf_ns)
        turn.speech_end_perf_ns = end
        if not stamped:
            turn.unsure.append("speech_end")
        return list(self._answer(turn, end))

    def _begin(self, frame: bytes, received_perf_ns: int, stamped: bool) -> list[Send]:
        name = f"{self._name}-{self._turns}"
        self._events = TurnEvents(name)
        plan = self._planner.turn()
        turn = GroundTruthTurn(
            self._events.response_id, self._connection, self._turns, self.behavior, plan, self._player
        )
        self._turns += 1
        self._turn = turn
        turn.frames_perf_ns.append(received_perf_ns if stamped else None)
        first = int(np.flatnonzero(samples_of(frame))[0])
        turn.speech_start_perf_ns = spoken_at(first, received_perf_ns)
        if not stamped:
            turn.unsure.append("speech_start")
        return [
            Send(received_perf_ns, self._events.speech_started(), turn, ()),
            Send(turn.speech_start_perf_ns + plan.partial_ns, self._events.partial(), turn, ("asr_first_partial",)),
        ]

    def _answer(self, turn: GroundTruthTurn, end_perf_ns: int) -> Iterable[Send]:
        sends = list(self._sends(turn, end_perf_ns))
        if self.behavior != "coalesced":
            return sends
        return [
            Send(
                sends[-1].due_perf_ns,
                b"".join(send.data for send in sends),
                turn,
                tuple(mark for send in sends for mark in send.marks),
                tuple(samples for send in sends for samples in send.chunks),
            )
        ]

    def _sends(self, turn: GroundTruthTurn, end_perf_ns: int) -> Iterable[Send]:
        plan, events = turn.plan, self._events
        token_due = end_perf_ns + plan.first_token_ns
        yield Send(end_perf_ns + plan.endpoint_ns, events.speech_stopped(), turn, ("endpoint",))
        yield Send(end_perf_ns + plan.final_ns, events.final(), turn, ("asr_final",))
        yield Send(token_due, events.created(), turn, ("created",))
        for index in range(TOKENS):
            mark = ("llm_first_token",) if index == 0 else ()
            yield Send(token_due + index * TOKEN_GAP_NS, events.token(index), turn, mark)
        leading, start, due = samples_in(plan.leading_silence_ns), 0, end_perf_ns
        for index, chunk in enumerate(plan.chunks):
            due = end_perf_ns + plan.first_chunk_ns + chunk.after_ns
            samples = samples_in(chunk.audio_ns)
            mark = ("tts_first_chunk",) if index == 0 else (f"chunk_{index}",)
            yield Send(due, events.audio(leading, start, samples), turn, mark, (samples,))
            start += samples
        due = max(due, token_due + TOKENS * TOKEN_GAP_NS) + _DONE_AFTER_NS
        yield Send(due, events.done(), turn, (DONE,))
