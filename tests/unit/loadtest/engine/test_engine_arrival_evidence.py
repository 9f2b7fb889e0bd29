"""Delay of data until the program read it, as far as each kind of transport shows it."""

from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.conversation.evidence import MS, Evidence
from loadtest.engine.arrival_evidence import note_arrival
from loadtest.engine.health import EngineHealth
from loadtest.protocols.http_items import HttpData
from loadtest.protocols.webrtc_items import PeerAudio, PeerReport


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
