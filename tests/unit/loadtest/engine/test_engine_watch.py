"""Sockets with data are read at once while little arrives and with the ticks when much does; nobody starves."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import gevent
import pytest

from loadtest.engine import watch
from loadtest.engine.watch import SocketWatch

LINUX = sys.platform.startswith("linux")
needs_epoll = pytest.mark.skipif(not LINUX, reason="the system has no epoll: each socket has a watcher of the hub")


class Pipe:
    """A socket that is watched, and how to put data into it."""

    def __init__(self, told: list["Pipe"], *, broken: bool = False) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.told, self.broken = told, broken
        self.faults: list[Exception] = []

    def readable(self) -> None:
        self.ours.recv(100)
        self.told.append(self)
        if self.broken:
            raise ValueError("a fault of ours")

    def failed(self, fault: Exception) -> None:
        self.faults.append(fault)

    def say(self) -> "Pipe":
        self.theirs.send(b"x")
        return self


class Bench:
    """A watch with some pipes and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.watch = SocketWatch(gevent.get_hub().loop, lambda: self.now)
        self.told: list[Pipe] = []
        self.pipes: list[Pipe] = []

    def add(self, *, stamped: bool = True, broken: bool = False) -> Pipe:
        pipe = Pipe(self.told, broken=broken)
        self.pipes.append(pipe)
        self.watch.add(pipe.ours.fileno(), pipe, stamped=stamped)
        return pipe

    def close(self) -> None:
        self.watch.close()
        for pipe in self.pipes:
            pipe.ours.close()
            pipe.theirs.close()

    def make_busy(self) -> None:
        """So much arrives for a while that it is read with the ticks."""
        self.watch._arrivals = watch._MUCH + 1
        self.quiet_ticks()

    def quiet_ticks(self) -> None:
        for _ in range(watch._JUDGED_TICKS):
            self.watch.tick(self.now + 1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.mark.parametrize("stamped", [True, False])
def test_while_little_arrives_it_is_read_at_once(bench: Bench, stamped: bool) -> None:
    pipe = bench.add(stamped=stamped).say()
    gevent.sleep(0.01)
    assert bench.told == [pipe], "nobody ticked"


@needs_epoll
def test_when_much_arrives_it_is_read_with_the_ticks_until_it_is_little_again(bench: Bench) -> None:
    pipe = bench.add()
    bench.make_busy()
    pipe.say()
    gevent.sleep(0.01)
    assert bench.told == []
    bench.watch.tick(bench.now + 1)
    assert bench.told == [pipe]
    bench.quiet_ticks()
    pipe.say()
    gevent.sleep(0.01)
    assert bench.told == [pipe, pipe]


@needs_epoll
def test_much_is_found_by_counting(bench: Bench) -> None:
    pipe = bench.add()
    for _ in range(watch._MUCH + 1):
        pipe.say()
        bench.watch._serve()
    bench.quiet_ticks()
    told = len(bench.told)
    pipe.say()
    gevent.sleep(0.01)
    assert len(bench.told) == told


@needs_epoll
def test_a_tick_that_is_due_waits_for_a_few_sockets_and_no_more(bench: Bench) -> None:
    bench.make_busy()
    for _ in range(3 * watch._LEAST_AT_ONCE):
        bench.add().say()
    bench.watch.tick(bench.now)
    assert len(bench.told) == watch._LEAST_AT_ONCE
    bench.watch.tick(bench.now)
    bench.watch.tick(bench.now)
    assert len(set(map(id, bench.told))) == 3 * watch._LEAST_AT_ONCE, "the kernel asks for each in turn"


@pytest.mark.parametrize("stamped", [True, False])
def test_a_fault_of_one_reader_is_his_alone(bench: Bench, stamped: bool) -> None:
    broken, sound = bench.add(stamped=stamped, broken=True).say(), bench.add(stamped=stamped).say()
    gevent.sleep(0.01)
    assert set(map(id, bench.told)) == {id(broken), id(sound)}
    assert [str(fault) for fault in broken.faults] == ["a fault of ours"]
    assert sound.faults == []


@pytest.mark.parametrize("stamped", [True, False])
def test_who_is_removed_is_not_told(bench: Bench, stamped: bool) -> None:
    pipe = bench.add(stamped=stamped).say()
    bench.watch.remove(pipe.ours.fileno())
    bench.watch.remove(pipe.ours.fileno())
    gevent.sleep(0.01)
    bench.watch.tick(bench.now + 1)
    assert bench.told == []


@needs_epoll
def test_the_kernels_own_way_is_found_in_a_process_that_gevent_has_patched() -> None:
    patched = "from gevent import monkey; monkey.patch_all(); from loadtest.engine.watch import _open_epoll"
    subprocess.run([sys.executable, "-c", f"{patched}; _open_epoll().close()"], check=True)


def test_without_an_epoll_everything_has_a_watcher_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_open_epoll", lambda: None)
    bench = Bench()
    pipe = bench.add().say()
    gevent.sleep(0.01)
    bench.quiet_ticks()
    assert bench.told == [pipe]
    bench.close()


def test_sockets_that_have_room_again_wait_for_the_frames_that_are_due_but_for_a_few(bench: Bench) -> None:
    bench.watch.tick(bench.now + 1)
    assert all(bench.watch.has_time() for _ in range(10 * watch._LEAST_AT_ONCE)), "the next tick is not due yet"
    bench.watch.tick(bench.now)
    allowed = [bench.watch.has_time() for _ in range(10 * watch._LEAST_AT_ONCE)]
    assert allowed == [True] * watch._LEAST_AT_ONCE + [False] * (9 * watch._LEAST_AT_ONCE)
    bench.watch.tick(bench.now)
    assert bench.watch.has_time(), "with each tick some may"
