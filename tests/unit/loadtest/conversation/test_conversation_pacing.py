"""Effects of late frames: drift, and how long they held the service up."""

import pytest

from loadtest.conversation.evidence import Pacing

MS = 1_000_000
FRAME = 20 * MS
NEVER = 10**15


def spoken(*lateness_ms: float, then_ms: tuple[float, ...] = ()) -> Pacing:
    """Frames that went so late while the caller spoke, from 0 on, and after that."""
    pacing = Pacing()
    pacing.begin(0, FRAME)
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
    begun.begin(0, FRAME)
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
    before.begin(0, FRAME)
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
    pacing.begin(900 * MS, FRAME)
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
