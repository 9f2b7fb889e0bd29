"""Each limit of validity, one step on either side of it, and the effects of late frames on what the service hears."""

from collections.abc import Callable

import pytest

from loadtest.conversation.evidence import MOST_IN_DOUBT, MS, Evidence, Pacing, ValidityLimits
from telemetry.model.generator_health import GAUGES

LIMITS = ValidityLimits()
FRAME_BYTES = 1300
FRAME_NS = 20 * MS


def _spoken(*lateness_ns: int) -> Evidence:
    """A turn of frames of 20 ms that went so late, the last of them with the last speech sample."""
    return Evidence(spoken(*(late_ns / MS for late_ns in lateness_ns)))


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


NEVER = 10**15


def spoken(*lateness_ms: float, then_ms: tuple[float, ...] = ()) -> Pacing:
    """Frames that went so late while the caller spoke, from 0 on, and after that."""
    pacing = Pacing()
    pacing.begin(0, FRAME_NS)
    pacing.lateness_ns += [round(late_ms * MS) for late_ms in lateness_ms]
    pacing.end_speech()
    pacing.lateness_ns += [round(late_ms * MS) for late_ms in then_ms]
    return pacing


@pytest.mark.parametrize(
    ("lateness_ms", "drift_ms"),
    [
        ([0.1] * 100, 0),
        ([0.1] * 50 + [80, 60, 40, 20] + [0.1] * 46, 0),  # a stall after which the schedule is kept
        ([80, 60, 40, 20] + [0.1] * 96, 0),  # also at the beginning
        ([0.1] * 96 + [80, 60, 40, 20], 0),  # and at the end, as long as one frame of the last 200 ms was on time
        ([0.1] * 50 + [30] * 50, 29.9),
        ([30] * 50 + [0.1] * 50, -29.9),
        ([5], 0),
        ([5, 7], 0),  # less than 200 ms of speech: the first are the last
    ],
)
def test_drift_is_the_change_of_the_smallest_lateness(lateness_ms: list[float], drift_ms: float) -> None:
    assert spoken(*lateness_ms).drift_ns == pytest.approx(drift_ms * MS, abs=1)


def test_without_an_utterance_there_is_no_drift_and_no_lateness() -> None:
    assert (Pacing().drift_ns, Pacing().worst_ns) == (None, None)
    begun = Pacing()
    begun.begin(0, FRAME_NS)
    begun.lateness_ns.append(3)
    assert (begun.drift_ns, begun.worst_ns) == (None, 3)
    silent = Pacing()
    silent.lateness_ns += [4, 5]  # a silent turn waits without having spoken
    assert (silent.drift_ns, silent.worst_ns, silent.held_up_ns(NEVER)) == (None, 5, 0)


@pytest.mark.parametrize(
    ("until_ms", "held_up_ms"),
    [
        (1_000, 100),
        (81, 21),  # the frame that was due at 60 had not gone by then
        (61, 1),
        (60, 0),  # due at this moment, and not before it
        (41, 0),
        (-5, 0),  # the service spoke over the caller
    ],
)
def test_lateness_holds_up_only_what_came_after_it(until_ms: int, held_up_ms: int) -> None:
    # Frames are due at 0 and 20 (speech), then 40, 60, 80 and 100 ms.
    pacing = spoken(0, 0, then_ms=(0, 40, 100, 60))
    assert pacing.held_up_ns(until_ms * MS) == held_up_ms * MS


def test_lateness_already_at_speech_end_holds_nothing_up() -> None:
    assert spoken(0, 50, then_ms=(30, 10, 0)).held_up_ns(NEVER) == 0
    assert spoken(0, 50, then_ms=(70, 10, 0)).held_up_ns(NEVER) == 20 * MS


def test_speech_that_went_late_holds_up_what_is_heard_of_it() -> None:
    pacing = spoken(2, 12, 0)
    assert pacing.held_up_speaking_ns(NEVER) == 10 * MS
    assert pacing.held_up_speaking_ns(20 * MS) == 0
    assert pacing.held_up_ns(NEVER) == 0


@pytest.mark.parametrize(
    ("answer_ms", "worst_ms"),
    [
        (None, 100),
        (1_000, 100),
        (121, 61),  # the frame that was due at 60 had not gone by then
        (81, 21),
        (60, 5),  # all later frames are under the reply
        (-5, 5),  # the service spoke over the caller, who is heard all the same
    ],
)
def test_frames_under_the_reply_do_not_make_a_turn_invalid(answer_ms: int | None, worst_ms: int) -> None:
    # Frames are due at 0 and 20 (speech), then 40, 60, 80 and 100 ms.
    pacing = spoken(0, 5, then_ms=(0, 100, 80, 60))
    assert pacing.worst_before_ns(None if answer_ms is None else answer_ms * MS) == worst_ms * MS


def test_another_process_says_how_late_it_sent() -> None:
    pacing = spoken(0)
    pacing.note_elsewhere(7 * MS)
    assert (pacing.worst_ns, pacing.held_up_ns(NEVER)) == (7 * MS, 7 * MS)
    before = Pacing()
    before.note_elsewhere(7 * MS)
    before.begin(0, FRAME_NS)
    before.lateness_ns.append(0)
    before.end_speech()
    assert (before.worst_ns, before.held_up_ns(NEVER)) == (7 * MS, 0)


def test_messages_that_the_service_waits_for_add_up() -> None:
    pacing = spoken(0, then_ms=(3,))
    pacing.reactions_ns += 4 * MS
    pacing.reactions_ns += 5 * MS
    assert pacing.held_up_ns(NEVER) == 12 * MS


def test_backchannel_does_not_restart_the_turn() -> None:
    pacing = spoken(0, 30, then_ms=(31,))
    pacing.begin(900 * MS, FRAME_NS)
    pacing.lateness_ns.append(0)
    assert pacing.first_due_perf_ns == 0
    assert pacing.held_up_ns(NEVER) == 1 * MS


@pytest.mark.parametrize(
    ("uncertainty_ms", "start_ms", "end_ms"),
    [
        (0, 0, 0),  # exact: the sample is in the frame that holds it
        (15, 15, 15 + 18.6),  # the frame before the last went 18.6 ms less late
        (45, 45 + 20, 45 + 20),
    ],
)
def test_an_uncertain_sample_may_have_gone_with_a_frame_nearby(
    uncertainty_ms: float, start_ms: float, end_ms: float
) -> None:
    pacing = spoken(0, 0, 0, 20, 1.4, 20, then_ms=(20,))
    for at_end, expected_ms in ((False, start_ms), (True, end_ms)):
        widened_ns = pacing.widened_ns(round(uncertainty_ms * MS), at_end=at_end)
        assert widened_ns == pytest.approx(expected_ms * MS, abs=1)
    assert pacing.widened_ns(None, at_end=True) is None
