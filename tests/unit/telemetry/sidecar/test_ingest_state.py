"""Counts of senders are bounded, in names and in their length."""

from collections import Counter

from telemetry.sidecar.counts.state import IngestState, count_names


def test_names_from_outside_are_bounded_in_number() -> None:
    known: Counter[str] = Counter()
    for index in range(600):
        count_names(known, {f"span-{index}": 2})
    assert len(known) == 501
    assert known["(other)"] == 200


def test_names_from_outside_are_bounded_in_length() -> None:
    known: Counter[str] = Counter()
    count_names(known, {"x" * 1_000_000: 1, "x" * 999_999: 1, "y" * 120: 1})
    assert known == {"x" * 119 + "…": 2, "y" * 120: 1}


def test_counts_are_a_json_object_that_later_counts_leave_alone() -> None:
    state = IngestState(requests=3)
    state.unmapped_spans["agent"] = 1
    counts = state.as_dict()
    state.unmapped_spans["another"] = 1
    assert (counts["requests"], counts["unmapped_spans"], counts["last_receive_unix_ns"]) == (3, {"agent": 1}, None)
    assert "lock" not in counts
