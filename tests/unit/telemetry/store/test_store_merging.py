"""Merging streams rows in the order of their moments, whatever the inputs' order, and readers can leave out more."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telemetry.store import manifest as manifests
from telemetry.store import merging, row_groups
from telemetry.store.manifest import Segment
from telemetry.store.merging import UnreadableError, merged
from telemetry.store.schema import SCHEMAS
from telemetry.store.segment_stream import NewSegment, write_segment

SCHEMA = SCHEMAS["points"]


def _segment(directory: Path, number: int, moments: Sequence[int], text_chars: int = 10) -> Segment:
    """A segment of points with these moments in this order; `value` numbers the rows of all segments."""
    (directory / manifests.SEGMENTS_FOLDER).mkdir(exist_ok=True)
    columns = {
        "unix_ns": pa.array(moments, pa.int64()),
        "value": pa.array([number * 10_000 + place for place in range(len(moments))], pa.float64()),
        "attributes": pa.array(["x" * text_chars] * len(moments)),
    }
    arrays = [columns.get(field.name, pa.nulls(len(moments), field.type)) for field in SCHEMA]
    new = NewSegment(table="points", number=number, sequence=0, stored_unix_ns=0)
    return write_segment(directory, new, row_groups.row_groups(pa.Table.from_arrays(arrays, schema=SCHEMA)))


def _rows(groups: Sequence[pa.Table]) -> list[tuple[int, float]]:
    table = pa.concat_tables(groups)
    return list(zip(table["unix_ns"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a few rows, so that small inputs have several."""
    monkeypatch.setattr(row_groups, "GROUP_ROWS_MAX", 5)


_MOMENTS = st.lists(st.integers(0, 100), min_size=1, max_size=30)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs=st.lists(_MOMENTS, min_size=1, max_size=5), waiting_bytes=st.integers(1, 3_000))
def test_every_row_comes_once_in_groups_that_fit(
    tmp_path_factory: pytest.TempPathFactory, small_groups: None, inputs: list[list[int]], waiting_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    segments = [_segment(directory, number, moments) for number, moments in enumerate(inputs)]
    given_rows = [
        (moment, float(number * 10_000 + place))
        for number, moments in enumerate(inputs)
        for place, moment in enumerate(moments)
    ]
    groups = list(merged(directory, segments))
    assert all(group.num_rows <= 5 for group in groups)
    assert all(group.num_rows == 5 for group in groups[:-1])
    assert sorted(_rows(groups)) == sorted(given_rows)
    assert [moment for moment, _ in _rows(groups)] == sorted(moment for moment, _ in given_rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merging, "WAITING_BYTES_MAX", waiting_bytes)
        assert sorted(_rows(list(merged(directory, segments)))) == sorted(given_rows)


def test_a_question_about_a_time_needs_few_row_groups(tmp_path: Path, small_groups: None) -> None:
    # Each input goes from an old straggler to its own time, as spans that end late do.
    segments = [_segment(tmp_path, number, [number * 10 + each for each in (9, 3, 5, 7, 1)]) for number in range(20)]
    new = NewSegment(table="points", number=99, sequence=0, stored_unix_ns=0, level=1)
    whole = write_segment(tmp_path, new, merged(tmp_path, segments))
    assert (whole.first_unix_ns, whole.last_unix_ns, whole.rows) == (1, 199, 100)
    metadata = pq.read_metadata(manifests.segment_path(tmp_path, whole))
    ranges = list(row_groups.ranges(metadata, whole))
    assert len(ranges) == 20
    assert sum(first <= 105 <= last for first, last in ranges) == 1


def test_no_more_waits_than_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole row groups that all begin at once: their order cannot be kept within the bound."""
    monkeypatch.setattr(row_groups, "GROUP_BYTES", 100_000)
    monkeypatch.setattr(merging, "WAITING_BYTES_MAX", 200_000)
    monkeypatch.setattr(merging, "_READ_BYTES", 20_000)
    most = [0]
    add = merging._UnsettledRows.add

    def watched(rows: merging._UnsettledRows, part: pa.Table) -> None:
        add(rows, part)
        most[0] = max(most[0], rows.raw_bytes)

    monkeypatch.setattr(merging._UnsettledRows, "add", watched)
    segments = [_segment(tmp_path, number, [0, *range(1, 200)], text_chars=1_000) for number in range(8)]
    assert sum(group.num_rows for group in merged(tmp_path, segments)) == 8 * 200
    assert 200_000 <= most[0] < 300_000


def test_a_damaged_input_is_named(tmp_path: Path) -> None:
    segments = [_segment(tmp_path, number, [1, 2, 3]) for number in range(3)]
    path = manifests.segment_path(tmp_path, segments[1])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableError) as caught:
        list(merged(tmp_path, segments))
    assert caught.value.segment == segments[1]
