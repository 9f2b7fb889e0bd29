"""Sockets with data are read at once while idle and on each tick while busy; no socket starves."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import gevent
import pytest

from loadtest.engine import watch
from loadtest.engine.watch import SocketWatch

LINUX = sys.platform.startswith("linux")
needs_epoll = pytest.mark.skipif(not LINUX, reason="the system has no epoll; each socket has a hub watcher")


class Pipe:
    """A watched socket, with a way to put data into it."""

    def __init__(self, read: list["Pipe"], *, broken: bool = False) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.read, self.broken = read, broken
        self.errors: list[Exception] = []

    def readable(self) -> None:
        self.ours.recv(100)
        self.read.append(self)
        if self.broken:
            raise ValueError("an internal error")

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def fill(self) -> "Pipe":
        self.theirs.send(b"x")
        return self


class Bench:
    """A watch with some pipes and a manual clock."""

    def __init__(self) -> None:
        self.now = 0
        self.watch = SocketWatch(gevent.get_hub().loop, lambda: self.now)
        self.read: list[Pipe] = []
        self.pipes: list[Pipe] = []

    def add(self, *, stamped: bool = True, broken: bool = False) -> Pipe:
        pipe = Pipe(self.read, broken=broken)
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
        self.quiet_ticks()

    def quiet_ticks(self) -> None:
        for _ in range(watch._BUSY_WINDOW_TICKS):
            self.watch.tick(self.now + 1)


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
    bench.watch.tick(bench.now + 1)
    assert bench.read == [pipe]
    bench.quiet_ticks()
    pipe.fill()
    turn_the_loop()
    assert bench.read == [pipe, pipe]


@needs_epoll
def test_many_arrivals_make_the_watch_busy(bench: Bench) -> None:
    pipe = bench.add()
    for _ in range(watch._BUSY_ARRIVALS + 1):
        pipe.fill()
        bench.watch._serve()
    bench.quiet_ticks()
    before = len(bench.read)
    pipe.fill()
    turn_the_loop()
    assert len(bench.read) == before


@needs_epoll
def test_a_due_tick_waits_for_only_a_few_sockets(bench: Bench) -> None:
    bench.make_busy()
    for _ in range(3 * watch._MIN_AT_ONCE):
        bench.add().fill()
    bench.watch.tick(bench.now)
    assert len(bench.read) == watch._MIN_AT_ONCE
    bench.watch.tick(bench.now)
    bench.watch.tick(bench.now)
    assert len(set(map(id, bench.read))) == 3 * watch._MIN_AT_ONCE, "epoll reports each socket in turn"


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
    bench.watch.tick(bench.now + 1)
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
    bench.quiet_ticks()
    assert bench.read == [pipe]
    bench.close()


def test_all_but_a_few_writable_sockets_wait_for_due_frames(bench: Bench) -> None:
    bench.watch.tick(bench.now + 1)
    assert all(bench.watch.has_time() for _ in range(10 * watch._MIN_AT_ONCE)), "the next tick is not due yet"
    bench.watch.tick(bench.now)
    allowed = [bench.watch.has_time() for _ in range(10 * watch._MIN_AT_ONCE)]
    assert allowed == [True] * watch._MIN_AT_ONCE + [False] * (9 * watch._MIN_AT_ONCE)
    bench.watch.tick(bench.now)
    assert bench.watch.has_time(), "a few may on each tick"
