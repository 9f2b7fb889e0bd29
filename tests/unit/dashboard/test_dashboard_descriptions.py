"""Numbers and states in words."""

from dataclasses import replace
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from dashboard import descriptions
from dashboard.markup import escape
from telemetry.model.formatting import DASH, NS_PER_S
from telemetry.model.measured_within import MeasuredWithin
from telemetry.store.answers import (
    ClientServiceDelta,
    Generator,
    MetricStats,
    RunRecord,
    SpeechBoundErrors,
    TelemetryLoss,
    TurnCounts,
)

S = NS_PER_S


def run(*, ended: bool = False, last_s: int = 100, declared: dict[str, str] | None = None) -> RunRecord:
    return RunRecord("r", 0, last_s * S, 3, None, None, ended, declared or {})


def test_a_percentile_without_enough_turns_says_how_many_there_are() -> None:
    stats = MetricStats("voice_to_voice", "ns", 12, 5e8, None, None, 6e8)
    assert descriptions.percentile(stats, "p50") == "500"
    assert descriptions.percentile(stats, "p95") == "too few (12)"
    assert descriptions.percentile(stats, "p99") == "too few (12)"
    assert descriptions.why_no_figures(stats) is None


def test_a_metric_without_a_value_says_why() -> None:
    estimated = MetricStats("voice_to_voice", "ns", 300_000, 5e8, 6e8, None, 6e8, approximate=True)
    assert descriptions.percentile(estimated, "p95", with_unit=True) == "≈ 600 ms"
    withheld = MetricStats("asr_partial_latency", "ns", 0, None, None, None, None, "no partials")
    unmeasured = MetricStats("barge_in_stop", "ns", 0, None, None, None, None)
    assert descriptions.why_no_figures(withheld) == "not observable on this wire: no partials"
    assert descriptions.why_no_figures(unmeasured) == "not measured on these turns"
    assert descriptions.why_no_figures(unmeasured, "service") == "not reported", "as the page of a turn says"
    assert descriptions.percentile(unmeasured, "p50") == DASH


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (0.4, "now"),
        (4.9, "4 s ago"),
        (190, "3 min ago"),
        (7300, "2 h ago"),
        (90_000, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_age_in_words(seconds: float, text: str) -> None:
    assert descriptions.ago(seconds) == text


def test_the_state_is_live_stale_or_ended() -> None:
    assert descriptions.state_of(run(), 100 * S, 110 * S) == "live"
    assert descriptions.state_of(run(), 100 * S, 131 * S) == "stale"
    assert descriptions.state_of(run(last_s=100), None, 131 * S) == "stale"
    assert descriptions.state_of(run(ended=True), 100 * S, 101 * S) == "ended"


def test_a_stale_run_says_that_it_has_not_ended() -> None:
    sentence = descriptions.describe_state("stale", 0, 190 * S)
    assert sentence == "last turn 3 min ago; the run has not said that it ended"
    assert descriptions.describe_state("live", 0, 2 * S) == "last turn 2 s ago"
    assert descriptions.describe_state("ended", 0, 190 * S, UTC) == "last turn 1 Jan 00:00, 3 min ago"


def test_the_time_of_day_is_that_of_the_zone() -> None:
    assert descriptions.time_of_day(3_661 * S) == "01:01:01"
    assert descriptions.time_of_day(3_661 * S, timezone(timedelta(hours=2))) == "03:01:01"


def test_invalid_turns_are_given_with_their_share_and_those_not_as_recorded_apart() -> None:
    assert descriptions.describe_invalid(TurnCounts(10, 10, 0, {})) == "none invalid"
    reasons = {"frame lateness": 2, "drift": 1, "clock step": 1}
    counts = TurnCounts(200, 190, 3, {}, reasons, not_as_recorded=2)
    text = "2 not said as recorded (frame lateness 2, drift 1), 1 by a fault of the generator (clock step 1)"
    assert descriptions.describe_invalid(counts) == f"3 invalid (1.5 %): {text}"
    assert descriptions.describe_invalid(TurnCounts(50, 48, 2, {})) == "2 invalid (4 %): 2 by faults of the generator"


def test_an_endpoint_that_did_not_read_is_named_and_one_that_read_is_not() -> None:
    assert descriptions.describe_unread(TurnCounts(10, 10, 0, {})) == ""
    counts = TurnCounts(1205, 1204, 1, {}, endpoint_did_not_read=1000)
    assert descriptions.describe_unread(counts) == "did not read in 1,000 of 1,204 turns"
    cut = TurnCounts(total=26, ok=0, invalid=1, by_outcome={"cut": 25, "invalid": 1}, endpoint_did_not_read=25)
    assert descriptions.describe_unread(cut) == "did not read in 25 of 25 turns"


def test_lost_telemetry_is_a_fact_of_its_own_and_silence_is_not_none_lost() -> None:
    assert descriptions.describe_loss(TelemetryLoss(1, 10, 10, 0)) == ("none lost", True)
    assert descriptions.describe_loss(TelemetryLoss(1, None, 10, 0))[1] is None
    assert descriptions.describe_loss(TelemetryLoss(1, 11, 10, 1)) == ("1 turn lost on the way (10 received)", False)


def test_the_client_service_delta_gives_both_percentiles_or_says_what_is_missing() -> None:
    assert (
        descriptions.describe_client_service_delta(ClientServiceDelta(0, 5, 0, None, None, None))
        == "the service reports nothing of its own"
    )
    assert (
        descriptions.describe_client_service_delta(ClientServiceDelta(30, 0, 0, 2e6, None, 3e6))
        == "p50 +2.0 ms · p99 too few (30) over 30 turns"
    )
    assert (
        descriptions.describe_client_service_delta(ClientServiceDelta(300, 0, 0, 2e6, -3e6, 3e6))
        == "p50 +2.0 ms · p99 −3.0 ms over 300 turns"
    )
    assert (
        descriptions.describe_client_service_delta(ClientServiceDelta(300, 0, 0, 2e6, -3e6, 3e6, approximate=True))
        == "p50 ≈ +2.0 ms · p99 ≈ −3.0 ms over 300 turns"
    )


def test_generator_health_that_was_not_reported_is_never_zero() -> None:
    lines = ("generator", "its process")
    assert [descriptions.describe_generator(Generator(0), line).count(descriptions.UNKNOWN) for line in lines] == [3, 3]
    figures = {"cpu_ratio_worst": 0.25, "loop_lag_worst_ns": 2_000_000, "frame_lateness_p99_ns": 900_000}
    known = descriptions.describe_generator(Generator(1, figures), "generator")
    assert known == "pacing p99 0.9 ms · loop lag ≤ 2.0 ms · CPU ≤ 25 % of a core"
    estimated = Generator(1, figures, approximate=frozenset({"frame_lateness_p99_ns"}))
    known = descriptions.describe_generator(estimated, "generator")
    assert known == "pacing p99 ≈ 0.9 ms · loop lag ≤ 2.0 ms · CPU ≤ 25 % of a core"
    few = Generator(1, {**figures, "frame_lateness_p99_ns": None}, too_few={"frame_lateness_p99_ns": 50})
    assert descriptions.describe_generator(few, "generator").startswith("pacing p99 too few (50) · loop lag")
    figures = {
        "gc_pause_worst_ns": 4_000_000,
        "unsent_worst_bytes": 12_345,
        "clock_offset_drift_worst_ns": -90_000,
        "frames_held_up": 0,
    }
    shown = "GC pauses ≤ 4.0 ms · socket backlog ≤ 12,345 bytes · clock moved −0.1 ms"
    assert descriptions.describe_generator(Generator(1, figures), "its process") == shown
    held_up = Generator(1, {**figures, "frames_held_up": 3})
    assert "· frames held up 3 ·" in descriptions.describe_generator(held_up, "its process")


def test_calibration_and_corpus_come_from_what_the_run_declared() -> None:
    assert descriptions.describe_calibration(run()) == "not calibrated"
    output = {"calibration": "beyond the calibrated ceiling of 400 callers"}
    assert descriptions.describe_calibration(run(declared=output)) == "beyond the calibrated ceiling of 400 callers"
    assert descriptions.describe_calibration(run(declared={"calibrated_to_ms": "1.3"})) == "calibrated to ± 1.3 ms"
    assert descriptions.describe_corpus(run()) == descriptions.UNKNOWN
    assert descriptions.describe_corpus(run(declared={"corpus": "recorded"})) == "recorded"


def test_moments_of_a_run_of_several_days_have_their_day() -> None:
    hour = 3_600
    one_day, several = run(last_s=23 * hour), run(last_s=72 * hour)
    assert descriptions.clock_of(one_day)(5 * hour * S) == "05:00:00"
    assert descriptions.clock_of(several)(29 * hour * S) == "2 Jan 05:00:00"
    # The day is the reader's: where it ends there, the run has two.
    assert descriptions.clock_of(one_day, ZoneInfo("Asia/Kolkata"))(20 * hour * S) == "2 Jan 01:30:00"


def test_text_from_outside_cannot_become_markup() -> None:
    assert escape('<img src=x onerror="a">') == "&lt;img src=x onerror=&quot;a&quot;&gt;"


def test_a_name_does_not_turn_the_words_beside_it() -> None:
    assert escape("148 turns of \u202estreaming\x1b: 0 invalid") == "148 turns of \\u202estreaming\\x1b: 0 invalid"
    assert escape("one\ntwo שלום") == "one\ntwo שלום"


def test_a_percentile_says_within_what_it_was_measured() -> None:
    known = MeasuredWithin((5.8e8, 6.2e8), None, None, (5.99e8, 6.01e8))
    stats = MetricStats("voice_to_voice", "ns", 12, 6e8, None, None, 6e8, measured_within=known)
    assert descriptions.describe_bounds(stats, "p50") == "measured within 580–620"
    assert descriptions.describe_bounds(stats, "max") == "", "less than 1 % off goes without saying"
    some = replace(stats, measured_within=replace(known, turns_unknown=3))
    unknown = "measurement bounds not known for 3 of 12 turns"
    assert descriptions.describe_bounds(some, "p50") == f"measured within 580–620; {unknown}"
    assert descriptions.describe_bounds(some, "p95") == unknown
    assert descriptions.describe_bounds(replace(stats, measured_within=None), "p50") == ""


def test_how_well_speech_is_known_to_end_is_reported() -> None:
    assert descriptions.describe_speech_bounds(SpeechBoundErrors()) == DASH
    assert descriptions.describe_speech_bounds(SpeechBoundErrors(9, 9)) == "± not known for 9 of 9 turns"
    assert (
        descriptions.describe_speech_bounds(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 20e6, 80_000_000))
        == "end ± 20.0 ms · worst ± 80.0 ms"
    )
    assert descriptions.describe_speech_bounds(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 0.0, 0)) == "end exact"
    assert descriptions.describe_speech_bounds(SpeechBoundErrors(9, 2, None, None, 2e7, 80_000_000)).endswith(
        "· ± not known for 2 of 9 turns"
    )
