"""The benchmarks really run, and the programs in C agree with ours; how fast anything is decides nothing here."""

import base64
import contextlib
import itertools
import json
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.run.processes import ROOT
from loadtest.targets.ground_truth.conversation import TurnEvents
from loadtest.targets.ground_truth.frames import FrameCutter
from tests.benchmarks.bench.figures import TruthColumn, TurnColumn, TurnState
from tests.benchmarks.bench.generator import CONTROL, NAIVE, OURS, STALLS, Case, GeneratorBench, Options
from tests.benchmarks.bench.modes import greeting, prepared_speech
from tests.benchmarks.bench.processes import PartFailedError, finish, serving, start
from tests.programs import needed

pytestmark = pytest.mark.nightly

CALLERS = 6
SAMPLES = 2400


def ran(capture: Any, folder: Path, *flags: str) -> dict[str, Any]:
    """Run a benchmark, show what it printed, and return what it wrote."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.bench",
        *flags,
        "--markdown",
        "--json",
        str(folder / "found.json"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with capture.global_and_fixture_disabled():
        print(f"\n{done.stderr}")  # no figure in it decides a test
    return {**json.loads((folder / "found.json").read_text()), "output": done.stdout}


@pytest.fixture(scope="module")
def capture(request: pytest.FixtureRequest) -> Any:
    return request.config.pluginmanager.getplugin("capturemanager")


def test_every_sender_has_figures_in_every_mode(capture: Any, tmp_path: Path) -> None:
    needed("cc")
    result = ran(capture, tmp_path, "--short", "--wires", "ws,wss")
    assert {"cpu", "cores", "python", "libraries"} <= result["machine"].keys()
    assert all(trial["failed"] is None for trial in result["trials"])
    by_case: dict[str, dict[str, dict[str, float]]] = {}
    for trial in result["trials"]:
        by_case.setdefault(trial["case"], {})[trial["sender"]] = trial["figures"]
    assert {name: set(senders) for name, senders in by_case.items()} == {
        **{f"20 {mode}, ws": {CONTROL, OURS, NAIVE} for mode in ("one-way", "duplex")},
        **{f"20 {mode}, wss": {OURS, NAIVE} for mode in ("one-way", "duplex")},
        "20 conversations, ws": {CONTROL, OURS},
        "20 conversations, wss": {OURS},
        **{f"20 conversations, {stall}": {OURS} for stall in STALLS},
    }
    for name, senders in by_case.items():
        for figures in senders.values():
            assert figures["cpu_us"] > 0
            assert figures["late_p50"] <= figures["late_p99"] <= figures["late_max"]
            assert (figures["turns"] > 0) == ("conversations" in name)
        assert f"| {name}: {OURS} |" in result["output"]


def test_every_figure_of_a_store_is_there(capture: Any, tmp_path: Path) -> None:
    result = ran(capture, tmp_path, "store", "--short", "--folder", str(tmp_path))
    (store,) = result["stores"]
    assert store["turns"] == pytest.approx(3_000, rel=0.1)
    assert store["size_bytes"] > 0
    assert store["start_s"] > 0
    for name in ("page", "lookup", "summary", "fresh"):
        assert 0 < store[name]["repeated_s"] <= store[name]["worst_s"]
        assert store[name]["peak_rss_bytes"] > 10_000_000
    for name in ("fastest", "paced"):
        assert store[name]["spans"] > 0
        assert store[name]["cpu_us_per_span"] > 0
        assert store[name]["ack_p50_s"] <= store[name]["ack_p99_s"]
    assert store["paced"]["spans_per_s"] <= 11_000
    assert f"| Turns in the store | {store['turns']:,} |" in result["output"]
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_pages_are_timed(capture: Any, tmp_path: Path) -> None:
    needed("chromium", "chromium-browser", "google-chrome")
    result = ran(capture, tmp_path, "pages", "--short")
    assert set(result["pages"]) == {"now", "turns"}
    assert all(len(cells) == 3 for sizes in result["pages"].values() for cells in sizes.values())


def test_a_part_that_fails_says_so_in_its_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such caller')"]
    with pytest.raises(PartFailedError, match="the sender ended with code 1: no such caller"):
        finish("sender", start(command, None, tmp_path / "log"), 30, tmp_path / "log")
    with (
        pytest.raises(PartFailedError, match="the endpoint did not start: no such caller"),
        serving("endpoint", command, None, tmp_path / "log2"),
    ):
        pass


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> GeneratorBench:
    needed("cc")
    return GeneratorBench(tmp_path_factory.mktemp("bench"), Options((), 1, 1000, 5000, "plain"))


@pytest.mark.parametrize("sender", [CONTROL, OURS])
def test_callers_and_endpoint_count_the_same_turns(bench: GeneratorBench, sender: str) -> None:
    result = bench.measure(Case(CALLERS, "conversations"), sender)
    assert result["turns"]
    assert [result[name] for name in ("missing", "unanswered", "outside")] == [0, 0, 0]
    assert result["turns"] == sum(result[name] or 0 for name in ("compared", "unsure", "invalid"))
    assert result["intervals"] == (result["compared"] if sender == OURS else 0), "callers in C state no interval"
    truths = np.fromfile(bench.folder / "truth", np.int64).reshape(-1, len(TruthColumn))
    ordered = [TruthColumn.SPEECH_END, TruthColumn.FIRST_CHUNK, TruthColumn.FIRST_AUDIO, TruthColumn.REPLY_END]
    assert (np.diff(truths[:, ordered], axis=1) >= 0).all()


class PythonCaller:
    """One connection to the endpoint in C."""

    def __init__(self, port: int, draw: random.Random) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(30)
        self._draw = draw
        self.send(b"GET /x HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(65_536)
        head, _, self._rest = head.partition(b"\r\n\r\n")
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head  # RFC 6455's own example

    def send(self, data: bytes) -> None:
        """Send the data in pieces of any size."""
        while data:
            size = self._draw.choice((1, 7, 100, 1335, 5000))
            self.sock.sendall(data[:size])
            data = data[size:]

    def until(self, kind: str) -> list[dict[str, Any]]:
        """All messages up to one of a kind."""
        values: list[dict[str, Any]] = []
        while not any(message["type"] == kind for message in values):
            self._rest += self.sock.recv(65_536)
            while (whole := self._message()) is not None:
                values.append(whole)
        return values

    def _message(self) -> dict[str, Any] | None:
        data, length, head = self._rest, 0, 2
        if len(data) < 4:
            return None
        length = data[1]
        if length == 126:
            length, head = struct.unpack_from("!H", data, 2)[0], 4
        if len(data) < head + length:
            return None
        self._rest = data[head + length :]
        return json.loads(data[head : head + length])


def test_endpoint_answers_fragmented_speech_and_records_when(bench: GeneratorBench) -> None:
    clips, background = prepared_speech()
    moments: dict[tuple[int, int], tuple[int, int]] = {}
    with serving("endpoint", bench._endpoint_command(Case(2, "conversations")), None, bench.folder / "log") as endpoint:
        callers = [PythonCaller(endpoint.ready["port"], random.Random(number)) for number in range(2)]
        for turn in range(2):
            for number, caller in enumerate(callers):
                clip = clips[(number + turn) % len(clips)]
                caller.send(b"".join(background[:2]) + b"".join(clip.frames[: clip.speech_end_frame - 1]))
                before_last, last = clip.frames[clip.speech_end_frame - 1 : clip.speech_end_frame + 1]
                caller.sock.sendall(before_last + last[:600])
                time.sleep(0.01)  # mostly enough for a read of its own
                before_ns = time.perf_counter_ns()
                caller.sock.sendall(last[600:])
                heard = caller.until("response.done")
                of_reply = [message for message in heard if message["type"].startswith("response.output")]
                assert {message["response_id"] for message in of_reply} == {f"resp_{number:06d}-{turn:06d}"}
                audio = [message for message in of_reply if message["type"] == "response.output_audio.delta"]
                pcm = np.frombuffer(b"".join(base64.b64decode(message["delta"]) for message in audio), "<i2")
                assert len(pcm) == 4 * SAMPLES
                moments[number, turn] = before_ns, int(np.flatnonzero(pcm)[0])
        for caller in callers:
            caller.sock.close()
        endpoint.end()
    rows = np.fromfile(bench.folder / "truth", np.int64).reshape(-1, len(TruthColumn)).tolist()
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


def test_speech_end_with_more_data_in_same_read_is_uncertain(bench: GeneratorBench) -> None:
    (clip, *_), _ = prepared_speech()
    with serving("endpoint", bench._endpoint_command(Case(1, "conversations")), None, bench.folder / "log") as endpoint:
        caller = PythonCaller(endpoint.ready["port"], random.Random(1))
        caller.sock.sendall(b"".join(clip.frames[: clip.speech_end_frame + 2]))
        caller.until("response.done")
        # Speech that stops short, and a caller who leaves in the middle of it.
        caller.sock.sendall(clip.frames[clip.speech_start_frame] * 2)
        caller.until("conversation.item.input_audio_transcription.delta")
        caller.sock.close()
        endpoint.end()
    (row,) = np.fromfile(bench.folder / "truth", np.int64).reshape(-1, len(TruthColumn)).tolist()
    assert (row[TruthColumn.SPEECH_END_CERTAIN], row[TruthColumn.TURN]) == (0, 0)
    assert (endpoint.last["turns_begun"], endpoint.last["turns_answered"]) == (3, 1)


def ends_of_speech() -> set[bytes]:
    return {clip.frames[clip.speech_end_frame] for clip in prepared_speech()[0]}


@dataclass
class PythonEndpoint:
    """Takes callers in C, and does with each utterance whatever `answer(socket, caller, turn)` does."""

    answer: Callable[[socket.socket, int, int], None] = lambda sock, caller, turn: None
    close_after: int | None = None  # frames of a caller
    reads: bool = True
    heard: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    frames: list[bytes] = field(default_factory=list[bytes])  # of the first caller that came
    ends: set[bytes] = field(default_factory=ends_of_speech)
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
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + greeting()[:-5])
        sock.sendall(greeting()[-5:])
        cutter, turn, count = FrameCutter(), 0, 0
        while self.reads and (data := sock.recv(65_536)):
            for frame in cutter.cut(data):
                count += 1
                if caller == 0:
                    self.frames.append(frame.data)
                if frame.data in self.ends:
                    self.heard.append((caller, turn))
                    self.answer(sock, caller, turn)
                    turn += 1
                if count == self.close_after:
                    return
        if not self.reads:
            self.over.wait()


def call(
    bench: GeneratorBench, port: int, *, window_ms: int, reply_ms: int = 5000
) -> tuple[dict[str, Any], list[list[int]]]:
    """Run the callers in C; what they print, and the rows of their turns."""
    files = [str(bench.folder / name) for name in ("speech", "lateness", "turns")]
    words = [str(port), str(CALLERS), "0", str(window_ms), *files, "100", "300", str(reply_ms)]
    done = subprocess.run([bench._caller, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = np.fromfile(bench.folder / "turns", np.int64).reshape(-1, len(TurnColumn))
    return json.loads(done.stdout), rows.tolist()


def reply(caller: int, turn: int) -> list[bytes]:
    events = TurnEvents(f"{caller + 700:06d}-{turn + 40:06d}")
    chunks = [events.audio(0, 0, SAMPLES), events.audio(0, SAMPLES, SAMPLES)]
    return [events.final(), events.created(), events.token(0), *chunks, events.done()]


def test_messages_split_anywhere_are_counted_and_end_a_turn(bench: GeneratorBench) -> None:
    def split(sock: socket.socket, caller: int, turn: int) -> None:
        for message in reply(caller, turn):
            places = [0, 1, 3, 9, 40, 150, len(message) - 1, len(message)]
            for begin, end in itertools.pairwise(places):
                sock.sendall(message[begin:end])
                time.sleep(0.001)  # mostly enough for a read of its own

    endpoint = PythonEndpoint(split)
    with endpoint.serving() as port:
        output, rows = call(bench, port, window_ms=4000)
    assert rows
    assert {(row[TurnColumn.CALLER] - 700, row[TurnColumn.TURN] - 40) for row in rows} <= set(endpoint.heard)
    assert all(row[TurnColumn.STATE] == TurnState.ANSWERED for row in rows)
    assert len(endpoint.heard) - len(rows) <= CALLERS  # one of each may be under way
    assert output["lines_lost"] == 0
    assert all(row[TurnColumn.SPEECH_END] < row[TurnColumn.HEARD] for row in rows)
    played_ns = [row[TurnColumn.ENDED] - row[TurnColumn.HEARD] for row in rows]
    # All of it is played before a turn is over; it pauses where the second chunk comes late.
    assert min(played_ns) == 2 * SAMPLES * 1_000_000_000 // 24_000


def test_caller_sends_whole_clips_in_turn_between_background(bench: GeneratorBench) -> None:
    endpoint = PythonEndpoint(lambda sock, caller, turn: sock.sendall(b"".join(reply(caller, turn))))
    with endpoint.serving() as port:
        output, _ = call(bench, port, window_ms=4000)
    every, background = prepared_speech()
    spoken = [frame for frame in endpoint.frames if frame not in background]
    clips = [[frame for frame in clip.frames if frame not in background] for clip in every]
    # The endpoint took the callers in any order: this one's number is that of its first clip.
    (first,) = [number for number in range(CALLERS) if spoken[0] == clips[number][0]]
    known = [frame for turn in range(len(clips)) for frame in clips[(first + turn) % len(clips)]]
    assert len(spoken) > len(clips[first])
    assert spoken == known[: len(spoken)]
    assert len(endpoint.frames) <= output["sent_ever"]
    assert endpoint.frames[0] in background


@pytest.mark.parametrize("reads", [True, False])
def test_silent_endpoint_leaves_turns_without_answer(bench: GeneratorBench, reads: bool) -> None:
    with PythonEndpoint(reads=reads).serving() as port:
        output, rows = call(bench, port, window_ms=3500, reply_ms=300)
    assert rows
    assert all((row[TurnColumn.STATE], row[TurnColumn.HEARD]) == (TurnState.UNANSWERED, 0) for row in rows)
    assert output["unanswered_ever"] == output["turns_ever"] == len(rows)


def test_closing_endpoint_loses_its_callers_and_nothing_else(bench: GeneratorBench) -> None:
    with PythonEndpoint(close_after=10).serving() as port:
        output, rows = call(bench, port, window_ms=1000)
    assert output["lines_lost"] == CALLERS
    assert rows == []
    assert 10 * CALLERS <= output["sent_ever"] < CALLERS * 1000 // 20
