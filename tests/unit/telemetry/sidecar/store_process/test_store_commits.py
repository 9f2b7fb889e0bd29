"""Committing what is in the log: in order, bounded, again after a failure, and no request against the others."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from telemetry.model.errors import StoreError
from telemetry.sidecar.messages import Faults, Take
from telemetry.sidecar.store_process.commits import Committer
from telemetry.sidecar.store_process.fault_board import FaultBoard
from telemetry.sidecar.store_process.groups import DecodedGroup, decode_group
from telemetry.sidecar.store_process.replay import ATTEMPTS_NAME, SINGLE_ATTEMPTS, TOGETHER_ATTEMPTS, replay
from telemetry.store.ingest_log import IngestLog, Record
from tests.fixtures_sidecar import turns_request
from tests.fixtures_turns import client_turn

_LONG_S = 3600.0


def _request(index: int) -> Take:
    turn = client_turn(index, trace_id=f"{index + 1:032x}")
    return Take(index, "traces", "protobuf", alone=False, body=turns_request([turn]).SerializeToString())


class _Segments:
    """Stands for the segments: remembers the turns it took, refuses or fails when it is told to."""

    def __init__(self) -> None:
        self.commits: list[list[int]] = []
        self.refuses = False
        self.fails_at: int | None = None
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    def write(self, groups: Sequence[DecodedGroup]) -> None:
        self.entered.set()
        assert self.go.wait(120)
        if self.refuses:
            raise StoreError("the disk is full")
        numbers = [number for group in groups for tables in group.tables for number in _numbers(tables.turns)]
        if self.fails_at in numbers:
            raise OverflowError("too large")
        self.commits.append(numbers)

    @property
    def turns(self) -> list[int]:
        return [number for commit in self.commits for number in commit]


def _numbers(turns) -> list[int]:
    return turns.column("sequence").to_pylist()


class _Setup:
    def __init__(self, folder: Path, **options: float) -> None:
        self.folder = folder
        self.segments = _Segments()
        self.reported: list[Faults] = []
        self.changed = threading.Event()
        self.log = IngestLog(folder / "ingest", folder / "quarantine")
        self.committer = Committer(self.segments.write, self.log, FaultBoard(self._tell), **options)

    def _tell(self, faults: Faults) -> None:
        self.reported.append(faults)
        self.changed.set()

    def take(self, *indexes: int) -> None:
        group = decode_group([_request(index) for index in indexes])
        self.committer.wait_for_room()
        begin = self.log.position
        self.committer.add(group, begin, self.log.append(group.records))

    def left_in_log(self) -> int:
        return len(list(IngestLog(self.folder / "ingest", self.folder / "quarantine").replay()))


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[_Setup]:
    found = _Setup(tmp_path, interval_s=0.0)
    yield found
    found.segments.refuses = False
    found.segments.go.set()
    found.committer.close()


def test_the_first_is_committed_at_once_and_the_following_together(tmp_path: Path) -> None:
    setup = _Setup(tmp_path, interval_s=_LONG_S)
    setup.segments.go.clear()
    setup.take(0)
    assert setup.segments.entered.wait(120)
    for index in range(1, 5):
        setup.take(index)
    setup.segments.go.set()
    setup.committer.close()  # ends the interval
    assert setup.segments.commits == [[0], [1, 2, 3, 4]]
    assert setup.left_in_log() == 0
    assert setup.committer.waiting_rows == 0


def test_what_waits_is_bounded_by_committing_first(tmp_path: Path) -> None:
    setup = _Setup(tmp_path, interval_s=0.0, rows_max=4)
    setup.segments.go.clear()
    setup.take(0, 1)  # a row each of turns and spans
    blocked = threading.Thread(target=lambda: setup.take(2))
    blocked.start()
    assert setup.segments.entered.wait(120)
    assert setup.committer.waiting_rows == 4
    setup.segments.go.set()
    blocked.join(120)
    setup.committer.close()
    assert setup.segments.turns == [0, 1, 2]


def test_a_full_disk_is_reported_refuses_beyond_the_bound_and_ends(tmp_path: Path) -> None:
    setup = _Setup(tmp_path, interval_s=0.0, rows_max=2)
    setup.segments.refuses = True
    setup.take(0)
    assert setup.changed.wait(120)
    with pytest.raises(StoreError, match="the disk is full"):
        setup.take(1)
    (fault,) = setup.reported[-1].faults
    assert (fault.name, fault.stops_storing, "the disk is full" in fault.sentence) == ("commit", True, True)
    setup.segments.refuses = False
    setup.committer.close()
    assert setup.segments.turns == [0]
    assert setup.reported[-1].faults == ()


def test_what_cannot_be_committed_at_the_end_stays_in_the_log(tmp_path: Path) -> None:
    setup = _Setup(tmp_path, interval_s=0.0)
    setup.segments.refuses = True
    setup.take(0, 1)
    setup.committer.close()
    assert setup.left_in_log() == 2


def test_one_request_that_cannot_be_committed_is_quarantined(setup: _Setup) -> None:
    setup.segments.fails_at = 2
    setup.take(0, 1, 2, 3)
    setup.committer.close()
    assert setup.segments.turns == [0, 1, 3]
    (kept,) = (setup.folder / "quarantine").iterdir()
    assert kept.read_bytes().endswith(_request(2).body)
    assert [fault.name for fault in setup.reported[-1].faults] == ["record"]
    assert setup.left_in_log() == 0


def _logged(folder: Path, count: int) -> list[Record]:
    records = [Record(1, _request(index).body) for index in range(count)]
    IngestLog(folder / "ingest", folder / "quarantine").append(records)
    return records


def _replay(folder: Path, segments: _Segments) -> int:
    return replay(IngestLog(folder / "ingest", folder / "quarantine"), folder / "ingest", segments.write)


def test_a_replay_commits_what_was_left_and_nothing_twice(tmp_path: Path) -> None:
    _logged(tmp_path, 5)
    segments = _Segments()
    assert _replay(tmp_path, segments) == 5
    assert segments.turns == [0, 1, 2, 3, 4]
    assert _replay(tmp_path, segments) == 0
    assert not (tmp_path / "ingest" / ATTEMPTS_NAME).exists()


def test_a_replay_on_a_full_disk_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    _logged(tmp_path, 3)
    segments = _Segments()
    segments.refuses = True
    for _ in range(TOGETHER_ATTEMPTS + SINGLE_ATTEMPTS + 2):
        with pytest.raises(StoreError, match="the disk is full"):
            _replay(tmp_path, segments)
    segments.refuses = False
    assert _replay(tmp_path, segments) == 3
    assert segments.turns == [0, 1, 2]


def test_a_record_that_cannot_be_committed_is_quarantined_by_a_replay(tmp_path: Path) -> None:
    records = _logged(tmp_path, 4)
    segments = _Segments()
    segments.fails_at = 1
    assert _replay(tmp_path, segments) == 3
    assert segments.turns == [0, 2, 3]
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.read_bytes().endswith(records[1].payload)


class _Ended(BaseException):
    """Stands for the end of the process."""


def test_a_record_that_ends_the_process_does_not_end_it_for_ever(tmp_path: Path) -> None:
    records = _logged(tmp_path, 4)
    segments = _Segments()

    def write(groups: Sequence[DecodedGroup]) -> None:
        if any(2 in _numbers(tables.turns) for group in groups for tables in group.tables):
            raise _Ended
        segments.write(groups)

    starts = 0
    while True:
        starts += 1
        try:
            replay(IngestLog(tmp_path / "ingest", tmp_path / "quarantine"), tmp_path / "ingest", write)
            break
        except _Ended:
            assert starts < 20
    assert segments.turns == [0, 1, 3]
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.read_bytes().endswith(records[2].payload)
