"""Each limit of validity, one step on either side of it."""

from collections.abc import Callable

import pytest

from loadtest.conversation.evidence import MS, Evidence, ValidityLimits
from telemetry.model.generator_health import GAUGES

LIMITS = ValidityLimits()
FRAME_BYTES = 1300


def _late(amount: int) -> Evidence:
    evidence = Evidence()
    evidence.note_frame(LIMITS.frame_lateness_ns + amount)
    evidence.note_frame(0)
    return evidence


def _held(amount: int) -> Evidence:
    evidence = Evidence()
    evidence.note_frame(0)
    evidence.note_held_up(LIMITS.frame_lateness_ns + amount)
    evidence.note_held_up(0)
    return evidence


def _stretched(amount: int) -> Evidence:
    return Evidence(start_lateness_ns=0, end_lateness_ns=LIMITS.drift_ns + amount)


def _squeezed(amount: int) -> Evidence:
    return Evidence(start_lateness_ns=LIMITS.drift_ns + amount, end_lateness_ns=0)


def _seen_late(amount: int) -> Evidence:
    evidence = Evidence()
    evidence.note_receive_lag(50 * MS + amount)
    evidence.note_receive_lag(0)
    return evidence


def _perhaps_seen_late(amount: int) -> Evidence:
    evidence = Evidence()
    evidence.note_receive_lag_bound(5 * MS + amount)
    evidence.note_receive_lag_bound(0)
    return evidence


def _unsent(amount: int) -> Evidence:
    allowed = round(LIMITS.unsent_frames * FRAME_BYTES)
    evidence = Evidence(unsent_bytes_at_speech_end=allowed + amount, frame_bytes_at_speech_end=FRAME_BYTES)
    evidence.note_frame(0)
    return evidence


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (_late, "frame lateness"),
        (_stretched, "drift"),
        (_squeezed, "drift"),
        (_seen_late, "receive lag"),
        (_perhaps_seen_late, "receive lag"),
    ],
)
def test_a_turn_is_invalid_beyond_a_limit_and_not_at_it(evidence: Callable[[int], Evidence], reason: str) -> None:
    assert evidence(0).reasons(LIMITS) == ()
    assert evidence(1).reasons(LIMITS) == (reason,)


@pytest.mark.parametrize("evidence", [_held, _unsent])
def test_what_the_socket_does_not_take_is_the_endpoints_doing_and_no_reason(
    evidence: Callable[[int], Evidence],
) -> None:
    assert (evidence(0).endpoint_did_not_read(LIMITS), evidence(0).reasons(LIMITS)) == (False, ())
    assert (evidence(1).endpoint_did_not_read(LIMITS), evidence(1).reasons(LIMITS)) == (True, ())
    assert evidence(60_000 * MS).reasons(LIMITS) == ()


def test_our_own_lateness_is_a_reason_also_where_the_endpoint_does_not_read() -> None:
    both = _held(6_000 * MS)
    both.note_frame(300 * MS)
    assert (both.endpoint_did_not_read(LIMITS), both.reasons(LIMITS)) == (True, ("frame lateness",))


def test_what_was_not_measured_accuses_nobody() -> None:
    assert Evidence().reasons(LIMITS) == ()
    assert Evidence(unsent_bytes_at_speech_end=10**6).reasons(LIMITS) == ()
    assert Evidence().endpoint_did_not_read(LIMITS) is None, "nothing was said"


def test_a_fault_that_was_seen_is_a_reason_of_its_own() -> None:
    evidence = Evidence(faults=["clock step"])
    evidence.note_frame(70 * MS)
    assert evidence.reasons(LIMITS) == ("clock step", "frame lateness")


def test_the_limit_that_is_shown_beside_a_figure_is_the_one_that_judges() -> None:
    shown = {name: figure.limit_ns for name, figure in GAUGES.items() if figure.limit_ns is not None}
    assert shown == {"frame_lateness_worst_ns": LIMITS.frame_lateness_ns}
    assert LIMITS.frame_lateness_ns == 60 * MS
