"""Sockets with data are read at once while idle and on each tick while busy; frames come first, and nothing starves."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import gevent
import pytest

from loadtest.engine import watch
from loadtest.engine.timing_wheel import TimingWheel, WheelEntry
from loadtest.engine.watch import SocketWatch

MS = 1_000_000
FRAME = 20 * MS
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
        if self.bench.asks_for_more:
            self.bench.watch.has_time_to_read()
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
        self.asks_for_more = False  # a reader finds more than it reads at once
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
        self.watch.tick(self.now, self.now + MS)


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
def test_reading_ends_when_the_next_tick_is_due_and_goes_on_with_the_others(bench: Bench) -> None:
    bench.make_busy()
    pipes = [bench.add().fill() for _ in range(30)]
    bench.reading_ns = MS // 10
    bench.tick()
    assert len(bench.read) == 10, "what a tick has time for"
    bench.tick()
    bench.tick()
    assert set(map(id, bench.read)) == set(map(id, pipes))
    assert len(bench.read) == 30, "epoll reports each socket in turn"


@needs_epoll
@pytest.mark.parametrize(("sent_ns", "read"), [(8 * MS, 20), (2 * MS, 5), (MS // 10, 9), (MS, 3)])
def test_a_tick_without_time_gives_reading_a_share_of_what_its_frames_took(
    bench: Bench, sent_ns: int, read: int
) -> None:
    bench.make_busy()
    bench.flooded, bench.reading_ns = True, MS // 10
    for _ in range(40):
        bench.add().fill()
    began = bench.now
    bench.now += sent_ns
    bench.watch.tick(began, began + MS)
    assert len(bench.read) == read


@needs_epoll
def test_one_socket_is_read_however_late_it_is(bench: Bench) -> None:
    bench.make_busy()
    bench.flooded, bench.reading_ns = True, 5 * MS
    pipes = [bench.add().fill() for _ in range(3)]
    for count in range(1, 7):
        bench.watch.tick(bench.now, bench.now - 20 * MS)
        assert len(bench.read) == count
    assert all(bench.read.count(pipe) == 2 for pipe in pipes)


def test_more_of_one_socket_may_be_read_until_the_next_tick_is_due(bench: Bench) -> None:
    bench.tick()
    assert bench.watch.has_time_to_read()
    bench.now += MS
    assert not bench.watch.has_time_to_read()


class Saturated(Bench):
    """Callers who each send a frame every 20 ms and always have more to read than there is time for."""

    def __init__(self, callers: int, sending_ns: int, reading_ns: int) -> None:
        super().__init__()
        self.make_busy()
        self.wheel: TimingWheel[int] = TimingWheel(self.now, FRAME)
        for number in range(callers):
            self.add().fill()
            self.wheel.add(WheelEntry(len), number, self.now)
        self.flooded, self.sending_ns, self.reading_ns = True, sending_ns, reading_ns
        self.lateness_ns: list[int] = []

    def run(self, ns: int) -> None:
        """Serve ticks as the engine and the hub do."""
        until, base = self.now + ns, self.wheel.base_perf_ns
        while self.now < until:
            began = self.now
            spacing_ns = self.wheel.spacing_ticks * MS
            following = began + spacing_ns - (began - base) % spacing_ns
            for slot in self.wheel.due(began):
                due = slot.due_perf_ns
                for _ in slot.take_row(began):
                    self.lateness_ns.append(self.now - due)
                    self.now += self.sending_ns
            self.watch.tick(began, following)
            if self.watch._own.active:
                self.watch._serve()  # the hub looks at sockets after the tick
            self.now = max(self.now, following)


@needs_epoll
def test_sending_keeps_its_schedule_when_there_is_no_time_to_read_everything() -> None:
    # Sending takes 60 % of the time; reading would take six times as much as all of it.
    crowd = Saturated(callers=80, sending_ns=150_000, reading_ns=300_000)
    crowd.run(1000 * MS)
    assert len(crowd.lateness_ns) >= 80 * 49
    assert max(crowd.lateness_ns) <= 8 * crowd.sending_ns + crowd.reading_ns, "those before it, and one socket"
    read = [crowd.read.count(pipe) for pipe in crowd.pipes]
    assert max(read) - min(read) <= 1
    assert sum(read) * crowd.reading_ns > 350 * MS, "all the time that is left"
    crowd.close()


@needs_epoll
def test_reading_does_not_starve_when_there_is_no_time_to_send_everything() -> None:
    crowd = Saturated(callers=80, sending_ns=500_000, reading_ns=200_000)
    crowd.run(2000 * MS)
    read = [crowd.read.count(pipe) for pipe in crowd.pipes]
    assert max(read) - min(read) <= 1
    shares = sum(read) * crowd.reading_ns, len(crowd.lateness_ns) * crowd.sending_ns
    assert 0.9 * watch.READING_SHARE < shares[0] / shares[1] < 1.2 * watch.READING_SHARE
    crowd.close()


@needs_epoll
def test_nothing_is_unread_that_came_before_the_last_look(bench: Bench) -> None:
    bench.make_busy()
    bench.looked.clear()
    bench.reading_ns = MS // 10
    for _ in range(15):
        bench.add().fill()
    bench.tick()
    assert bench.looked == [], "a third of them are unread"
    since = bench.now
    bench.tick()
    assert len(bench.looked) == 1
    assert since <= bench.looked[0] <= since + 6 * bench.reading_ns, "when epoll was asked last"


@needs_epoll
def test_while_idle_each_tick_looks(bench: Bench) -> None:
    bench.add()
    bench.now = 95
    bench.watch.tick(90, 100)
    assert bench.looked == [95], "nothing is unread"


@needs_epoll
def test_what_came_in_a_pause_is_unread_though_the_tick_after_it_is_served_first(bench: Bench) -> None:
    pipe = bench.add()
    bench.watch.tick(0, MS)
    bench.now = 120 * MS  # after a pause, in which the data came
    pipe.fill()
    bench.watch.tick(bench.now, bench.now + MS)
    bench.now += MS
    bench.watch.tick(bench.now, bench.now + MS)
    assert bench.looked == [0]
    turn_the_loop()
    assert bench.looked == [0, bench.now], "now it has been read"


@needs_epoll
def test_reading_that_ends_late_with_nothing_left_has_looked_at_everything(bench: Bench) -> None:
    bench.add().fill()
    bench.watch.tick(bench.now, bench.now + MS)
    bench.looked.clear()
    began, bench.reading_ns = bench.now, 2 * MS
    turn_the_loop()
    assert bench.looked == [began], "the only socket with data was read, however late"
    bench.watch.tick(bench.now, bench.now + MS)
    assert bench.looked == [began, bench.now]


@needs_epoll
def test_what_was_left_unread_and_closed_is_not_waited_for(bench: Bench) -> None:
    bench.reading_ns = 2 * MS
    pipes = [bench.add().fill(), bench.add().fill()]
    bench.watch.tick(bench.now, bench.now + MS)
    bench.looked.clear()
    bench.watch._serve()
    assert len(bench.read) == 1
    bench.watch.tick(bench.now, bench.now + MS)
    assert bench.looked == []
    for pipe in pipes:
        bench.watch.remove(pipe.ours.fileno())
    bench.watch.tick(bench.now, bench.now + MS)
    assert bench.looked == [bench.now]


@needs_epoll
def test_a_socket_of_which_only_a_part_was_read_is_not_looked_at_to_its_end(bench: Bench) -> None:
    bench.make_busy()
    bench.add().fill()
    bench.looked.clear()
    bench.reading_ns = MS
    bench.asks_for_more = True
    bench.tick()
    assert bench.looked == []


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
    bench.tick()
    assert all(bench.watch.has_time() for _ in range(10 * watch._MIN_WRITTEN)), "the next tick is not due yet"
    bench.watch.tick(bench.now, bench.now)
    allowed = [bench.watch.has_time() for _ in range(10 * watch._MIN_WRITTEN)]
    assert allowed == [True] * watch._MIN_WRITTEN + [False] * (9 * watch._MIN_WRITTEN)
    bench.watch.tick(bench.now, bench.now)
    assert bench.watch.has_time(), "a few may on each tick"
