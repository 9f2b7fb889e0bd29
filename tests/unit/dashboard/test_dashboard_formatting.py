"""Numbers and states in words."""

from dataclasses import replace
from datetime import UTC

import pytest

from dashboard import formatting
from telemetry.model.metrics import METRIC_NAMES
from telemetry.model.semconv import OUTCOMES
from telemetry.model.stated_error import StatedError
from telemetry.store.answers import (
    ClientServiceDelta,
    Generator,
    MetricStats,
    RunRecord,
    SpeechBoundErrors,
    TelemetryLoss,
    TurnCounts,
)

S = formatting.NS_PER_S


def run(*, ended: bool = False, last_s: int = 100, declared: dict[str, str] | None = None) -> RunRecord:
    return RunRecord("r", 0, last_s * S, 3, None, None, ended, declared or {})


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0.0 ms"),
        (1_240_000, "1.2 ms"),
        (-48_060_000, "-48.1 ms"),
        (812_400_000, "812 ms"),
        (1_204_000_000, "1,204 ms"),
    ],
)
def test_a_duration_has_one_decimal_below_100_ms(ns: float | None, text: str) -> None:
    assert formatting.ms_text(ns) == text


def test_a_difference_has_a_direction_and_nothing_is_never_negative() -> None:
    assert [formatting.signed_ms(ns) for ns in (None, 1_240_000, -1_240_000, -4_000)] == [
        "–",
        "+1.2 ms",
        "-1.2 ms",
        "+0.0 ms",
    ]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (0.0, "0 %"), (0.0004, "< 0.1 %"), (0.125, "12.5 %"), (0.9996, "> 99.9 %"), (1.0, "100 %")],
)
def test_a_small_share_is_never_none_and_a_near_whole_one_never_all(ratio: float | None, text: str) -> None:
    assert formatting.percent(ratio) == text


def test_a_share_of_nothing_is_unknown() -> None:
    assert formatting.share(0, 0) == formatting.DASH
    assert formatting.share(1, 8) == "12.5 %"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(2.5, "per_s", "2.5/s"), (3, "count", "3"), (0.123, "ratio", "0.12"), (5e6, "ns", "5.0 ms"), (None, "ns", "–")],
)
def test_a_figure_carries_its_unit(value: float | None, unit: str, text: str) -> None:
    assert formatting.figure(value, unit) == text


def test_a_percentile_without_enough_turns_says_how_many_there_are() -> None:
    stats = MetricStats("voice_to_voice", "ns", 12, 5e8, None, None, 6e8)
    assert formatting.percentile(stats, "p50") == "500"
    assert formatting.percentile(stats, "p95") == "too few (12)"
    assert formatting.percentile(stats, "p99") == "too few (12)"
    assert formatting.why_no_figures(stats) is None


def test_a_metric_without_a_value_says_why() -> None:
    withheld = MetricStats("asr_partial_latency", "ns", 0, None, None, None, None, "no partials")
    unmeasured = MetricStats("barge_in_stop", "ns", 0, None, None, None, None)
    assert formatting.why_no_figures(withheld) == "not observable on this wire: no partials"
    assert formatting.why_no_figures(unmeasured) == "not measured on these turns"
    assert formatting.percentile(unmeasured, "p50") == formatting.DASH


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
    assert formatting.ago(seconds) == text


def test_the_state_is_live_stale_or_ended() -> None:
    assert formatting.state_of(run(), 100 * S, 110 * S) == "live"
    assert formatting.state_of(run(), 100 * S, 131 * S) == "stale"
    assert formatting.state_of(run(last_s=100), None, 131 * S) == "stale"
    assert formatting.state_of(run(ended=True), 100 * S, 101 * S) == "ended"


def test_a_stale_run_says_that_it_has_not_ended() -> None:
    sentence = formatting.state_sentence("stale", 0, 190 * S)
    assert sentence == "last turn 3 min ago; the run has not said that it ended"
    assert formatting.state_sentence("live", 0, 2 * S) == "last turn 2 s ago"
    assert formatting.state_sentence("ended", 0, 190 * S, UTC) == "last turn 1 Jan 00:00, 3 min ago"


def test_the_clock_names_its_zone() -> None:
    assert formatting.clock(3_661 * S) == "01:01:01 UTC"


def test_invalid_turns_are_given_with_their_share_and_commonest_reason() -> None:
    assert formatting.invalid_words(TurnCounts(10, 10, 0, {})) == "none invalid"
    counts = TurnCounts(200, 190, 3, {}, {"drift": 1, "frame lateness": 2})
    assert formatting.invalid_words(counts) == "3 invalid (1.5 %, mostly frame lateness): generator-limited"
    assert formatting.invalid_words(TurnCounts(50, 48, 2, {})) == "2 invalid (4.0 %)", "two turns limit no run"
    assert formatting.invalid_words(TurnCounts(200, 190, 2, {})) == "2 invalid (1.0 %)"


def test_an_endpoint_that_did_not_read_is_named_and_one_that_read_is_not() -> None:
    assert formatting.unread_words(TurnCounts(10, 10, 0, {})) == ""
    counts = TurnCounts(1205, 1204, 1, {}, endpoint_did_not_read=1000)
    assert formatting.unread_words(counts) == "did not read in 1,000 of 1,204 turns"


def test_lost_telemetry_is_a_fact_of_its_own_and_silence_is_not_none_lost() -> None:
    assert formatting.loss_words(TelemetryLoss(1, 10, 10, 0)) == ("none lost", True)
    assert formatting.loss_words(TelemetryLoss(1, None, 10, 0))[1] is None
    assert formatting.loss_words(TelemetryLoss(1, 11, 10, 1)) == ("1 turn lost on the way (10 received)", False)


def test_agreement_gives_both_percentiles_or_says_what_is_missing() -> None:
    assert (
        formatting.client_service_delta_words(ClientServiceDelta(0, 5, 0, None, None, None))
        == "the service reports nothing of its own"
    )
    assert (
        formatting.client_service_delta_words(ClientServiceDelta(30, 0, 0, 2e6, None, 3e6))
        == "p50 +2.0 ms · p99 too few (30) over 30 turns"
    )
    assert (
        formatting.client_service_delta_words(ClientServiceDelta(300, 0, 0, 2e6, -3e6, 3e6))
        == "p50 +2.0 ms · p99 -3.0 ms over 300 turns"
    )


def test_generator_health_that_was_not_reported_is_never_zero() -> None:
    unknown = Generator(0, *[None] * 11)
    assert formatting.generator_words(unknown).count(formatting.UNKNOWN) == 3
    known = Generator(1, 0.25, 2_000_000, 900_000, *[None] * 8)
    assert formatting.generator_words(known) == "pacing p99 0.9 ms · loop lag ≤ 2.0 ms · CPU 25.0 % of a core"
    assert formatting.instrument_words(unknown).count(formatting.UNKNOWN) == 3
    strained = replace(
        known, gc_pause_worst_ns=4_000_000, unsent_worst_bytes=12_345, clock_offset_drift_worst_ns=-90_000
    )
    told = "GC pauses ≤ 4.0 ms · socket backlog ≤ 12,345 bytes · clock moved -0.1 ms"
    assert formatting.instrument_words(strained) == told
    assert "(3 frames held up)" in formatting.instrument_words(replace(strained, frames_held_up=3))


def test_calibration_and_corpus_come_from_what_the_run_declared() -> None:
    assert formatting.calibration_words(run()) == "not calibrated"
    said = {"calibration": "beyond the calibrated ceiling of 400 callers"}
    assert formatting.calibration_words(run(declared=said)) == "beyond the calibrated ceiling of 400 callers"
    assert formatting.calibration_words(run(declared={"calibrated_to_ms": "1.3"})) == "calibrated to ± 1.3 ms"
    assert formatting.corpus_words(run()) == formatting.UNKNOWN
    assert formatting.corpus_words(run(declared={"corpus": "recorded"})) == "recorded"


def test_every_metric_and_outcome_has_a_label() -> None:
    assert set(METRIC_NAMES) <= set(formatting.METRIC_LABELS)
    assert set(OUTCOMES) == set(formatting.OUTCOME_LABELS)


def test_text_from_outside_cannot_become_markup() -> None:
    assert formatting.escape('<img src=x onerror="a">') == "&lt;img src=x onerror=&quot;a&quot;&gt;"


def test_a_percentile_says_within_what_it_lies() -> None:
    between = (5.8e8, 6.2e8)
    known = StatedError(between, None, None, None, 0, 4e5)
    stats = MetricStats("voice_to_voice", "ns", 12, 6e8, None, None, 6e8, error=known)
    both = "within 580 to 620 ms by the error of the clips' speech bounds and of the instrument"
    assert formatting.error_words(stats, "p50") == both
    some = replace(stats, error=replace(known, turns_unknown=3, instrument_ns=None))
    assert formatting.error_words(some, "p50") == (
        "within 580 to 620 ms by the error of the clips' speech bounds; ± not known for 3 of 12 turns"
    )
    assert formatting.error_words(some, "p95") == "± not known for 3 of 12 turns"
    assert formatting.error_words(replace(stats, error=None), "p50") == ""


def test_how_well_speech_is_known_to_end_is_said() -> None:
    assert formatting.bounds_words(SpeechBoundErrors()) == formatting.DASH
    assert formatting.bounds_words(SpeechBoundErrors(9, 9)) == "± not known for 9 of 9 turns"
    assert (
        formatting.bounds_words(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 20e6, 80_000_000))
        == "end ± 20.0 ms · worst ± 80.0 ms"
    )
    assert formatting.bounds_words(SpeechBoundErrors(9, 2, None, None, 2e7, 80_000_000)).endswith(
        "· ± not known for 2 of 9 turns"
    )
