"""Following a swarm: the command's questions to the store meanwhile, and its detection of the end."""

import io
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from loadtest.reports.progress import live_lines, what_is_left
from loadtest.run import job
from loadtest.run.request import RunRequest, check
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.model.generator_health import gauge_metric
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn, run_span

STOP_TIMEOUT_S = 5.0


@dataclass
class World:
    """A swarm that ends at a time of a clock, which goes on when somebody waits. Some of its workers may end later. In
    its folder it says when it has prepared its speech."""

    ends_at_s: float
    folder: Path = Path()
    workers_end_at_s: float = 0.0
    interrupted_at_s: float = float("inf")
    now_s: float = 1000.0
    prepares_s: float = 0.0
    has_begun: bool = False
    asked_at_s: list[float] = field(default_factory=list[float])
    preparations_s: list[float] = field(default_factory=list[float])
    looks: int = 0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> bool:
        self.now_s += timeout_s
        if self.now_s >= 1000.0 + self.prepares_s and not self.has_begun:
            begun = job._begun_file(self.folder, "run")
            begun.parent.mkdir()
            begun.touch()
            self.has_begun = True
        return self.now_s >= self.interrupted_at_s

    def ended(self) -> int | None:
        return 0 if self.now_s >= self.ends_at_s else None

    def all_ended(self, patience_s: float) -> bool:
        assert patience_s == STOP_TIMEOUT_S + job.LAST_WORDS_S
        return self.now_s >= max(self.ends_at_s, self.workers_end_at_s)

    def watch(self) -> None:
        self.looks += 1

    def figures(self, started: object, reader: object, elapsed_s: float, preparation_s: float) -> SimpleNamespace:
        del started, reader
        self.asked_at_s.append(elapsed_s)
        self.preparations_s.append(preparation_s)
        return SimpleNamespace(text=f"figures of {elapsed_s:.1f}")


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[World, Console], bool]:
    def follow(world: World, console: Console) -> bool:
        world.folder = tmp_path
        monkeypatch.setattr(job, "time", world)
        monkeypatch.setattr(job, "Interruption", lambda: nullcontext(world))
        monkeypatch.setattr(job, "StoreReader", nullcontext)
        monkeypatch.setattr(job, "_live_info", world.figures)
        monkeypatch.setattr(job, "live_lines", lambda info: [info.text])
        monkeypatch.setattr(job, "live_view", lambda info: info.text)
        monkeypatch.setattr(job, "_stop", lambda swarm, interruption, console, patience_s: None)
        monkeypatch.setattr(job.processes, "stand_by", lambda: None)
        load = RunLoad(stop_timeout=Duration.of_s(STOP_TIMEOUT_S))
        checked = SimpleNamespace(request=SimpleNamespace(load=load, out=tmp_path))
        started = job._StartedRun(cast(Any, checked), "run", Path("store"), cast(Any, world), ())
        return job._follow(started, console, world.watch)

    return follow


def test_in_a_log_the_store_is_asked_only_when_lines_are_printed(
    followed: Callable[[World, Console], bool],
) -> None:
    world, log = World(ends_at_s=1065.0), io.StringIO()
    assert not followed(world, Console(file=log, force_terminal=False))
    assert len(world.asked_at_s) == 6  # a minute and five seconds, and a line every ten
    assert all(
        job.SAY_EVERY_S <= later - earlier < job.SAY_EVERY_S + job.LOOK_EVERY_S + job.END_SEEN_WITHIN_S
        for earlier, later in zip([0.0, *world.asked_at_s], world.asked_at_s, strict=False)
    )
    assert log.getvalue().splitlines() == [f"figures of {at:.1f}" for at in world.asked_at_s]
    assert world.looks >= 30


def test_preparation_lasts_until_swarm_reports_its_start(
    followed: Callable[[World, Console], bool],
) -> None:
    world = World(ends_at_s=1065.0, prepares_s=25.0)
    assert not followed(world, Console(file=io.StringIO(), force_terminal=False))
    first, second, *later = world.preparations_s
    assert [first, second] == world.asked_at_s[:2]
    assert len(set(later)) == 1
    assert 25.0 - job.LOOK_EVERY_S - job.END_SEEN_WITHIN_S <= later[0] <= 25.0


def test_remaining_time_does_not_depend_on_stored_turns(tmp_path: Path) -> None:
    """A sidecar that does not answer commits nothing: the store stays empty."""
    StoreWriter(tmp_path / "store").close()
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en", run_id="run")
    checked = check(RunRequest(settings, RunLoad(users=1, run_time=Duration.of_s(60)), None, tmp_path / "out", None))
    started = job._StartedRun(checked, "run", tmp_path / "store", cast(Any, None), ())
    with StoreReader(tmp_path / "store") as reader:
        preparing = job._live_info(started, reader, 5.0, 5.0)
        later = [job._live_info(started, reader, elapsed_s, 8.0) for elapsed_s in (10.0, 40.0)]
    assert what_is_left(preparing) == "1:00 remaining"
    assert preparing.note == "the callers are preparing their speech"
    assert [what_is_left(info) for info in later] == ["0:58 remaining", "0:28 remaining"]
    assert {info.note for info in later} == {"nothing of this run has reached the store yet"}


@pytest.mark.slow
def test_the_calls_in_flight_are_those_of_the_newest_report(tmp_path: Path) -> None:
    """Callers whose first turns have ended speak on; no later turn has begun when their process reports."""
    turns = [client_turn(index, run_id="run", started_unix_ns=START_UNIX_NS + SECOND) for index in range(7)]
    begun, reported = run_span("run", START_UNIX_NS, "start"), START_UNIX_NS + 9 * SECOND
    points = [
        PointRow(gauge_metric("calls_in_flight"), at, calls, {"run_id": "run", "process_id": "worker-1"})
        for at, calls in ((START_UNIX_NS, 0.0), (START_UNIX_NS + SECOND, 0.0), (reported, 8.0))
    ]
    settings = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime", corpus="voiceprobe-en", run_id="run")
    checked = check(RunRequest(settings, RunLoad(users=8, run_time=Duration.of_s(60)), None, tmp_path / "out", None))
    started = job._StartedRun(checked, "run", tmp_path / "store", cast(Any, None), ())
    with StoreWriter(tmp_path / "store") as writer, StoreReader(tmp_path / "store") as reader:
        writer.append(Batch(turns=turns, spans=[begun], points=points[:2]))
        early = job._live_info(started, reader, 10.0, 1.0)
        writer.append(Batch(points=points[2:]))
        later = job._live_info(started, reader, 10.0, 1.0)
    assert early.calls_in_flight is None, "the turns ended after the last report: it is not known"
    assert live_lines(later)[0].startswith("  10 s: 8 of 8 on a call; turns 7: 7 ok")


def test_in_a_terminal_they_are_shown_at_every_look(followed: Callable[[World, Console], bool]) -> None:
    world = World(ends_at_s=1020.1)
    assert not followed(world, Console(file=io.StringIO(), force_terminal=True))
    assert len(world.asked_at_s) == pytest.approx(10, abs=1)


def test_each_terminal_update_replaces_the_previous_one(followed: Callable[[World, Console], bool]) -> None:
    world, screen, rows = World(1010.0), io.StringIO(), [""]
    followed(world, Console(file=screen, force_terminal=True, width=60, highlight=False))
    # As a terminal takes it: lines are begun again, left, gone back to and erased.
    for code, text in re.findall(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", screen.getvalue()):
        if text:
            rows[-1] = text
        elif code == "\n":
            rows.append("")
        elif code == "\x1b[1A":
            del rows[-1]
        elif code == "\x1b[2K":
            rows[-1] = ""
    assert f"figures of {world.asked_at_s[-1]:.1f}" in screen.getvalue()
    assert not [row for row in rows if "figures of" in row], "the report follows, which has the last figures"


@pytest.mark.parametrize("ends_at_s", [1000.1, 1003.3, 1004.0])
def test_the_end_is_seen_before_the_next_look(followed: Callable[[World, Console], bool], ends_at_s: float) -> None:
    world = World(ends_at_s=ends_at_s)
    assert not followed(world, Console(file=io.StringIO(), force_terminal=False))
    assert world.now_s == pytest.approx(ends_at_s, abs=job.END_SEEN_WITHIN_S + 0.001)


def test_workers_outliving_swarm_are_awaited_without_queries(
    followed: Callable[[World, Console], bool],
) -> None:
    world = World(ends_at_s=1003.0, workers_end_at_s=1009.0)
    assert not followed(world, Console(file=io.StringIO(), force_terminal=True))
    assert world.now_s == pytest.approx(1009.0, abs=job.END_SEEN_WITHIN_S + 0.001)
    assert len(world.asked_at_s) <= 9.0 / job.LOOK_EVERY_S


def test_interruption_is_handled_at_once(followed: Callable[[World, Console], bool]) -> None:
    world = World(ends_at_s=1100.0, interrupted_at_s=1000.7)
    assert followed(world, Console(file=io.StringIO(), force_terminal=False))
    assert world.now_s == pytest.approx(1000.7, abs=job.END_SEEN_WITHIN_S + 0.001)
