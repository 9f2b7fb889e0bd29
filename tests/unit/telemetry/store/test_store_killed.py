"""kill -9 at every step of a writer: what was acknowledged is there after a check, a repair and a start, once each."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from telemetry.model.errors import StoreError
from telemetry.store.check import check
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.reader import StoreReader
from telemetry.store.repair import repair
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn, generator_points

FIRST, LAST = 3, 5
LIMITS = MergeLimits(fan_in=3)
# What changes the disk. Before the process dies in the first of these, half of what it wrote is cut off.
STEPS: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "link"),
    (os, "mkdir"),
    (Path, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
)


def _die_at(number: int) -> None:
    """From now on this process kills itself before the `number`-th step."""
    taken = [0]

    def wrap(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            taken[0] += 1
            if taken[0] == number:
                if name == "fsync":
                    with contextlib.suppress(OSError):  # a folder
                        os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        return step

    for owner, name in STEPS:
        setattr(owner, name, wrap(getattr(owner, name), name))


def _write(store: Path, acknowledge: Callable[[int], None]) -> None:
    """One life of a writer: start, append, merge, and append again."""
    with StoreWriter(store) as writer:
        compactor = Compactor(writer, limits=LIMITS, grace_s=0.0)
        for index in range(FIRST, LAST):
            writer.append(_batch(index))
            acknowledge(index)
            with contextlib.suppress(StoreError):
                compactor.run_once()
        compactor.stop()


def _batch(index: int) -> Batch:
    return Batch([client_turn(index)], points=generator_points(f"run-{index}", 0)[:2])


def _killed_life(store: Path, number: int) -> tuple[list[int], bool]:
    """A life in a process of its own that dies at a step: what it acknowledged, and whether it came to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _die_at(number)
            _write(store, lambda index: os.write(writing, bytes([index])) and None)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = list(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return acknowledged, status == 0


def _turns(store: Path) -> list[int]:
    with StoreReader(store) as reader:
        found = [turn.sequence for turn in reader.turns()]
        assert reader.faults == ()
    assert len(found) == len(set(found)), "a turn is there twice"
    return sorted(number for number in found if number is not None)


def _after(store: Path, acknowledged: set[int]) -> None:
    """What must hold of a store after a kill, and after what mends it."""
    least, most = {*range(FIRST), *acknowledged}, set(range(LAST))
    assert least <= set(_turns(store)) <= most, "after the kill"
    found = check(store)
    assert (found.damaged, found.duplicate_turns, found.is_in_use) == (0, 0, False)
    repaired = repair(store)
    assert repaired.lost_rows == 0
    assert least <= set(_turns(store)) <= most, "after a repair"
    with StoreWriter(store) as writer:
        for index in range(LAST):
            writer.append(_batch(index))  # senders that had no answer send again
    assert _turns(store) == sorted(most)
    found = check(store)
    assert (found.faults, found.rows["turns"], found.rows["points"]) == ((), LAST, 2 * LAST)


def _stores(tmp_path: Path) -> Iterator[Path]:
    """One store after the other, each as an earlier life left it: with segments and something half-written."""
    left = tmp_path / "left"
    with StoreWriter(left) as writer:
        for index in range(FIRST):
            writer.append(_batch(index))
    (left / "segments" / "turns-000000099-00000000.parquet.tmp").write_bytes(b"PAR1")
    for number in count():
        yield shutil.copytree(left, tmp_path / str(number))


@pytest.mark.slow
def test_killed_at_every_step_of_a_life(tmp_path: Path) -> None:
    for number, store in enumerate(_stores(tmp_path), start=1):
        acknowledged, came_to_its_end = _killed_life(store, number)
        _after(store, set(acknowledged))
        if came_to_its_end:
            assert number > 20, "fewer steps than a life has"
            assert acknowledged == list(range(FIRST, LAST))
            return


@pytest.mark.slow
def test_killed_at_every_step_of_a_repair(tmp_path: Path) -> None:
    for number, store in enumerate(_stores(tmp_path), start=1):
        with StoreWriter(store) as writer:
            Compactor(writer, limits=LIMITS).run_once()  # the merged one and its parts are there
        (store / "manifest.json").write_bytes(b"{")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _die_at(number)
                repair(store)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        repair(store)
        assert _turns(store) == list(range(FIRST))
        assert check(store).faults == ()
        if status == 0:
            assert number > 6, "fewer steps than a repair has"
            return
