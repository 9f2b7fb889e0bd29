"""The pacer thread on real sockets: what it sends, in which order, and that Python neither delays nor mixes it."""

import os
import select
import shutil
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpora.rendering.cache import cache_root
from loadtest.engine.pacer import KEPT_FRAMES, MOST_SOCKETS, PacedSocket, Pacer, open_pacer
from loadtest.run.processes import ROOT

FRAME_NS = 20_000_000
BACKGROUND = tuple(b"b%03d" % number for number in range(50))
ENOUGH_S = 60.0


@pytest.fixture
def pacer() -> Iterator[Pacer]:
    """A pacer whose thread starts with the first socket."""
    made, reason = open_pacer()
    assert made is not None, reason
    yield made
    made.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, the first one not blocking."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(ENOUGH_S)
    return ours, theirs


def ignore(error: OSError) -> None:
    """Do nothing about a broken connection."""


@contextmanager
def paced_pair(
    pacer: Pacer, frame_ns: int = FRAME_NS
) -> Generator[tuple[PacedSocket, socket.socket, socket.socket], None, None]:
    """A paced socket with both ends of its connection, all of which are closed at the end."""
    ours, theirs = pair()
    with ours, theirs:
        paced = pacer.add(ours.fileno(), frame_ns, ignore)
        assert paced is not None
        try:
            yield paced, ours, theirs
        finally:
            paced.close()


def clip(*frames: bytes, start: int = 0) -> Any:
    """An utterance of these frames with speech from one of them to the last."""
    return SimpleNamespace(frames=frames, speech_start_frame=start, speech_end_frame=len(frames) - 1)


def until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    given_up = time.monotonic() + ENOUGH_S
    while not happened():
        assert time.monotonic() < given_up
        time.sleep(0.001)


def received(sock: socket.socket, size: int) -> bytes:
    """Read so many bytes."""
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data


def rest_of(sock: socket.socket) -> bytes:
    """Read to the end, and close."""
    with sock:
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


@pytest.mark.slow
def test_utterance_is_whole_between_background_and_stamped(pacer: Pacer) -> None:
    with paced_pair(pacer) as (paced, _, theirs):
        first_due = paced.begin(BACKGROUND, FRAME_NS, time.perf_counter_ns())
        assert received(theirs, 8) == b"b000b001"
        began = paced.say(clip(b"utt0", b"utt1", b"utt2", start=1), 2)
        data = received(theirs, 4 * (began + 5 - 2))
        spoken = data.index(b"utt0")
        assert data[spoken : spoken + 12] == b"utt0utt1utt2"
        rest = (data[:spoken] + data[spoken + 12 :]).decode()
        assert rest == "".join(f"b{number:03}" for number in range(2, 2 + len(rest) // 4))
        assert spoken // 4 + 2 == began, "the frame that was announced"
        until(lambda: paced.sent > began + 3)
        start, end = paced.speech()
        assert start is not None
        assert end is not None
        assert (start.number, end.number) == (began + 1, began + 2)
        for frame in (start, end):
            assert frame.due_perf_ns == first_due + frame.number * FRAME_NS
            assert frame.due_perf_ns <= frame.offered_perf_ns <= frame.gone_perf_ns
            (lateness,) = paced.lateness_ns(frame.number, frame.number + 1)
            assert lateness == frame.gone_perf_ns - frame.due_perf_ns


@pytest.mark.slow
def test_calls_with_shifted_background_share_one_copy(pacer: Pacer) -> None:
    tables = set()
    for first in (0, 7, 49):
        with paced_pair(pacer) as (paced, _, theirs):
            paced.begin(BACKGROUND[first:] + BACKGROUND[:first], FRAME_NS, time.perf_counter_ns())
            tables.add(paced._cells[pacer.loop.BACKGROUND])
            assert received(theirs, 8) == BACKGROUND[first] + BACKGROUND[(first + 1) % 50]
    assert len(tables) == 1
    with paced_pair(pacer) as (paced, _, theirs):
        other = (BACKGROUND[0], *(b"c%03d" % number for number in range(49)))
        paced.begin(other, FRAME_NS, time.perf_counter_ns())
        assert received(theirs, 8) == b"b000c000", "another background with a frame in common"


@pytest.mark.slow
def test_mute_ends_utterance_and_stop_ends_all_but_python_sends(pacer: Pacer) -> None:
    with paced_pair(pacer) as (paced, ours, theirs):
        paced.begin(BACKGROUND, FRAME_NS, time.perf_counter_ns())
        paced.say(clip(*(b"utt%d" % number for number in range(9))), 0)
        while received(theirs, 4) != b"utt1":
            pass
        sent = paced.mute()
        paced.stop()
        assert not paced.is_saying
        assert paced.push(b"bye!")
        ours.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: theirs.recv(1000), b""))
        assert data.endswith(b"bye!")
        assert paced.sent <= sent, "no frame after the stop"


@pytest.mark.slow
def test_full_socket_sends_rest_first_and_messages_wait_behind(pacer: Pacer) -> None:
    with paced_pair(pacer, 2_000_000) as (paced, ours, theirs):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        frames = tuple(bytes([65 + number]) * 3001 for number in range(20))
        paced.begin(frames, 2_000_000, time.perf_counter_ns())
        paced.count_from(None, counts=True)
        until(lambda: paced.waiting_bytes > 0)
        assert not paced.push(b"<message>")
        at = paced.sent
        until(lambda: paced.sent > at + 5)
        blocked_since = paced.waits_since_perf_ns
        assert blocked_since is not None
        assert paced.blocked_ns(blocked_since + 10**12) >= 10**12 - FRAME_NS
        data = b""
        while b"<message>" not in data or not data.endswith(b"</message>"):
            data += theirs.recv(1 << 20)
            if b"<message>" in data and paced.waiting_bytes == 0:
                paced.stop()
                paced.push(b"</message>")
                break
        ours.shutdown(socket.SHUT_WR)
        data += b"".join(iter(lambda: theirs.recv(1 << 20), b""))
        before, _, after = data.partition(b"<message>")
        assert len(before) % 3001 == 0, "the message is between whole frames"
        audio = before + after.removesuffix(b"</message>")
        assert audio == b"".join(frames[number % 20] for number in range(paced.sent))
        assert paced.held_up >= 6
        assert paced.queued_bytes == paced.drained_bytes
        assert paced.blocked_ns(None) > 0


@pytest.mark.slow
def test_frames_go_while_the_interpreter_is_never_free(pacer: Pacer) -> None:
    """This loop keeps the interpreter: no other thread gets it, and frames go all the same."""
    with paced_pair(pacer) as (paced, _, _):
        paced.begin(BACKGROUND, FRAME_NS, time.perf_counter_ns())
        until(lambda: paced.sent > 0)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000.0)
        try:
            target, turns = paced.sent + 5, 0
            while paced.sent < target and turns < 10**9:
                turns += 1
        finally:
            sys.setswitchinterval(interval)
        assert paced.sent >= target


@pytest.mark.slow
def test_a_broken_connection_is_reported_and_costs_no_other_one(pacer: Pacer) -> None:
    broken, sound = pair(), pair()
    errors: list[OSError] = []
    paced = [pacer.add(ours.fileno(), FRAME_NS, errors.append) for ours, _ in (broken, sound)]
    for end in paced:
        assert end is not None
        end.begin(BACKGROUND, FRAME_NS, time.perf_counter_ns())
    received(broken[1], 4)
    broken[1].close()
    assert paced[0] is not None
    assert paced[1] is not None
    until(lambda: paced[0] in pacer.collect(0)[0])
    assert [type(error) for error in errors] == [BrokenPipeError]
    with pytest.raises(BrokenPipeError):
        paced[0].push(b"more")
    before = paced[1].sent
    until(lambda: paced[1].sent > before + 2)
    for end in (*paced, broken[0], *sound):
        assert end is not None
        end.close()


class Owner:
    """Holds its paced socket, as a connection does."""

    def __init__(self, pacer: Pacer, sock: socket.socket) -> None:
        self.paced = pacer.add(sock.fileno(), FRAME_NS, self.broke)

    def broke(self, error: OSError) -> None:
        """Do nothing about a broken connection."""


@pytest.mark.slow
def test_owner_of_closed_socket_is_freed_without_gc(pacer: Pacer) -> None:
    ours, theirs = pair()
    with ours, theirs:
        owner = Owner(pacer, ours)
        paced, is_alive = owner.paced, weakref.ref(owner)
        assert paced is not None
        paced.close()
        del owner
        assert is_alive() is None


@pytest.mark.slow
def test_deadline_is_reported_when_due_and_every_frame_once(pacer: Pacer) -> None:
    with paced_pair(pacer) as (paced, _, _):
        paced.begin(BACKGROUND, FRAME_NS, 0)  # long overdue: frames catch up one by one
        paced.set_deadline(1000)
        assert pacer.collect(999)[0] == []
        assert pacer.collect(1000)[0] == [paced]
        late: list[int] = []
        until(lambda: late.extend(pacer.collect(0)[1]) or len(late) > KEPT_FRAMES + 10)
        paced.stop()
        sent = paced.sent
        until(lambda: late.extend(pacer.collect(0)[1]) or len(late) >= sent)
        assert len(late) == sent
        assert paced.lateness_ns(0, sent) == late[-KEPT_FRAMES:]


@pytest.mark.slow
def test_ten_thousand_calls_never_write_to_other_connections(pacer: Pacer) -> None:
    """Descriptors are reused at once; each connection may only see the bytes of its own call."""
    crowd = []
    for _ in range(100):
        ours, theirs = pair()
        paced = pacer.add(ours.fileno(), FRAME_NS, ignore)
        assert paced is not None
        paced.begin((b"crowd",), FRAME_NS, time.perf_counter_ns())
        crowd.append((paced, ours, theirs))
    open_calls: list[tuple[int, Any, socket.socket, socket.socket]] = []
    wrong: list[tuple[int, bytes]] = []
    seen = 0
    for number in range(10_000):
        ours, theirs = pair()
        paced = pacer.add(ours.fileno(), 1_000_000, ignore)
        assert paced is not None
        own = b"%05d" % number
        paced.begin((own,), 1_000_000, 0)  # overdue: due at every pass of the thread
        open_calls.append((number, paced, ours, theirs))
        if len(open_calls) == 20:
            old, leaving, its_own, its_other = open_calls.pop(number % 20)
            paced_bytes = b"%05d" % old
            leaving.close()
            its_own.close()
            data = rest_of(its_other)
            seen += len(data)
            if data.replace(paced_bytes, b""):
                wrong.append((old, data[:50]))
    assert wrong == []
    assert seen > 0, "there was load"
    for paced, ours, theirs in crowd:
        paced.close()
        ours.close()
        assert not rest_of(theirs).replace(b"crowd", b"")
    for _, paced, ours, theirs in open_calls:
        paced.close()
        ours.close()
        theirs.close()


@pytest.mark.slow
def test_a_thread_that_ends_by_itself_is_known_to_have_failed(pacer: Pacer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacer, "_run", lambda: None)
    assert not pacer.has_failed, "it has not begun"
    ours, theirs = pair()
    paced = pacer.add(ours.fileno(), FRAME_NS, ignore)
    until(lambda: pacer.has_failed)
    assert paced is not None
    for end in (paced, ours, theirs):
        end.close()


# Where there is no pacer, and where its functions are kept.


def opened(environment: dict[str, str | None], code: str = "") -> subprocess.Popen[str]:
    """A process that opens a pacer and prints what came of it."""
    script = (
        f"{code}\nfrom loadtest.engine.pacer import open_pacer\nmade, why = open_pacer()\nprint(made is not None, why)"
    )
    variables = os.environ | {"NUMBA_OPT": "0"} | environment  # compiled in half the time
    kept = {name: value for name, value in variables.items() if value is not None}
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=kept, text=True, stdout=subprocess.PIPE)


def answer(process: subprocess.Popen[str]) -> str:
    """Return the output of the process."""
    return process.communicate(timeout=5 * ENOUGH_S)[0].strip()


@pytest.mark.nightly
def test_four_processes_that_start_together_share_one_cache(tmp_path: Path) -> None:
    environment: dict[str, str | None] = {"VOICEPROBE_CACHE": str(tmp_path), "NUMBA_CACHE_DIR": None}
    starting = [opened(environment) for _ in range(4)]
    assert [answer(process) for process in starting] == ["True"] * 4
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert kept
    assert answer(opened(environment)) == "True"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == kept, "nothing is compiled again"


@pytest.mark.slow
@pytest.mark.usefixtures("pacer")
def test_damaged_cache_file_is_not_used(tmp_path: Path) -> None:
    # The pacer of this process was compiled into its cache, or loaded from it. Other processes may write there.
    shutil.copytree(cache_root() / "compiled", tmp_path / "compiled", ignore=shutil.ignore_patterns("*.tmp.*"))
    cached = [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")]
    assert cached
    for file in cached:
        file.write_bytes(b"damaged")
    assert answer(opened({"VOICEPROBE_CACHE": str(tmp_path), "NUMBA_CACHE_DIR": None})) == "True"


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"VOICEPROBE_CACHE": "/proc/no/such/folder", "NUMBA_CACHE_DIR": None},
        {"HOME": None, "VOICEPROBE_CACHE": None, "VOICEPROBE_HOME": "/dev/null/home", "XDG_CACHE_HOME": None},
    ],
    ids=["read-only", "no home"],
)
def test_each_process_compiles_its_own_without_cache_folder(environment: dict[str, str | None]) -> None:
    assert answer(opened(environment)) == "True"


@pytest.mark.slow
def test_without_numba_its_compiler_or_linux_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(opened({}, "import sys; sys.modules['numba'] = None")).startswith("False ModuleNotFoundError: ")
    assert answer(opened({"NUMBA_DISABLE_JIT": "1"})).startswith("False ")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert open_pacer() == (None, "needs Linux")


@pytest.mark.slow
def test_a_full_house_is_left_to_the_hub(pacer: Pacer) -> None:
    reader, writer = os.pipe()
    places = []
    while (paced := pacer.add(writer, FRAME_NS, ignore)) is not None:
        places.append(paced)
    assert len(places) == MOST_SOCKETS
    for paced in places:
        paced.close()
    assert pacer.add(writer, FRAME_NS, ignore) is not None
    assert not select.select([reader], [], [], 0)[0]
    os.close(reader)
    os.close(writer)
