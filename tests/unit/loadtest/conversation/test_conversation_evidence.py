"""Each limit of validity, one step on either side of it."""

from collections.abc import Callable

import pytest

from loadtest.conversation.evidence import MOST_IN_DOUBT, MS, Evidence, ValidityLimits
from telemetry.model.generator_health import GAUGES

LIMITS = ValidityLimits()
FRAME_BYTES = 1300
FRAME_NS = 20 * MS


def _spoken(*lateness_ns: int) -> Evidence:
    """A turn of frames of 20 ms that went so late, the last of them with the last speech sample."""
    evidence = Evidence()
    evidence.pacing.begin(0, FRAME_NS)
    evidence.pacing.lateness_ns += lateness_ns
    evidence.pacing.end_speech()
    return evidence


def _late(amount: int) -> Evidence:
    return _spoken(0, LIMITS.frame_lateness_ns + amount, 0)


def _late_elsewhere(amount: int) -> Evidence:
    evidence = _spoken(0, 0)
    evidence.pacing.note_elsewhere(LIMITS.frame_lateness_ns + amount)
    return evidence


def _held(amount: int) -> Evidence:
    evidence = _spoken(0)
    evidence.note_blocked(LIMITS.blocked_ns + amount)
    evidence.note_blocked(0)
    return evidence


def _stretched(amount: int) -> Evidence:
    return _spoken(*[0] * 10, *[LIMITS.drift_ns + amount] * 10)


def _squeezed(amount: int) -> Evidence:
    return _spoken(*[LIMITS.drift_ns + amount] * 10, *[0] * 10)


def _unsent(amount: int) -> Evidence:
    allowed = round(LIMITS.unsent_frames * FRAME_BYTES)
    evidence = Evidence(unsent_bytes_at_speech_end=allowed + amount, frame_bytes_at_speech_end=FRAME_BYTES)
    evidence.pacing.lateness_ns.append(0)
    return evidence


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (_late, "frame lateness"),
        (_stretched, "drift"),
        (_squeezed, "drift"),
        (_late_elsewhere, "frame lateness"),
    ],
)
def test_a_turn_is_invalid_beyond_a_limit_and_not_at_it(evidence: Callable[[int], Evidence], reason: str) -> None:
    assert evidence(0).reasons(LIMITS) == ()
    assert evidence(1).reasons(LIMITS) == (reason,)


@pytest.mark.parametrize("evidence", [_held, _unsent])
def test_unsent_audio_is_endpoint_fault_and_no_invalid_reason(
    evidence: Callable[[int], Evidence],
) -> None:
    assert (evidence(0).endpoint_did_not_read(LIMITS), evidence(0).reasons(LIMITS)) == (False, ())
    assert (evidence(1).endpoint_did_not_read(LIMITS), evidence(1).reasons(LIMITS)) == (True, ())
    assert evidence(60_000 * MS).reasons(LIMITS) == ()


def test_own_lateness_is_reason_even_if_endpoint_does_not_read() -> None:
    both = _held(6_000 * MS)
    both.pacing.lateness_ns.append(300 * MS)
    assert (both.endpoint_did_not_read(LIMITS), both.reasons(LIMITS)) == (True, ("frame lateness",))


def test_unmeasured_evidence_gives_no_invalid_reason() -> None:
    assert Evidence().reasons(LIMITS) == ()
    assert Evidence(unsent_bytes_at_speech_end=10**6).reasons(LIMITS) == ()
    assert Evidence().endpoint_did_not_read(LIMITS) is None, "nothing was said"


def test_a_fault_that_was_seen_is_a_reason_of_its_own() -> None:
    evidence = Evidence(faults=["clock step"])
    evidence.pacing.lateness_ns.append(61 * MS)
    assert evidence.reasons(LIMITS) == ("clock step", "frame lateness")


def test_displayed_limit_is_the_limit_that_invalidates() -> None:
    shown = {name: figure.limit_ns for name, figure in GAUGES.items() if figure.limit_ns is not None}
    assert shown == {"frame_lateness_worst_ns": LIMITS.frame_lateness_ns}
    assert LIMITS.frame_lateness_ns == 60 * MS


def test_how_late_data_was_seen_is_no_reason() -> None:
    evidence = _spoken(0)
    evidence.note_receive_lag(10_000 * MS)
    evidence.note_receive_lag_bound(1, 10_000 * MS)
    evidence.note_doubt(2, 10_000 * MS)
    assert evidence.reasons(LIMITS) == ()
    assert (evidence.doubt_ns(1), evidence.doubt_ns(2), evidence.doubt_ns(3)) == (10_000 * MS, 10_000 * MS, 0)


def test_stamp_after_kept_maximum_has_worst_uncertainty() -> None:
    evidence = Evidence()
    for stamp in range(MOST_IN_DOUBT + 5):
        evidence.note_doubt(stamp, stamp)
    assert evidence.doubt_ns(7) == 7
    assert evidence.doubt_ns(MOST_IN_DOUBT + 1) == MOST_IN_DOUBT + 4
    assert len(evidence.unsure_ns) == MOST_IN_DOUBT


def test_a_stamp_that_comes_twice_keeps_the_greater_doubt() -> None:
    evidence = Evidence()
    for doubt_ns in (3, 9, 5):
        evidence.note_doubt(1, doubt_ns)
    assert evidence.doubt_ns(1) == 9
