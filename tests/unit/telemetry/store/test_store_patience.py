"""Questions that can wait give way to those of others, and keep what they have found."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from telemetry.store.cohort_pieces import FEWEST_ROWS, CohortPiece, CohortPieces
from telemetry.store.connection import StoreConnection
from telemetry.store.manifest import Segment
from telemetry.store.snapshot import GaveWayError, Snapshots
from tests.fixtures_turns import fill_store, synthetic_run

BOUND_S = 60.0


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    fill_store(tmp_path, synthetic_run("r", 4))
    return Snapshots(tmp_path)


def looks_until(connection: StoreConnection, end_s: float) -> None:
    while time.monotonic() < end_s:
        connection.give_way()
        time.sleep(0.001)


def asked_beside_a_viewer(
    snapshots: Snapshots,
    question: Callable[[StoreConnection], object],
    begun: threading.Event,
    done: Callable[[str], None],
) -> None:
    """Ask a question that can wait, and once it has begun, as a viewer does."""

    def patient() -> None:
        with snapshots.patiently():
            snapshots.ask(question)
        done("patient")

    thread = threading.Thread(target=patient)
    thread.start()
    assert begun.wait(BOUND_S)
    snapshots.ask(lambda _connection: done("viewer"))
    thread.join(BOUND_S)


def test_a_question_that_can_wait_is_asked_again_after_the_others(snapshots: Snapshots) -> None:
    answered, begun = list[str](), threading.Event()

    def question(connection: StoreConnection) -> None:
        if not begun.is_set():
            begun.set()
            looks_until(connection, time.monotonic() + BOUND_S)
            answered.append("was never interrupted")

    asked_beside_a_viewer(snapshots, question, begun, answered.append)
    assert answered == ["viewer", "patient"]


def test_a_question_within_another_gives_way_as_a_whole(snapshots: Snapshots) -> None:
    answered, begun = list[str](), threading.Event()

    def inner(connection: StoreConnection) -> None:
        if not begun.is_set():
            begun.set()
            looks_until(connection, time.monotonic() + BOUND_S)

    def question(_connection: StoreConnection) -> None:
        answered.append("asked")
        snapshots.ask(inner)

    asked_beside_a_viewer(snapshots, question, begun, answered.append)
    assert answered == ["asked", "viewer", "asked", "patient"]


def test_a_question_of_a_viewer_is_never_interrupted(snapshots: Snapshots) -> None:
    begun, waits = threading.Event(), threading.Event()

    def question(connection: StoreConnection) -> str:
        begun.set()
        assert waits.wait(BOUND_S)
        looks_until(connection, time.monotonic() + 0.1)
        return "whole"

    def other() -> None:
        assert begun.wait(BOUND_S)
        waits.set()
        snapshots.ask(lambda _connection: None)

    thread = threading.Thread(target=other)
    thread.start()
    assert snapshots.ask(question) == "whole"
    thread.join(BOUND_S)


def test_pieces_that_were_read_before_giving_way_are_not_read_again() -> None:
    pieces, asked = CohortPieces(), list[str]()
    segments = [
        Segment(table="turns", file=name, rows=FEWEST_ROWS, size_bytes=1, crc32=1, raw_bytes=1, stored_unix_ns=0)
        for name in ("a", "b", "c")
    ]

    def ask(some: Sequence[Segment]) -> CohortPiece:
        (segment,) = some
        asked.append(segment.file)
        if asked == ["a", "b"]:
            raise GaveWayError
        return CohortPiece(tuple(some), Counter(), {})

    with pytest.raises(GaveWayError):
        pieces.of("question", segments, ask)
    assert [each.segments[0].file for each in pieces.of("question", segments, ask)] == ["a", "b", "c"]
    assert asked == ["a", "b", "b", "c"]
