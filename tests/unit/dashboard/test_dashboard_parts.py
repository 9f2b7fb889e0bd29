"""Parts of pages as HTML, and figures and states as the pages word them."""

import re
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from dashboard import descriptions
from dashboard.components import figures, one_turn, trust
from dashboard.components.markup import chip, escape, note
from dashboard.components.objectives import ObjectiveStatus, statuses
from dashboard.descriptions import time_of_day
from dashboard.links import Choice
from telemetry.explanation.dimensions import ExplainedDimension, ExplainingValue
from telemetry.model.bounds import MeasuredWithin
from telemetry.model.formatting import DASH, milliseconds
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import waterfall
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import NotObservable, Objective, default_objectives
from telemetry.store.answers import (
    ClientServiceDelta,
    ContradictedValue,
    Contradictions,
    Generator,
    GeneratorLimit,
    MetricStats,
    RunRecord,
    SpeechBoundErrors,
    StageStats,
    Summary,
    TelemetryLoss,
    TurnCounts,
)
from telemetry.store.questions.explanation import Explanation
from tests.unit.dashboard.fakes import MS, stats, summary
from tests.unit.dashboard.opened_pages import plain, says
from tests.unit.dashboard.scenes import S, Scene, service_turn, turns_of

RUN = RunRecord("r<1>", 0, 10 * S, 200, "ws://x", "openai-realtime", False, {})
CLIENT = turns_of(Scene(turns=1, newest_unix_ns=100 * S))[0]
SERVICE = service_turn(CLIENT, 0)
HOSTILE = "<script>alert(1)</script>"


def judged(good: int, eligible: int) -> tuple[ObjectiveStatus, ...]:
    return statuses(default_objectives(), lambda _objective: EligibleTurns(good, eligible))


def with_headline(**changes: Any) -> Summary:
    """A summary of 200 turns whose voice to voice is a little different."""
    whole = summary(cohorts=("canary",))
    heard = replace(whole.metrics["voice_to_voice"], **changes)
    (cohort,) = whole.cohorts
    cohort = replace(cohort, metrics={**cohort.metrics, "voice_to_voice": heard})
    return replace(whole, metrics={**whole.metrics, "voice_to_voice": heard}, cohorts=(cohort,))


def test_a_state_is_a_word_and_a_shape_besides_a_color() -> None:
    assert [plain(chip(state, "word")) for state in ("met", "missed", "unknown")] == ["✓ word", "✕ word", "○ word"]


def test_an_objective_is_met_missed_too_few_or_not_observable() -> None:
    def hidden(_objective: Objective) -> EligibleTurns:
        raise NotObservable("no transcripts")

    met, missed, few = judged(200, 200)[0], judged(100, 200)[0], judged(3, 3)[0]
    unseen = statuses(default_objectives(), hidden)[0]
    assert [tile.state for tile in (met, missed, few, unseen)] == ["met", "missed", "unknown", "unknown"]
    assert few.promise == "95 % ≤ 800 ms"
    says(few.chip, "too few (3)")
    says(unseen.chip, "not observable")
    assert "no transcripts" in unseen.chip


UNANSWERED = TurnCounts(200, 180, 0, {"ok": 180, "abandoned": 10, "no_reply": 4, "timeout": 6})
LATE_ERROR = replace(UNANSWERED, by_outcome={"ok": 178, "abandoned": 10, "no_reply": 4, "timeout": 6, "error": 2})
BY_KIND = "Not answered 10 % 20 of 200 turns"


@pytest.mark.parametrize(
    ("of", "objective_statuses", "parts", "no"),
    [
        (summary(), judged(196, 200), ("p95 ✓ met 700 ms 95 % ≤ 800 ms · 60 % of the error budget left",), ()),
        (summary(), judged(196, 200), ("98 % 196 of 200 within 800 ms", "0 % every turn was answered"), ("within 7",)),
        (summary(), judged(180, 200), ("✕ missed", "error budget overspent ×2.0"), ()),
        (summary(), (), ("no objective for it", "Good turns not known no objective for voice to voice"), ()),
        (summary(12), judged(12, 12), ("too few (12)", "error budget not known", "12 of 12 within 800 ms"), ()),
        (replace(summary(0), turns=TurnCounts(3, 0, 3, {"invalid": 3})), (), ("no eligible turn",), ()),
        (
            replace(with_headline(unanswered=20), turns=UNANSWERED),
            (),
            (f"{BY_KIND} · no reply 4 · timed out 6 · abandoned 10",),
            (),
        ),
        # It is not known how many of these were answered before.
        (replace(with_headline(unanswered=20), turns=LATE_ERROR), (), (BY_KIND,), ("error 2",)),
        (
            with_headline(measured_within=MeasuredWithin(None, (660e6, 700e6), None, None)),
            judged(196, 200),
            ("measured within 660–700 · ",),
            (),
        ),
        (with_headline(n=150, eligible=200, unanswered=50), (), ("of the answered: 150 of 200 turns",), ()),
        (
            with_headline(p95=818e6, approximate=True, estimated_within={"p95": (806e6, 829.4e6)}),
            (),
            ("≈ 818 ms (95 % 806–829)",),
            (),
        ),
    ],
)
def test_tiles_give_figure_its_basis_and_what_is_missing(
    of: Summary, objective_statuses: tuple[ObjectiveStatus, ...], parts: tuple[str, ...], no: tuple[str, ...]
) -> None:
    says(figures.tiles(of, objective_statuses), *parts, no=no)


def test_stage_table_gives_percentiles_n_objective_and_verdict() -> None:
    says(
        figures.stages(summary(), judged(196, 200)),
        "stage p50 p95 p99 n objective verdict",
        "Voice to voice 490 700 840 200 95 % ≤ 800 ms ✓ met",
        "The caller gets an answer: 98 % 200 99 % of turns: outcome answered or interrupted ✕ missed",
        "1 missed ✓ 6 met",
        no=(figures.ANSWERED,),
    )
    says(figures.stages(with_headline(n=150, eligible=200, unanswered=50), ()), "150 of 200", figures.ANSWERED)
    hidden = stats("asr_partial_latency", 0, withheld="fixed cadence")
    one = replace(summary(), metrics={**summary().metrics, "asr_partial_latency": hidden})
    says(figures.stages(one, ()), "ASR first partial not observable on this wire: fixed cadence")


def test_missed_objectives_come_first() -> None:
    objectives = default_objectives()
    counts = {objective.name: (200, 200) for objective in objectives} | {"tts-first-chunk": (10, 200)}
    rows = figures.stages(summary(), statuses(objectives, lambda objective: EligibleTurns(*counts[objective.name])))
    assert rows.index("TTS first chunk") < rows.index("Voice to voice<")


def test_figures_give_measurement_bounds_and_estimate_basis() -> None:
    within = MeasuredWithin((460e6, 500e6), None, None, None, turns_unknown=2)
    known = with_headline(measured_within=within)
    html, bounds = figures.stages(known, ()), "measured within 460–500"
    assert f'<div class="vp hint">Voice to voice: p50 490 ms ({bounds})</div>' in html
    assert html.count(f'title="{bounds}; measurement bounds not known for 2 of ') == 1
    assert '<div class="vp hint">measurement bounds not known for 2 of ' in html
    assert f"canary: p50 490 ms ({bounds})</div>" in figures.cohorts(known.cohorts, {})
    estimated = with_headline(p95=818e6, approximate=True, estimated_within={"p95": (806e6, 829.4e6)})
    says(figures.stages(estimated, ()), "≈ 490 ≈ 818 95 % 806–829")
    for html in (figures.tiles(estimated, ()), figures.stages(estimated, ())):
        assert html.count('title="estimated from one value in 16; the exact figure lies') == 1
    assert "estimated from" not in figures.tiles(summary(), ()) + figures.stages(summary(), ())


def test_explaining_dimensions_are_ranked_with_their_values() -> None:
    value = ExplainingValue("<b>noisy\x1b", 30, 10, 0.6, 0.02)
    shown = ExplainedDimension("noise", 4, None, 0.42, 0.00001, is_shown=True, value=value)
    open_, silent = ExplainedDimension("route", 2), ExplainedDimension("region", 0, "not reported")
    alike = ExplainedDimension("model", 1, "one value")
    html = figures.explanation(Explanation(50, 500, (shown, open_, silent, alike), is_sample=True), "bad turns")
    says(
        html,
        *("50 bad turns against 500 others, a sample over their time", "noise <b>noisy\\x1b 60 % 2 % 0.42 < 0.001"),
        *("not shown: route", "not reported: region", "the same on both sides: model"),
    )
    assert "<b>noisy" not in html
    says(figures.explanation(Explanation(50, 500, (open_,)), "bad turns"), figures.NOTHING)


def test_budget_ticks_begin_where_their_stage_begins() -> None:
    stages = {
        "llm": StageStats("llm", 200, 200.0 * MS, 400.0 * MS),
        "tts": StageStats("tts", 200, 100.0 * MS, 250.0 * MS),
    }
    html = figures.budget(stages, default_objectives())
    # Three objectives at p50 and at p95, voice to voice at 800 ms being the end of the scale; and TTS alone, 200 ms
    # after 200 ms of LLM at p50, and after 400 ms at p95.
    assert html.count('<u class="vp-budget"') == 6
    assert 'style="left:100.00%"' in html
    assert re.findall(r'vp-budget alone" style="left:([0-9.]+)%', html) == ["50.00", "75.00"]
    # The keys are in the order of the ticks.
    says(html, "ASR over by 400 ms LLM over by 600 ms voice to voice over by 800 ms TTS within 200 ms")
    assert "vp-budget" not in figures.budget(stages)


def test_the_budget_bar_shares_one_scale_and_says_too_few() -> None:
    stages = {
        "endpointing": StageStats("endpointing", 200, 200.0 * MS, 300.0 * MS),
        "llm": StageStats("llm", 200, 100.0 * MS, 300.0 * MS),
    }
    html = figures.budget(stages)
    assert "width:33.33%" in html
    assert "width:50.00%" in html
    assert "≈" not in html
    estimated = StageStats("llm", 70_000, 100.0 * MS, 300.0 * MS, approximate=True)
    html = figures.budget({"llm": estimated})
    assert plain(html).endswith("LLM ≈ 100 / ≈ 300")
    assert 'title="LLM: ≈ 300 ms"' in html
    bounded = replace(estimated, estimated_within={"p95": (290.0 * MS, 312.0 * MS)})
    assert 'title="LLM: ≈ 300 ms (95 % 290–312)"' in figures.budget({"llm": bounded})
    says(figures.budget({"llm": StageStats("llm", 3, 100.0 * MS, None)}), "too few (3)", "too few turns")
    says(figures.budget({}), "no turn shows its stages")


def test_cohorts_share_one_scale() -> None:
    html = figures.cohorts(summary(cohorts=("A", "B")).cohorts, {"A": judged(190, 200)[0], "B": None})
    says(html, "A 200 490 700 840 95 % 25 % 0 %", "B 200 490 700 840 – 25 % 0 %")
    assert html.count('class="vp-range"') == 2
    assert "left:97.0%" in html  # the largest p99 reaches the end of the scale
    says(figures.cohorts((), {}), "no turn names a cohort")


def test_a_slow_turn_links_to_its_waterfall_and_keeps_the_filter() -> None:
    html = figures.slowest([CLIENT], Choice(cohort="A&B"), time_of_day)
    link = f"?cohort=A%26B&amp;trace={CLIENT.trace_id}&amp;turn=0"
    assert f'<a href="{link}" target="_self"' in html
    says(html, "00:01:39")
    assert figures.slowest([], Choice(), time_of_day) == ""


def test_outcomes_give_counts_shares_and_causes_of_cuts() -> None:
    counts = TurnCounts(10, 8, 1, {"ok": 8, "abandoned": 1, "invalid": 1})
    says(figures.outcomes(counts), "answered 8 80 %", "abandoned 1 10 %", "invalid 1 10 %", no=("cut",))
    cut = TurnCounts(10, 8, 0, {"ok": 8, "cut": 2}, cut_by={"the stop time-out of <1> s": 2})
    says(figures.outcomes(cut), "cut by the generator 2 20 %", "cut by the stop time-out of <1> s 2")


def test_the_head_says_what_how_old_and_how_well() -> None:
    says(trust.overview(RUN, summary(), "stale", 200 * S, UTC), "stale", "3 min ago", "ws://x", "200 turns")
    behind = trust.trust(RUN, summary()).details
    says(behind, "openai-realtime", "none lost", "not calibrated", no=("did not read", "impossible"))
    unread = replace(summary(), turns=TurnCounts(10, 10, 0, {}, endpoint_did_not_read=4))
    says(trust.trust(RUN, unread).details, "did not read in 4 of 10 turns")
    values = (ContradictedValue("service", "<b>", "before_turn", 3),)
    contradicted = replace(summary(), contradictions=Contradictions(values, late_spans=12, revised_turns=2))
    for run in (RUN, replace(RUN, run_id="service:bot:2026-11-11")):
        details = trust.trust(run, contradicted).details
        says(details, "3 impossible values (3 × ", "reported: before its turn began)")
        says(details, "12 spans of services came late: 2 turns judged again")
        assert "<b>" not in details.replace("<b></b>", "")


@pytest.mark.parametrize(
    ("changed", "state", "label"),
    [
        ({}, "met", "✓ valid · telemetry complete · calibrated ± 0.4 ms"),
        ({"turns": TurnCounts(100, 99, 1, {})}, "unknown", "○ 1 of 100 turns invalid · telemetry complete"),
        ({"limit": GeneratorLimit("2 of 3 were lost")}, "missed", "✕ generator-limited · telemetry complete"),
        ({"loss": TelemetryLoss(1, 10, 8, 2)}, "missed", "✕ valid · 2 turns lost"),
        ({"loss": TelemetryLoss(1, None, 8, 0)}, "unknown", "○ valid · telemetry loss not known"),
    ],
)
def test_one_chip_sums_up_what_weakens_the_figures(changed: dict[str, Any], state: str, label: str) -> None:
    calibrated = replace(RUN, declared={"calibrated_to_ms": "0.4"})
    shown = trust.trust(calibrated, replace(summary(), **changed))
    assert (shown.state, label in shown.label) == (state, True), shown


@pytest.mark.parametrize("declared", [None, "wide", "nan", "-3", "0", "1e9"])
def test_invalid_declared_bound_calibrates_nothing(declared: str | None) -> None:
    shown = trust.trust(replace(RUN, declared={} if declared is None else {"calibrated_to_ms": declared}), summary())
    assert shown.label.endswith("not calibrated")
    assert shown.state == "unknown"
    says(shown.details, "not calibrated")


def test_names_from_outside_cannot_become_markup() -> None:
    hostile = replace(RUN, target=HOSTILE, declared={"calibration": HOSTILE})
    assert "<script>" not in trust.overview(hostile, summary(), "live", 10 * S, UTC)
    assert "<script>" not in trust.trust(hostile, summary()).details + note("damaged", [HOSTILE])
    assert note("damaged", []) == ""
    assert escape('<img src=x onerror="a">') == "&lt;img src=x onerror=&quot;a&quot;&gt;"
    # A name does not turn the words after it.
    assert escape("148 turns of \u202estreaming\x1b: 0 invalid") == "148 turns of \\u202estreaming\\x1b: 0 invalid"
    assert escape("one\ntwo שלום") == "one\ntwo שלום"


def changed(turn: Turn, **changes: Any) -> Turn:
    return msgspec.structs.replace(turn, **changes)


@pytest.mark.parametrize(
    ("changes", "parts", "no"),
    [
        ({}, ("✓ valid", "bounds not known"), ()),
        (
            {"invalid_reasons": ("drift",), "drift_worst_ns": None},
            ("✕ invalid: drift", "drift over the utterance not reported"),
            (),
        ),
        (
            {"endpoint_did_not_read": True, "send_blocked_worst_ns": 5_812_000_000},
            ("✓ valid", "the endpoint did not read for 5,812 ms: the turn counts"),
            (),
        ),
        ({"endpoint_did_not_read": False}, ("the endpoint did not read for 0.0 ms",), ("the turn counts",)),
    ],
)
def test_the_evidence_of_a_turn_is_in_words(changes: dict[str, Any], parts: tuple[str, ...], no: tuple[str]) -> None:
    says(one_turn.evidence_of(changed(CLIENT, **changes)), *parts, no=no)


def test_turn_shows_bounds_dimensions_and_service_reports() -> None:
    picture = waterfall(CLIENT, SERVICE)
    heard_ns = (CLIENT.first_audio_perf_ns or 0) - (CLIENT.speech_end_perf_ns or 0)
    exact = dict.fromkeys(("speech_end_uncertainty_ns", "speech_end_later_ns", "stamp_error_ns", "held_up_ns"), 0)
    bounded = changed(CLIENT, first_audio_earlier_ns=heard_ns - 100_000_000, **exact)
    heard = f"{heard_ns / 1e6:,.0f}"
    says(one_turn.evidence_of(bounded), f"Voice to voice {heard} ms, within 100–{heard}")
    says(one_turn.headline(bounded, SERVICE, picture), f"{heard} ms (measured within 100–{heard})")
    says(one_turn.headline(CLIENT, SERVICE, picture), "20.0 ms later than the clip says", no=("measured within",))
    says(one_turn.evidence_of(None), "not in the store")
    says(one_turn.dimensions(CLIENT), "utt-00", "1 Jan 00:01:39", "babble at 10.1 dB")
    says(one_turn.dimensions(changed(CLIENT, snr_obtained_db=-4.8)), "babble at −4.8 dB")
    stated = changed(CLIENT, service_reported=("llm ttft", "<tts>"), service_reported_ns=(187_000_000, 90_000_000))
    says(one_turn.reported(stated), "llm ttft 187 ms")
    assert "<tts>" not in one_turn.reported(stated)
    assert one_turn.reported(CLIENT) == ""
    # No claim is among what was measured.
    says(one_turn.moments(waterfall(stated, SERVICE)), "speech end, caller", no=("llm ttft",))


def test_one_side_alone_is_reported() -> None:
    alone = waterfall(None, SERVICE)
    says_ms = milliseconds(METRICS["voice_to_voice"].value(SERVICE))
    # The figure that its run's own page takes.
    says(one_turn.headline(None, SERVICE, alone), "Only the service", f"voice to voice {says_ms} outcome")
    silent = changed(SERVICE, first_audio_perf_ns=None)
    says(one_turn.headline(None, silent, waterfall(None, silent)), "voice to voice not reported outcome")
    says(one_turn.headline(CLIENT, None, waterfall(CLIENT, None)), "as the caller saw them")
    blind = changed(SERVICE, speech_end_audio_ns=None)
    says(one_turn.headline(CLIENT, blind, waterfall(CLIENT, blind)), "both ends are drawn as one")


def test_whole_call_page_does_not_describe_picture_of_turn() -> None:
    picture = waterfall(CLIENT, SERVICE)
    says(one_turn.headline(CLIENT, SERVICE, picture), "Pale: reported by the service")
    whole = one_turn.headline(CLIENT, SERVICE, picture, whole_call=True)
    says(whole, "The whole call on one clock", no=("Pale",))


def run(*, ended: bool = False, last_s: int = 100, **declared: str) -> RunRecord:
    return RunRecord("r", 0, last_s * S, 3, None, None, ended, declared)


FEW = MetricStats("voice_to_voice", "ns", 12, 5e8, None, None, 6e8)
ESTIMATED = MetricStats("voice_to_voice", "ns", 300_000, 5e8, 6e8, None, 6e8, approximate=True)
UNMEASURED = MetricStats("barge_in_stop", "ns", 0, None, None, None, None)
WITHHELD = MetricStats("asr_partial_latency", "ns", 0, None, None, None, None, "no partials")


def test_a_percentile_that_is_missing_says_why() -> None:
    percentile, why = descriptions.percentile, descriptions.why_no_figures
    assert [percentile(FEW, name) for name in ("p50", "p95", "p99")] == ["500", "too few (12)", "too few (12)"]
    assert percentile(ESTIMATED, "p95", with_unit=True) == "≈ 600 ms"
    assert percentile(UNMEASURED, "p50") == DASH
    assert why(FEW) is None
    assert why(WITHHELD) == "not observable on this wire: no partials"
    assert (why(UNMEASURED), why(UNMEASURED, "service")) == ("not measured on these turns", "not reported")


def test_a_percentile_says_within_what_it_was_measured() -> None:
    known = MeasuredWithin((5.8e8, 6.2e8), None, None, (5.99e8, 6.01e8))
    of = replace(FEW, p50=6e8, measured_within=known)
    some = replace(of, measured_within=replace(known, turns_unknown=3))
    unknown = "measurement bounds not known for 3 of 12 turns"
    assert descriptions.describe_bounds(of, "p50") == "measured within 580–620"
    assert descriptions.describe_bounds(of, "max") == "", "less than 1 % off goes without saying"
    assert descriptions.describe_bounds(some, "p50") == f"measured within 580–620; {unknown}"
    assert descriptions.describe_bounds(some, "p95") == unknown
    assert descriptions.describe_bounds(replace(of, measured_within=None), "p50") == ""


AGES = {-5: "now", 0.4: "now", 4.9: "4 s ago", 190: "3 min ago", 7300: "2 h ago", 90_000: "1 day ago"}


@pytest.mark.parametrize(("seconds", "text"), [*AGES.items(), (200_000, "2 days ago")])
def test_age_in_words(seconds: float, text: str) -> None:
    assert descriptions.ago(seconds) == text


def test_run_state_is_live_stale_or_ended_with_true_sentence() -> None:
    state, describe = descriptions.state_of, descriptions.describe_state
    assert state(run(), 100 * S, 110 * S) == "live"
    assert state(run(), 100 * S, 131 * S) == state(run(last_s=100), None, 131 * S) == "stale"
    assert state(run(ended=True), 100 * S, 101 * S) == "ended"
    assert describe("stale", 0, 190 * S) == "last turn 3 min ago; the run has not said that it ended"
    assert describe("live", 0, 2 * S) == "last turn 2 s ago"
    assert describe("ended", 0, 190 * S, UTC) == "last turn 1 Jan 00:00, 3 min ago"


def test_times_are_in_reader_zone_with_day_if_run_has_several() -> None:
    assert time_of_day(3_661 * S) == "01:01:01"
    assert time_of_day(3_661 * S, timezone(timedelta(hours=2))) == "03:01:01"
    hour, clock_of = 3_600, descriptions.clock_of
    one_day, several = run(last_s=23 * hour), run(last_s=72 * hour)
    assert clock_of(one_day)(5 * hour * S) == "05:00:00"
    assert clock_of(several)(29 * hour * S) == "2 Jan 05:00:00"
    # The day is the reader's: where it ends there, the run has two.
    assert clock_of(one_day, ZoneInfo("Asia/Kolkata"))(20 * hour * S) == "2 Jan 01:30:00"


REASONS = {"frame lateness": 2, "drift": 1, "clock step": 1}
CUT = TurnCounts(total=26, ok=0, invalid=1, by_outcome={"cut": 25, "invalid": 1}, endpoint_did_not_read=25)
SPREAD = ClientServiceDelta(300, 0, 0, 2e6, -3e6, 3e6)
ESTIMATED_SPREAD = replace(SPREAD, approximate=True, estimated_within={"p50": (1.5e6, 2.5e6)})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (descriptions.describe_invalid(TurnCounts(10, 10, 0, {})), "none invalid"),
        (
            descriptions.describe_invalid(TurnCounts(200, 190, 3, {}, REASONS, not_as_recorded=2)),
            "3 invalid (1.5 %): 2 not said as recorded (frame lateness 2, drift 1), "
            "1 by a fault of the generator (clock step 1)",
        ),
        (
            descriptions.describe_invalid(TurnCounts(50, 48, 2, {})),
            "2 invalid (4 %): 2 by faults of the generator",
        ),
        (descriptions.describe_unread(TurnCounts(10, 10, 0, {})), ""),
        (
            descriptions.describe_unread(TurnCounts(1205, 1204, 1, {}, endpoint_did_not_read=1000)),
            "did not read in 1,000 of 1,204 turns",
        ),
        (descriptions.describe_unread(CUT), "did not read in 25 of 25 turns"),
        (descriptions.describe_loss(TelemetryLoss(1, 10, 10, 0))[0], "none lost"),
        (descriptions.describe_loss(TelemetryLoss(1, 11, 10, 1))[0], "1 turn lost on the way (10 received)"),
        (
            descriptions.describe_client_service_delta(ClientServiceDelta(0, 5, 0, None, None, None)),
            "the service reports nothing of its own",
        ),
        (
            descriptions.describe_client_service_delta(ClientServiceDelta(30, 0, 0, 2e6, None, 3e6)),
            "p50 +2.0 ms · p99 too few (30) over 30 turns",
        ),
        (descriptions.describe_client_service_delta(SPREAD), "p50 +2.0 ms · p99 −3.0 ms over 300 turns"),
        (
            descriptions.describe_client_service_delta(ESTIMATED_SPREAD),
            "p50 ≈ +2.0 ms (95 % +1.5 ms to +2.5 ms) · p99 ≈ −3.0 ms over 300 turns",
        ),
        (descriptions.describe_calibration(run()), "not calibrated"),
        (descriptions.describe_calibration(run(calibration="beyond 400 callers")), "beyond 400 callers"),
        (descriptions.describe_calibration(run(calibrated_to_ms="1.3")), "calibrated to ± 1.3 ms"),
        (descriptions.describe_corpus(run()), descriptions.UNKNOWN),
        (descriptions.describe_corpus(run(corpus="recorded")), "recorded"),
        (descriptions.describe_speech_bounds(SpeechBoundErrors()), DASH),
        (descriptions.describe_speech_bounds(SpeechBoundErrors(9, 9)), "± not known for 9 of 9 turns"),
        (
            descriptions.describe_speech_bounds(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 20e6, 80_000_000)),
            "end ± 20.0 ms · worst ± 80.0 ms",
        ),
        (descriptions.describe_speech_bounds(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 0.0, 0)), "end exact"),
        (
            descriptions.describe_speech_bounds(SpeechBoundErrors(9, 2, None, None, 2e7, 80_000_000)),
            "end ± 20.0 ms · worst ± 80.0 ms · ± not known for 2 of 9 turns",
        ),
    ],
)
def test_counts_of_turns_are_described_in_words(text: str, words: str) -> None:
    assert text == words


@pytest.mark.parametrize(("emitted", "missing", "good"), [(10, 0, True), (None, 0, None), (11, 1, False)])
def test_silence_of_how_many_turns_were_sent_is_not_none_lost(
    emitted: int | None, missing: int, good: bool | None
) -> None:
    assert descriptions.describe_loss(TelemetryLoss(1, emitted, 10, missing))[1] is good


def test_generator_health_that_was_not_reported_is_never_zero() -> None:
    describe, lines = descriptions.describe_generator, ("generator", "its process")
    assert [describe(Generator(0), line).count(descriptions.UNKNOWN) for line in lines] == [3, 3]
    known = {"cpu_ratio_worst": 0.25, "loop_lag_worst_ns": 2_000_000, "frame_lateness_p99_ns": 900_000}
    lag = "loop lag ≤ 2.0 ms · CPU ≤ 25 % of a core"
    assert describe(Generator(1, known), "generator") == f"pacing p99 0.9 ms · {lag}"
    estimated = Generator(1, known, approximate=frozenset({"frame_lateness_p99_ns"}))
    assert describe(estimated, "generator") == f"pacing p99 ≈ 0.9 ms · {lag}"
    few = Generator(1, {**known, "frame_lateness_p99_ns": None}, too_few={"frame_lateness_p99_ns": 50})
    assert describe(few, "generator") == f"pacing p99 too few (50) · {lag}"
    process = {"gc_pause_worst_ns": 4_000_000, "unsent_worst_bytes": 12_345, "clock_offset_drift_worst_ns": -90_000}
    shown = "GC pauses ≤ 4.0 ms · socket backlog ≤ 12,345 bytes · clock moved −0.1 ms"
    assert describe(Generator(1, {**process, "frames_held_up": 0}), "its process") == shown
    assert "· frames held up 3 ·" in describe(Generator(1, {**process, "frames_held_up": 3}), "its process")
