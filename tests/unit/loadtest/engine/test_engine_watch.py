"""Sockets with data are read at once while idle and on each tick while busy; frames come first, and nothing starves."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import gevent
import pytest

from loadtest.engine import watch
from loadtest.engine.watch import SocketWatch

MS = 1_000_000
LINUX = sys.platform.startswith("linux")
needs_epoll = pytest.mark.skipif(not LINUX, reason="the system has no epoll; each socket has a hub watcher")


class Pipe:
    """A watched socket, with a way to put data into it."""

    def __init__(self, bench: "Bench", *, broken: bool = False) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.bench, self.broken = bench, broken
        self.errors: list[Exception] = []

    def readable(self) -> None:
        if not self.bench.flooded:
            self.ours.recv(100)
        self.bench.read.append(self)
        self.bench.now += self.bench.reading_ns
        if self.broken:
            raise ValueError("an internal error")

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def fill(self) -> "Pipe":
        self.theirs.send(b"x")
        return self


class Bench:
    """A watch with some pipes and a manual clock, which moves on by `reading_ns` with each reading."""

    def __init__(self) -> None:
        self.now = self.reading_ns = 0
        self.flooded = False  # there is always more to read
        self.looked: list[int] = []
        self.watch = SocketWatch(gevent.get_hub().loop, lambda: self.now, self.looked.append)
        self.read: list[Pipe] = []
        self.pipes: list[Pipe] = []

    def add(self, *, stamped: bool = True, broken: bool = False) -> Pipe:
        pipe = Pipe(self, broken=broken)
        self.pipes.append(pipe)
        self.watch.add(pipe.ours.fileno(), pipe, stamped=stamped)
        return pipe

    def close(self) -> None:
        self.watch.close()
        for pipe in self.pipes:
            pipe.ours.close()
            pipe.theirs.close()

    def make_busy(self) -> None:
        """Simulate enough arrivals to make the watch read on each tick."""
        self.watch._arrivals = watch._BUSY_ARRIVALS + 1
        self.pass_window()

    def pass_window(self) -> None:
        """Let the time pass after which the load is assessed."""
        self.now += watch._BUSY_WINDOW_NS
        self.tick()

    def tick(self) -> None:
        """A tick with nothing to send, on time."""
        self.watch.tick(self.now + MS)


def turn_the_loop() -> None:
    """Let the hub look at its sockets more than once: after a pause of the machine, a timer may come before them."""
    for _ in range(3):
        gevent.sleep(0.004)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.mark.parametrize("stamped", [True, False])
def test_while_idle_data_is_read_at_once(bench: Bench, stamped: bool) -> None:
    pipe = bench.add(stamped=stamped).fill()
    turn_the_loop()
    assert bench.read == [pipe], "read without a tick"


@needs_epoll
def test_while_busy_data_is_read_on_ticks_until_the_load_drops(bench: Bench) -> None:
    pipe = bench.add()
    bench.make_busy()
    pipe.fill()
    turn_the_loop()
    assert bench.read == []
    bench.tick()
    assert bench.read == [pipe]
    bench.pass_window()
    pipe.fill()
    turn_the_loop()
    assert bench.read == [pipe, pipe]


@needs_epoll
def test_many_arrivals_make_the_watch_busy(bench: Bench) -> None:
    pipe = bench.add()
    for _ in range(watch._BUSY_ARRIVALS + 1):
        pipe.fill()
        bench.watch._serve()
    bench.pass_window()
    before = len(bench.read)
    pipe.fill()
    turn_the_loop()
    assert len(bench.read) == before


@needs_epoll
def test_reading_ends_at_next_tick_and_continues_with_others(bench: Bench) -> None:
    bench.make_busy()
    pipes = [bench.add().fill() for _ in range(3 * watch.AT_ONCE)]
    bench.reading_ns = MS // 10
    bench.tick()
    assert len(bench.read) == watch.AT_ONCE, "what a tick has time for"
    bench.tick()
    bench.tick()
    assert set(map(id, bench.read)) == set(map(id, pipes))
    assert len(bench.read) == len(pipes), "epoll reports each socket in turn"


@needs_epoll
def test_no_socket_starves_however_late_it_is(bench: Bench) -> None:
    bench.make_busy()
    bench.flooded, bench.reading_ns = True, 5 * MS
    pipes = [bench.add().fill() for _ in range(3 * watch.AT_ONCE)]
    for _ in range(6):
        bench.watch.tick(bench.now - 20 * MS)
    assert [bench.read.count(pipe) for pipe in pipes] == [2] * len(pipes)


@needs_epoll
def test_nothing_is_unread_that_came_before_the_last_look(bench: Bench) -> None:
    bench.make_busy()
    bench.looked.clear()
    bench.reading_ns = MS // 10
    for _ in range(2 * watch.AT_ONCE):
        bench.add().fill()
    bench.tick()
    assert bench.looked == [], "half of them are unread"
    bench.reading_ns = 0
    bench.tick()
    assert bench.looked == [bench.now], "when epoll reported none"


@needs_epoll
def test_data_of_pause_is_read_by_next_tick_before_deadlines(bench: Bench) -> None:
    pipe = bench.add()
    bench.tick()
    bench.now, bench.reading_ns = 120 * MS, MS // 10  # after a pause, in which the data came
    pipe.fill()
    bench.tick()
    assert bench.read == [pipe]
    assert bench.looked == [0, 120 * MS + MS // 10]


@pytest.mark.parametrize("stamped", [True, False])
def test_an_error_in_one_reader_does_not_affect_the_others(bench: Bench, stamped: bool) -> None:
    broken, sound = bench.add(stamped=stamped, broken=True).fill(), bench.add(stamped=stamped).fill()
    turn_the_loop()
    assert set(map(id, bench.read)) == {id(broken), id(sound)}
    assert [str(error) for error in broken.errors] == ["an internal error"]
    assert sound.errors == []


@pytest.mark.parametrize("stamped", [True, False])
def test_a_removed_socket_is_not_read(bench: Bench, stamped: bool) -> None:
    pipe = bench.add(stamped=stamped).fill()
    bench.watch.remove(pipe.ours.fileno())
    bench.watch.remove(pipe.ours.fileno())
    turn_the_loop()
    bench.tick()
    assert bench.read == []


@needs_epoll
def test_epoll_is_found_in_a_process_that_gevent_has_patched() -> None:
    patched = "from gevent import monkey; monkey.patch_all(); from loadtest.engine.watch import _open_epoll"
    subprocess.run([sys.executable, "-c", f"{patched}; _open_epoll().close()"], check=True)


def test_without_epoll_each_socket_has_a_hub_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_open_epoll", lambda: None)
    bench = Bench()
    pipe = bench.add().fill()
    turn_the_loop()
    bench.pass_window()
    assert bench.read == [pipe]
    bench.close()


def test_all_but_a_few_writable_sockets_wait_for_due_frames(bench: Bench) -> None:
    bench.watch.tick(bench.now + 1)
    assert all(bench.watch.has_time() for _ in range(10 * watch.AT_ONCE)), "the next tick is not due yet"
    bench.watch.tick(bench.now)
    allowed = [bench.watch.has_time() for _ in range(10 * watch.AT_ONCE)]
    assert allowed == [True] * watch.AT_ONCE + [False] * (9 * watch.AT_ONCE)
    bench.watch.tick(bench.now)
    assert bench.watch.has_time(), "a few may on each tick"
