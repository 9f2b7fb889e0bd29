"""The programs in C for conversations, each against another end in Python that splits, stalls and closes."""

import base64
import contextlib
import itertools
import json
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.targets.ground_truth.events import TurnEvents
from loadtest.targets.ground_truth.frames import FrameCutter
from tests.benchmarks.bench import messages, native
from tests.benchmarks.bench.conversations.figures import TruthColumn, TurnColumn
from tests.benchmarks.bench.conversations.script import prepared_speech, write_answers, write_speech
from tests.benchmarks.bench.processes import serving
from tests.programs import needed

pytestmark = pytest.mark.nightly

CALLERS = 3
SAMPLES = 2400
Answer = Callable[[socket.socket, int, int], None]


@dataclass(frozen=True, slots=True)
class Programs:
    folder: Path
    caller: str
    endpoint: str
    clips: tuple[PreparedClip, ...]
    background: tuple[bytes, ...]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    needed("cc")
    folder = tmp_path_factory.mktemp("programs")
    built = native.build(folder)
    assert built.conversation_caller is not None
    assert built.conversation_endpoint is not None
    clips, background = prepared_speech()
    write_speech(clips, background, folder / "speech")
    write_answers("plain", folder / "answers")
    (folder / "greeting").write_bytes(messages.greeting())
    return Programs(folder, built.conversation_caller, built.conversation_endpoint, clips, background)


@dataclass
class PythonEndpoint:
    """Takes callers, and does with each utterance whatever `answer(socket, caller, turn)` does."""

    programs: Programs
    answer: Answer
    close_after: int | None = None  # frames of a caller
    reads: bool = True
    heard: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    frames: list[bytes] = field(default_factory=list[bytes])
    over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def serving(self) -> Generator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(CALLERS) as threads:
            listener.settimeout(30)
            lines = [threads.submit(self._take, listener, caller) for caller in range(CALLERS)]
            yield listener.getsockname()[1]
            self.over.set()
            for line in lines:
                line.result()

    def _take(self, listener: socket.socket, caller: int) -> None:
        sock, _ = listener.accept()
        with sock, contextlib.suppress(ConnectionError):  # callers in C do not wait for the last answer
            self._serve(sock, caller)

    def _serve(self, sock: socket.socket, caller: int) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += sock.recv(1)
        # The greeting comes in the same read as the answer to the upgrade, and part of it behind.
        greeting = messages.greeting()
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + greeting[:-5])
        sock.sendall(greeting[-5:])
        cutter, turn, count = FrameCutter(), 0, 0
        last = {clip.frames[clip.speech_end_frame] for clip in self.programs.clips}
        while self.reads and (data := sock.recv(65_536)):
            for frame in cutter.cut(data):
                count += 1
                if caller == 0:
                    self.frames.append(frame.data)
                if frame.data in last:
                    self.heard.append((caller, turn))
                    self.answer(sock, caller, turn)
                    turn += 1
                if count == self.close_after:
                    return
        if not self.reads:
            self.over.wait()


def call(
    programs: Programs, port: int, *, window_ms: int, reply_ms: int = 5000
) -> tuple[dict[str, Any], list[list[int]]]:
    """Run the callers in C; what they print, and the rows of their turns."""
    folder = programs.folder
    command = [programs.caller, str(port), str(CALLERS), "0", str(window_ms)]
    command += [str(folder / name) for name in ("speech", "sent", "turns")]
    done = subprocess.run(
        [*command, "100", "300", str(reply_ms)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = np.fromfile(folder / "turns", np.int64).reshape(-1, len(TurnColumn))
    return json.loads(done.stdout), rows.tolist()


def reply(caller: int, turn: int) -> list[bytes]:
    events = TurnEvents(f"{caller + 700:06d}-{turn + 40:06d}")
    chunks = [events.audio(0, 0, SAMPLES), events.audio(0, SAMPLES, SAMPLES)]
    return [events.final(), events.created(), events.token(0), *chunks, events.done()]


def test_messages_split_anywhere_are_counted_and_end_a_turn(programs: Programs) -> None:
    def split(sock: socket.socket, caller: int, turn: int) -> None:
        for message in reply(caller, turn):
            places = [0, 1, 3, 9, 40, 150, len(message) - 1, len(message)]
            for start, stop in itertools.pairwise(places):
                sock.sendall(message[start:stop])
                time.sleep(0.001)  # mostly enough for a read of its own

    endpoint = PythonEndpoint(programs, split)
    with endpoint.serving() as port:
        output, rows = call(programs, port, window_ms=4000)
    assert rows
    assert {(row[TurnColumn.CALLER] - 700, row[TurnColumn.TURN] - 40) for row in rows} <= set(endpoint.heard)
    assert all(row[TurnColumn.STATE] == 1 for row in rows)
    assert len(endpoint.heard) - len(rows) <= CALLERS  # one of each may be under way
    assert output["chunks"] >= 2 * len(rows)
    assert output["samples"] == SAMPLES * output["chunks"]
    assert output["lines_lost"] == 0
    for row in rows:
        # Played to its end before the turn is over.
        assert row[TurnColumn.SPEECH_END] < row[TurnColumn.HEARD]
        assert row[TurnColumn.HEARD] + 2 * SAMPLES * 1_000_000_000 // 24_000 <= row[TurnColumn.ENDED]


def test_a_caller_sends_whole_clips_in_turn_and_the_background_between(programs: Programs) -> None:
    endpoint = PythonEndpoint(programs, lambda sock, caller, turn: sock.sendall(b"".join(reply(caller, turn))))
    with endpoint.serving() as port:
        output, _ = call(programs, port, window_ms=4000)
    background, sent = set(programs.background), endpoint.frames
    spoken = [frame for frame in sent if frame not in background]
    clips = [[frame for frame in clip.frames if frame not in background] for clip in programs.clips]
    # The endpoint took the callers in any order: this one's number is that of its first clip.
    (first,) = [number for number in range(CALLERS) if spoken[0] == clips[number][0]]
    known = [frame for turn in range(len(clips)) for frame in clips[(first + turn) % len(clips)]]
    assert len(spoken) > len(clips[first])
    assert spoken == known[: len(spoken)]
    assert len(sent) <= output["sent_ever"]
    assert sent[0] in background


@pytest.mark.parametrize("reads", [True, False])
def test_an_endpoint_that_says_nothing_leaves_turns_without_an_answer(programs: Programs, reads: bool) -> None:
    endpoint = PythonEndpoint(programs, lambda sock, caller, turn: None, reads=reads)
    with endpoint.serving() as port:
        output, rows = call(programs, port, window_ms=3500, reply_ms=300)
    assert rows
    assert all((row[TurnColumn.STATE], row[TurnColumn.HEARD]) == (0, 0) for row in rows)
    assert output["unanswered_ever"] == output["turns_ever"] == len(rows)


def test_an_endpoint_that_closes_costs_its_callers_and_nothing_else(programs: Programs) -> None:
    endpoint = PythonEndpoint(programs, lambda sock, caller, turn: None, close_after=10)
    with endpoint.serving() as port:
        output, rows = call(programs, port, window_ms=1000)
    assert output["lines_lost"] == CALLERS
    assert rows == []
    assert 10 * CALLERS <= output["sent_ever"] < CALLERS * 1000 // 20


def whole_frames(data: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """The messages of a server's stream, and what is left of it."""
    found: list[dict[str, Any]] = []
    while len(data) >= 2:
        length, head = data[1], 2
        if length == 126:
            length, head = struct.unpack_from("!H", data, 2)[0] if len(data) >= 4 else 1 << 20, 4
        if len(data) < head + length:
            break
        found.append(json.loads(data[head : head + length]))
        data = data[head + length :]
    return found, data


class PythonCaller:
    """One connection to the endpoint in C."""

    def __init__(self, port: int, draw: random.Random) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(30)
        self._draw = draw
        request = b"GET /x HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        self.send(request)
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(65_536)
        head, _, self._rest = head.partition(b"\r\n\r\n")
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head  # RFC 6455's own example

    def send(self, data: bytes) -> None:
        """In pieces of any size."""
        while data:
            size = self._draw.choice((1, 7, 100, 1335, 5000))
            self.sock.sendall(data[:size])
            data = data[size:]

    def until(self, kind: str) -> list[dict[str, Any]]:
        """All messages up to one of a kind."""
        found: list[dict[str, Any]] = []
        while not any(message["type"] == kind for message in found):
            more, self._rest = whole_frames(self._rest + self.sock.recv(65_536))
            found += more
        return found


def test_the_endpoint_answers_speech_that_comes_in_pieces_and_knows_when(programs: Programs) -> None:
    folder, clips = programs.folder, programs.clips
    command = [programs.endpoint, *(str(folder / name) for name in ("greeting", "speech", "answers", "truth"))]
    with serving("endpoint", command, None, folder / "log") as endpoint:
        callers = [PythonCaller(endpoint.ready["port"], random.Random(number)) for number in range(2)]
        moments: dict[tuple[int, int], tuple[int, int]] = {}
        for turn in range(2):
            for number, caller in enumerate(callers):
                clip = clips[(number + turn) % len(clips)]
                caller.send(b"".join(programs.background[:2]) + b"".join(clip.frames[: clip.speech_end_frame - 1]))
                before_last, last = clip.frames[clip.speech_end_frame - 1 : clip.speech_end_frame + 1]
                caller.sock.sendall(before_last + last[:600])
                time.sleep(0.01)  # mostly enough for a read of its own
                before = time.perf_counter_ns()
                caller.sock.sendall(last[600:])
                heard = caller.until("response.done")
                moments[number, turn] = before, time.perf_counter_ns()
                name = f"{number:06d}-{turn:06d}"
                of_reply = [message for message in heard if message["type"].startswith("response.output")]
                assert {message["response_id"] for message in of_reply} == {f"resp_{name}"}
                assert heard[-1]["response"]["id"] == f"resp_{name}"
                audio = [message for message in of_reply if message["type"] == "response.output_audio.delta"]
                pcm = np.frombuffer(b"".join(base64.b64decode(message["delta"]) for message in audio), "<i2")
                assert len(pcm) == 4 * SAMPLES
                moments[number, turn] = (*moments[number, turn][:1], int(np.flatnonzero(pcm)[0]))
        for caller in callers:
            caller.sock.close()
        endpoint.end()
    rows = np.fromfile(folder / "truth", np.int64).reshape(-1, len(TruthColumn)).tolist()
    assert (endpoint.last["turns_begun"], endpoint.last["turns_answered"], endpoint.last["turns_broken"]) == (4, 4, 0)
    assert len(rows) == 4
    for row in rows:
        sent_ns, leading = moments[row[TruthColumn.CALLER], row[TruthColumn.TURN]]
        clip = clips[(row[TruthColumn.CALLER] + row[TruthColumn.TURN]) % len(clips)]
        spoken = clip.moment_perf_ns(clip.rendered.speech_end_sample, clip.speech_end_frame, sent_ns)
        assert row[TruthColumn.SPEECH_END_CERTAIN] == 1
        assert spoken - 1_000_000 <= row[TruthColumn.SPEECH_END] < row[TruthColumn.FIRST_CHUNK]
        later = row[TruthColumn.FIRST_AUDIO] - row[TruthColumn.FIRST_CHUNK]
        assert later >= leading * 1_000_000_000 // 24_000
        if leading < SAMPLES:
            assert later == leading * 1_000_000_000 // 24_000


def test_an_end_of_speech_with_more_behind_it_in_the_same_read_is_not_certain(programs: Programs) -> None:
    folder, (clip, *_) = programs.folder, programs.clips
    command = [programs.endpoint, *(str(folder / name) for name in ("greeting", "speech", "answers", "truth"))]
    with serving("endpoint", command, None, folder / "log") as endpoint:
        caller = PythonCaller(endpoint.ready["port"], random.Random(1))
        caller.sock.sendall(b"".join(clip.frames[: clip.speech_end_frame + 2]))
        caller.until("response.done")
        # Speech that stops short, and a caller who leaves in the middle of it.
        caller.sock.sendall(clip.frames[clip.speech_start_frame] * 2)
        caller.until("conversation.item.input_audio_transcription.delta")
        caller.sock.close()
        endpoint.end()
    (row,) = np.fromfile(folder / "truth", np.int64).reshape(-1, len(TruthColumn)).tolist()
    assert (row[TruthColumn.SPEECH_END_CERTAIN], row[TruthColumn.TURN]) == (0, 0)
    assert (endpoint.last["turns_begun"], endpoint.last["turns_answered"]) == (3, 1)
