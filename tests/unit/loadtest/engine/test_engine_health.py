"""Worst values since the last reading, and the delay of data until it was read."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.evidence import MS, Evidence
from loadtest.engine.arrival_evidence import note_arrival
from loadtest.engine.health import EngineHealth
from loadtest.protocols.http_items import HttpData
from loadtest.protocols.webrtc_items import PeerAudio, PeerReport


def test_taking_the_worst_value_resets_it() -> None:
    health = EngineHealth()
    health.note_frames([])
    health.note_frames([1 * MS, 3 * MS])
    health.note_lateness(9 * MS)
    health.note_frames([2 * MS])
    assert (health.frames_sent, health.take_lateness_worst_ns(), health.take_lateness_worst_ns()) == (3, 9 * MS, 0)


def test_the_backlog_is_the_most_unsent_data_of_any_caller() -> None:
    health = EngineHealth()
    assert health.take_unsent_worst_bytes() is None, "nothing recorded yet"
    health.note_unsent(0)
    assert health.take_unsent_worst_bytes() == 0
    health.note_held_up(500)
    health.note_held_up(200)
    assert (health.frames_held_up, health.take_unsent_worst_bytes()) == (2, 500)


def test_unseen_time_is_bounded_by_due_time_of_earlier_tick() -> None:
    health = EngineHealth()
    assert health.longest_unseen_ns(500 * MS) == 0, "nothing was due yet"
    health.note_tick(0, 1000 * MS)
    assert health.longest_unseen_ns(1001 * MS) == 1 * MS
    health.note_tick(0, 1002 * MS)
    assert health.longest_unseen_ns(1003 * MS) == 3 * MS
    health.note_tick(40 * MS, 1044 * MS)
    assert health.longest_unseen_ns(1045 * MS) == 43 * MS
    health.note_tick(0, 1046 * MS)
    assert health.longest_unseen_ns(1047 * MS) == 43 * MS, "it came in the pause, and is seen after the tick"
    health.note_tick(0, 1048 * MS)
    assert health.longest_unseen_ns(1049 * MS) == 3 * MS


def test_the_loop_lag_covers_the_requested_time() -> None:
    health = EngineHealth()
    health.note_tick(40 * MS, 1000 * MS)
    health.note_tick(2 * MS, 2000 * MS)
    assert health.worst_loop_lag_since(500 * MS) == 40 * MS
    assert health.worst_loop_lag_since(1500 * MS) == 2 * MS
    assert health.worst_loop_lag_since(2500 * MS) == 0
    assert health.take_lag_worst_ns() == 40 * MS


def test_a_lag_is_worst_until_a_worse_one_or_an_equal_one_comes() -> None:
    health = EngineHealth()
    for second, lag_ms in enumerate([30, 50, 10, 20, 20, 5]):
        health.note_tick(lag_ms * MS, second * 1000 * MS)
    lags_ms = [health.worst_loop_lag_since(second * 1000 * MS) // MS for second in range(7)]
    assert lags_ms == [50, 50, 20, 20, 20, 5, 0]


def test_lags_under_half_a_millisecond_count_as_none() -> None:
    health = EngineHealth()
    health.note_tick(MS // 2, 1000 * MS)
    assert health.worst_loop_lag_since(0) == 0
    health.note_tick(MS // 2 + 1, 1001 * MS)
    assert health.worst_loop_lag_since(0) == MS // 2 + 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3 * MS)), max_size=40), st.integers(0, 60))
def test_the_worst_lag_is_that_of_all_ticks_since_the_moment(ticks: list[tuple[int, int]], since: int) -> None:
    health, now, known = EngineHealth(), 0, list[tuple[int, int]]()
    for passed, lag_ns in ticks:
        now += passed
        health.note_tick(lag_ns, now)
        known.append((now, lag_ns))
    worst = max((lag_ns for moment, lag_ns in known if moment >= since and lag_ns > MS // 2), default=0)
    assert health.worst_loop_lag_since(since) == worst


def test_so_many_lags_are_kept_and_no_more() -> None:
    health = EngineHealth()
    for second in range(5000):
        health.note_tick((5001 - second) * MS, second)
    assert health.worst_loop_lag_since(904) == (5001 - 904) * MS
    assert health.worst_loop_lag_since(0) == (5001 - 904) * MS, "what came before is forgotten"


def transport(**fields: Any) -> Any:
    known = {"stamped": False, "has_rest": False, "lag_bound_ns": None}
    return SimpleNamespace(**known | fields)


@pytest.mark.parametrize(
    ("fields", "measured_ns", "bound_ns"),
    [
        ({"stamped": True}, 30, None),
        ({"lag_bound_ns": 7}, None, 7),  # another process stamps: what this one does afterwards moves no moment
        ({}, None, 80),  # since the newest tick was due
    ],
)
def test_arrival_lag_is_measured_or_bounded_by_transport(
    fields: dict[str, Any], measured_ns: int | None, bound_ns: int | None
) -> None:
    evidence, health = Evidence(), EngineHealth()
    health.note_tick(20, 1_000_070)
    note_arrival(evidence, transport(**fields), health, (1_000_100, 1_000_130), [])
    assert (evidence.receive_lag_worst_ns, evidence.receive_lag_bound_ns) == (measured_ns, bound_ns)
    assert evidence.rtp is None
    assert evidence.faults == []


def test_rtp_reports_are_recorded() -> None:
    evidence = Evidence()
    items = [PeerAudio(b"", 48_000, 3, 9), "a text", PeerReport(1, 2)]
    note_arrival(evidence, transport(), EngineHealth(), (1, 2), items)
    assert evidence.rtp is not None
    assert (evidence.rtp.packets_received, evidence.rtp.packets_lost) == (1, 3)
    assert (evidence.rtp.jitter_worst_ns, evidence.rtp.reported_lost) == (9, 1)


@pytest.mark.parametrize(
    ("fields", "items", "in_doubt"),
    [
        ({"stamped": True}, ["one"], False),
        ({"stamped": True}, ["one", "two"], True),
        ({"stamped": True, "has_rest": True}, ["one"], True),  # a part of a later one came with it
        ({"stamped": True, "has_rest": True}, [], False),  # nothing was heard with it
        ({"stamped": True}, [HttpData("r", b"data: any number of events")], True),
        ({}, ["one", "two"], False),  # judged by the bound
    ],
)
def test_messages_that_were_read_together_have_one_stamp(
    fields: dict[str, Any], items: list[Any], in_doubt: bool
) -> None:
    evidence, health = Evidence(), EngineHealth()
    stamp, looked = 100 * MS, 70 * MS
    note_arrival(evidence, transport(**fields), health, (stamp, stamp + 1), items)
    assert evidence.doubt_ns(stamp) == (stamp if in_doubt else 0), "without a look, not known at all"
    evidence = Evidence()
    health.note_looked(looked)
    health.note_looked(looked - 1)
    note_arrival(evidence, transport(**fields), health, (stamp, stamp + 1), items)
    assert evidence.doubt_ns(stamp) == (30 * MS if in_doubt else 0)
    assert evidence.receive_lag_bound_ns is None or not in_doubt
