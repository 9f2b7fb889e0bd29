"""The stall bench joins, compares and judges as issue 34 asks: each goal fails where it must, and only there."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from telemetry.model.turns import Turn
from tests.benchmarks.stalls import endpoint, injector
from tests.benchmarks.stalls.comparison import (
    Comparison,
    Stall,
    Truth,
    compare,
    ground_truth,
    independent_truth,
    missed_goals,
    overlapping_ns,
)

MS = 1_000_000
END = 5_000 * MS  # of speech
HOOK = Path(endpoint.__file__).parent / "hook"


def turn(name: str = "r1", *, answer_ms: float = 300, earlier_ms: float = 0.2, **changes: object) -> Turn:
    """A turn whose stated interval is `answer_ms - earlier_ms` to `answer_ms`."""
    fields: dict[str, object] = {
        "run_id": "run",
        "call_id": "call",
        "turn_index": 0,
        "source": "client",
        "outcome": "ok",
        "started_unix_ns": 0,
        "started_perf_ns": END - 900 * MS,
        "speech_start_perf_ns": END - 500 * MS,
        "speech_end_perf_ns": END,
        "speech_end_uncertainty_ns": 0,
        "speech_end_later_ns": 0,
        "stamp_error_ns": 0,
        "held_up_ns": 0,
        "first_audio_perf_ns": END + round(answer_ms * MS),
        "first_audio_earlier_ns": round(earlier_ms * MS),
        "response_id": name,
    }
    return Turn(**(fields | changes))  # type: ignore[arg-type]


def truth(name: str = "r1", *, delay_ms: float = 299.9, held_up_ms: float = 0, width_ms: float = 0.01) -> Truth:
    """The endpoint's side: its own delay, as an interval."""
    first = END + round(delay_ms * MS)
    return Truth(name, (END, END), (first, first + round(width_ms * MS)), round(held_up_ms * MS))


def judged(one: Turn, known: Truth, *stalls: Stall) -> Comparison:
    return compare([one], {known.response_id: known}, stalls)


def stall(begin_ms: float, end_ms: float) -> Stall:
    """A stall counted from the end of speech."""
    return Stall(END + round(begin_ms * MS), END + round(end_ms * MS), "stopped")


@pytest.mark.parametrize(
    ("delay_ms", "misses"),
    [(299.9, 0), (299.78, 0), (300.02, 0), (299.7, 1), (300.1, 1), (120.0, 1)],
)
def test_a_true_value_beside_the_interval_is_a_miss(delay_ms: float, misses: int) -> None:
    found = judged(turn(), truth(delay_ms=delay_ms))
    assert (len(found.compared), len(found.misses)) == (1, misses)
    assert ("lies beside" in " ".join(missed_goals(found, 1))) == bool(misses)


def test_a_service_that_was_held_up_would_have_answered_within_the_interval_too() -> None:
    held_up = truth(held_up_ms=40)
    assert judged(turn(), held_up).misses[0].miss_ns > 39 * MS
    assert judged(turn(held_up_ns=40 * MS), held_up).misses == []
    assert len(judged(turn(held_up_ns=39 * MS), held_up).misses) == 1


def test_an_interval_may_be_as_wide_as_the_stall_that_overlapped_it() -> None:
    wide = turn(earlier_ms=102)
    assert len(judged(wide, truth()).too_wide) == 1
    assert len(judged(wide, truth(), stall(-50, 40)).too_wide) == 1, "90 ms are not enough"
    assert judged(wide, truth(), stall(-60, 41)).too_wide == []
    assert len(judged(wide, truth(), stall(-200, -1)).too_wide) == 1, "it was over before the end of speech"
    assert len(judged(wide, truth(), stall(301, 500)).too_wide) == 1, "it began after the answer"
    assert judged(wide, truth(), stall(10, 60), stall(200, 251)).too_wide == []
    assert any("wider than their stall" in sentence for sentence in missed_goals(judged(wide, truth()), 1))


def test_stalls_that_overlap_each_other_count_once() -> None:
    assert overlapping_ns([stall(0, 50), stall(10, 40), stall(30, 80)], END, END + 300 * MS) == 80 * MS
    assert overlapping_ns([stall(0, 50)], END + 51 * MS, END + 300 * MS) == 0


def test_the_median_width_is_that_of_turns_without_a_stall() -> None:
    turns = [turn(f"r{number}", earlier_ms=1.5) for number in range(3)]
    known = {one.response_id: one for one in (truth(f"r{number}") for number in range(3))}
    found = compare(turns, known, [])
    assert found.quiet_width_ns == 1.5 * MS
    assert missed_goals(found, 3) == ["the median width of turns without a stall is 1.50 ms"]
    assert compare(turns, known, [stall(5, 9)]).quiet_width_ns is None


@pytest.mark.parametrize(
    ("one", "known", "reason"),
    [
        (turn(response_id=None, outcome="timeout"), None, "not answered (timeout)"),
        (turn(first_audio_perf_ns=None, outcome="no_reply"), truth(), "not answered (no_reply)"),
        (turn(), None, "not in the endpoint's log"),
        (turn(), truth(width_ms=1.1), "the endpoint was held up"),
        (turn(), Truth("r1", None, (END, END)), "the endpoint was held up"),
        (turn(held_up_ns=None), truth(), "no interval stated"),
    ],
)
def test_what_cannot_be_compared_is_left_out_and_counted(one: Turn, known: Truth | None, reason: str) -> None:
    found = compare([one], {} if known is None else {known.response_id: known}, [])
    assert (found.compared, dict(found.left_out)) == ([], {reason: 1})
    assert found.left_out_share == 1
    whole = [turn(f"r{number}") for number in range(2, 50)]
    more = {name: truth(name) for name in (str(each.response_id) for each in whole)}
    mixed = compare([one, *whole], more | ({} if known is None else {known.response_id: known}), [])
    assert any("left out" in sentence for sentence in missed_goals(mixed, 1)), "1 of 49 is more than 2 %"


def test_an_answer_whose_turn_is_not_in_the_store_is_left_out() -> None:
    known = {name: truth(name) for name in ("r1", "r2", "r3")}
    found = compare([turn(), turn("r9", response_id=None, outcome="error")], known, [])
    assert found.left_out["answered, and not in the store"] == 1, "r2 or r3 may be that of the turn without an answer"
    assert found.turns == 3


def test_an_invalid_turn_needs_a_stall_of_more_than_50_ms_that_overlapped_it() -> None:
    invalid = turn(outcome="invalid", outcome_observed="ok", invalid_reasons=("frame lateness",))
    assert len(judged(invalid, truth()).invalid_without_stall) == 1
    assert len(judged(invalid, truth(), stall(0, 50)).invalid_without_stall) == 1
    assert len(judged(invalid, truth(), stall(310, 400)).invalid_without_stall) == 1, "after the answer"
    found = judged(invalid, truth(), stall(-300, -240))
    assert (found.invalid_without_stall, found.invalid_turns, found.altered) == ([], 1, 1)
    assert len(found.compared) == 1, "its figures are compared all the same"
    fault = turn(outcome="invalid", outcome_observed="ok", invalid_reasons=("clock step",))
    assert judged(fault, truth(), stall(-300, -240)).altered == 0


def test_too_few_turns_prove_nothing() -> None:
    found = judged(turn(), truth())
    assert missed_goals(found, 1) == []
    assert missed_goals(found, 2) == ["only 1 turns were compared, fewer than 2"]
    assert missed_goals(compare([], {}, []), 1) == ["only 0 turns were compared, fewer than 1"]


def test_the_logs_of_both_endpoints_are_read() -> None:
    row = {"response_id": "r", "speech_end_ns": [1, 2], "first_audio_ns": [10, 12], "held_up_ns": 3}
    assert independent_truth(row).voice_to_voice_ns == (8, 11)
    assert independent_truth(row | {"first_audio_ns": None}).voice_to_voice_ns is None
    own = {
        "response_id": "r",
        "speech_end_perf_ns": 1,
        "first_audio_perf_ns": 10,
        "first_audio_within_ns": 5,
        "unsure": [],
    }
    assert ground_truth(own).voice_to_voice_ns == (9, 14)
    assert ground_truth(own | {"unsure": ["first_audio"]}).voice_to_voice_ns is None


# The endpoint that shares no code with the product.


def frames(*loud: tuple[int, int], count: int = 8) -> list["np.ndarray"]:
    """Frames of a stream that is loud between two samples, and elsewhere silent."""
    pcm = np.zeros(count * endpoint.FRAME_SAMPLES, np.int16)
    for begin, end in loud:
        pcm[begin : end + 1] = 4000 * (2 * np.random.default_rng(1).integers(0, 2, end + 1 - begin) - 1)
    return np.split(pcm, count)


@pytest.mark.parametrize("end", [479, 480, 959, 1000, 1439])
def test_the_endpoint_finds_the_last_sample_and_closes_after_two_silent_frames(end: int) -> None:
    heard = endpoint.Turn("r")
    closed = []
    for index, frame in enumerate(frames((100, end))):
        moment = index * endpoint.FRAME_NS
        closed.append(heard.hear(frame, (moment, moment + 5)))
        if closed[-1]:
            break
    last = end // endpoint.FRAME_SAMPLES
    assert closed == [False] * (last + 2) + [True]
    offset = end % endpoint.FRAME_SAMPLES
    before_its_end = (endpoint.FRAME_SAMPLES - offset) * 1_000_000_000 // endpoint.RATE_HZ
    sent = last * endpoint.FRAME_NS
    assert heard.end_ns() == (sent - before_its_end, sent + 5 - before_its_end)


def test_a_fade_after_the_end_is_not_speech() -> None:
    pcm = np.concatenate(frames((0, 1199)))
    pcm[1200:1320] = 4000 * np.linspace(0.99, 0, 120)
    heard = endpoint.Turn("r")
    for index, frame in enumerate(np.split(pcm, 8)):
        heard.hear(frame.astype(np.int16), (index, index))
    assert (heard.came, heard.last) == ((2, 2), 1199 - 960)


def test_the_endpoint_reads_the_frames_of_a_client() -> None:
    text, mask = b'{"type":"x"}', b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text))
    assert endpoint.unmasked(masked, mask) == text
    assert endpoint.text_frame({"a": 1}) == b'\x81\x07{"a":1}'
    assert endpoint.text_frame({"a": "b" * 200})[:4] == b"\x81\x7e\x00\xd0"
    loud = np.frombuffer(base64.b64decode(endpoint.REPLY[0]), "<i2")
    assert set(np.abs(loud)) == {4000}, "audible from its first sample"


@pytest.mark.parametrize("file", [endpoint.__file__, injector.__file__, str(HOOK / "sitecustomize.py")])
def test_neither_endpoint_nor_injectors_share_code_with_the_product(file: str) -> None:
    show = (
        "import sys; known = set(sys.modules); sys.path[:0] = sys.argv[2:]; import runpy; runpy.run_path(sys.argv[1])"
    )
    show += "; print([each for each in sys.modules if each.split('.')[0] in ('loadtest', 'telemetry', 'corpora')])"
    found = subprocess.run([sys.executable, "-c", show, file], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout.replace("'", '"')) == []
