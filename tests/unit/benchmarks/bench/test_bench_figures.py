"""Figures of the benchmark from records whose answer is known."""

from typing import Any

import numpy as np
import pytest

from tests.benchmarks.bench import messages
from tests.benchmarks.bench.cases import Case
from tests.benchmarks.bench.compared import rows, sender_verdicts, stamp_verdicts, telemetry_verdicts
from tests.benchmarks.bench.figures import Figures, drift_ms_per_s, figures, paired_ratio, spread
from tests.benchmarks.bench.senders import Trial
from tests.benchmarks.bench.singles import stamp_errors
from tests.benchmarks.bench.tables import markdown

WINDOW_NS = 2_000_000_000


def made(*, cpu_ms: float, sent: int, lateness_ns: list[int], received: int = 0, callers: int = 10) -> Figures:
    output: dict[str, Any] = {
        "cpu_ns": round(cpu_ms * 1e6),
        "began_perf_ns": 5,
        "ended_perf_ns": 5 + WINDOW_NS,
        "sent": sent,
        "sent_ever": sent,
        "received": received,
    }
    peer = {"received": sent, "sent": received, "dropped": 0, "cpu_ns": 10**9, "lateness_ns": np.array([], np.int64)}
    return figures(callers, output, np.array(lateness_ns, np.int64), peer, 4.0)


def test_cost_share_and_missing_frames_of_a_sender() -> None:
    found = made(cpu_ms=500, sent=800, lateness_ns=[1_000_000] * 800)
    assert found.due == 1000
    assert found.never_sent_share == pytest.approx(0.2)
    assert found.cpu_us_per_frame == pytest.approx(625)
    assert found.core_share == pytest.approx(0.25)
    assert (found.lateness_p50_ms, found.lateness_p99_ms, found.lateness_max_ms) == (1, 1, 1)
    assert found.peer_core_share == pytest.approx(0.25)
    assert not found.peer_was_limit


def test_a_duplex_frame_is_a_pair() -> None:
    assert made(cpu_ms=500, sent=800, lateness_ns=[0] * 800, received=1200).cpu_us_per_frame == pytest.approx(500)


def test_a_sender_that_sent_nothing_has_no_figures_and_missed_everything() -> None:
    found = made(cpu_ms=500, sent=0, lateness_ns=[])
    assert (found.cpu_us_per_frame, found.lateness_p99_ms, found.drift_ms_per_s) == (None, None, None)
    assert found.never_sent_share == 1


def test_a_sender_that_sent_next_to_nothing_is_held_against_nobody() -> None:
    assert made(cpu_ms=500, sent=9, lateness_ns=[1_000_000] * 9).cpu_us_per_frame is None
    found = made(cpu_ms=500, sent=9, lateness_ns=[1_000_000] * 9, received=900)
    assert (found.cpu_us_per_frame, found.lateness_p99_ms) == (None, None)
    assert found.never_sent_share == pytest.approx(0.991)
    assert made(cpu_ms=500, sent=10, lateness_ns=[1_000_000] * 10).cpu_us_per_frame == pytest.approx(50_000)


def test_the_readme_s_tables_hold_what_was_measured_and_no_more() -> None:
    case = Case(100, "one-way", "wss")
    half = made(cpu_ms=50, sent=500, lateness_ns=[1_000_000] * 500)
    trials = [
        Trial(case, 1, "ours", half),
        Trial(case, 1, "naive", made(cpu_ms=200, sent=500, lateness_ns=[])),
    ]
    table = markdown(rows(trials), [], "a machine")
    assert "| 100 | one-way | voiceprobe | 0.25 | – | 1.00 | 50.0% |" in table
    assert "× C" not in table


def test_lateness_that_grows_is_drift_and_a_late_frame_is_none() -> None:
    growing = np.arange(400, dtype=np.int64) * 1_000_000  # 400 frames in 2 s, each 1 ms later: 200 ms a second
    assert drift_ms_per_s(growing, 2.0) == pytest.approx(200, rel=0.01)
    steady = np.zeros(400, np.int64)
    steady[[7, 390]] = 50_000_000
    assert drift_ms_per_s(steady, 2.0) == 0


def test_ratios_are_of_the_same_round() -> None:
    ratio = paired_ratio([10, 30, None, 8], [5, 10, 4, 0])
    assert ratio is not None
    assert (ratio.least, ratio.middle, ratio.most, ratio.rounds) == (2, 2.5, 3, 2)
    assert spread([None]) is None


def test_rows_hold_a_sender_against_the_others_and_verdicts_take_the_worst() -> None:
    trials = [
        Trial(Case(callers, "one-way", "ws"), 0, sender, made(cpu_ms=cpu, sent=1000, lateness_ns=[0] * 1000))
        for callers, figures_of in ((100, (10, 12, 40)), (2000, (10, 14, 20)))
        for sender, cpu in zip(("control", "ours", "naive"), figures_of, strict=True)
    ]
    table = rows(trials)
    assert [row.sender for row in table] == ["control", "ours", "naive"] * 2
    ratios = [row.times_control.middle for row in table if row.times_control is not None]
    assert ratios == pytest.approx([1.2, 4, 1.4, 2])
    found = {verdict.target: verdict for verdict in sender_verdicts(table)}
    assert found["one-way, 100–2,000 callers: CPU per frame at most 1.25 × the control"].met is False
    assert found["one-way, 100–2,000 callers: CPU per frame at most 1.25 × the control"].found == "1.40 ×"
    assert found["2,000 callers, one-way: no drift"].met is True
    assert not any("duplex" in target for target in found)


def test_a_target_is_held_against_the_sizes_that_it_is_promised_for() -> None:
    trials = [
        Trial(Case(callers, "duplex", "ws"), 0, sender, made(cpu_ms=cpu, sent=sent, lateness_ns=[999_999] * sent))
        for callers, ours, sent in ((100, 30, 1000), (1000, 16, 998))
        for sender, cpu in (("control", 10), ("ours", ours))
    ]
    verdicts = sender_verdicts(rows(trials))
    found = {verdict.target.partition(": ")[2]: (verdict.found, verdict.met) for verdict in verdicts}
    assert found["CPU per frame at most 1.7 × the control"] == ("1.60 ×", True)
    assert found["pacing p99 below 1 ms"] == ("1.00 ms", True)
    assert found["nothing unsent"] == ("0.20%", False)
    assert {verdict.target.partition(": ")[0] for verdict in verdicts} == {
        *("duplex, 1,000 callers", "1,000 callers, duplex")
    }


def test_telemetry_is_held_against_its_target() -> None:
    steps = {"build_us": 30.0, "emit_us": 50.0, "events_us": 20.0, "export_us": 50.0}
    assert [verdict.met for verdict in telemetry_verdicts(steps)] == [True]
    assert [verdict.met for verdict in telemetry_verdicts({**steps, "export_us": 50.1})] == [False]
    assert telemetry_verdicts(None) == []


def test_a_sender_without_figures_misses_its_targets_and_what_was_not_tried_is_not_measured() -> None:
    failed = [Trial(Case(2000, "one-way", "ws"), 0, "ours", None, "12 of 2,000 callers were connected after 20 s")]
    assert {(verdict.found, verdict.word) for verdict in sender_verdicts(rows(failed))} == {
        ("no figure", "not met here")
    }
    alone = [Trial(Case(100, "one-way", "ws"), 0, "ours", made(cpu_ms=1, sent=100, lateness_ns=[0] * 100))]
    assert {(verdict.found, verdict.word) for verdict in sender_verdicts(rows(alone))} == {("–", "not measured")}


def test_every_sender_says_the_same_number_of_bytes() -> None:
    assert len(messages.out_message()) == messages.OUT_BYTES
    assert len(messages.out_frame()) == messages.OUT_BYTES + 8
    assert len(messages.in_message()) == len(messages.bare_message()) == messages.IN_BYTES
    assert len(messages.server_frame(messages.in_message())) == len(messages.out_frame())


def test_stamps_are_held_against_messages_whose_truth_is_sure() -> None:
    seen = {"/kernel-0": [1_010_000, 5_020_000, 9_000_000], "/user-1": [2_500_000]}
    known = {
        "/kernel-0": [[1_000_000, 1_015_000], [5_000_000, 5_030_000], [8_000_000, 8_900_000]],
        "/user-1": [[2_000_000, 2_010_000], [3_000_000, 3_010_000]],  # the last one was not seen yet
    }
    kernel, user = stamp_errors(Case(5, "duplex", "ws"), seen, known, 1_000_000)
    assert (kernel.kind, kernel.messages, kernel.left_out, kernel.max_ms) == ("kernel", 2, 1, 0.02)
    assert (user.kind, user.messages, user.left_out, user.p50_ms) == ("user", 1, 0, 0.5)
    (verdict,) = stamp_verdicts([kernel, user])
    assert verdict.met is True
    later, _ = stamp_errors(Case(5, "duplex", "ws"), seen, known, 1_000_001)
    assert later.messages == 1
