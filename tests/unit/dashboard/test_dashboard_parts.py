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
from dashboard.components.explanation import NOTHING, explanation
from dashboard.components.markup import chip, escape, note
from dashboard.components.objectives import ObjectiveStatus, statuses
from dashboard.descriptions import time_of_day
from dashboard.links import Choice
from telemetry.explanation.dimensions import ExplainedDimension, ExplainingValue
from telemetry.model.bounds import MeasuredWithin
from telemetry.model.formatting import DASH, NS_PER_S, milliseconds
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
    TelemetryLoss,
    TurnCounts,
)
from telemetry.store.questions.explanation import Explanation
from tests.unit.dashboard.fakes import MS, stats, summary
from tests.unit.dashboard.scenes import S, Scene, service_turn, turns_of

RUN = RunRecord("r<1>", 0, 10 * S, 200, "ws://x", "openai-realtime", False, {})


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def judged(good: int, eligible: int, objectives: list[Objective] | None = None) -> tuple[ObjectiveStatus, ...]:
    return statuses(objectives or default_objectives(), lambda _objective: EligibleTurns(good, eligible))


def test_a_state_is_a_word_and_a_shape_besides_a_color() -> None:
    assert text_of(chip("met", "met")).strip() == "✓ met"
    assert text_of(chip("missed", "missed")).strip() == "✕ missed"
    assert text_of(chip("unknown", "not known")).strip() == "○ not known"


def test_an_objective_is_met_missed_or_too_few() -> None:
    assert judged(200, 200)[0].state == "met"
    assert judged(100, 200)[0].state == "missed"
    few = judged(3, 3)[0]
    assert few.state == "unknown"
    assert "too few (3)" in few.chip
    assert few.promise == "95 % ≤ 800 ms"


def test_a_figure_of_the_stage_table_says_within_what_it_was_measured() -> None:
    answer = summary(cohorts=("canary",))
    p50 = answer.metrics["voice_to_voice"].p50
    assert p50 is not None
    within = MeasuredWithin((p50 - 30e6, p50 + 10e6), None, None, None, turns_unknown=2)
    heard = replace(answer.metrics["voice_to_voice"], measured_within=within)
    html = figures.stages(replace(answer, metrics={**answer.metrics, "voice_to_voice": heard}), ())
    bounds = f"measured within {(p50 - 30e6) / 1e6:,.0f}–{(p50 + 10e6) / 1e6:,.0f}"
    assert f'<div class="vp hint">Voice to voice: p50 {p50 / 1e6:,.0f} ms ({bounds})</div>' in html
    assert html.count(f'title="{bounds}; measurement bounds not known for 2 of ') == 1
    assert '<div class="vp hint">measurement bounds not known for 2 of ' in html
    cohorts = figures.cohorts([replace(answer.cohorts[0], metrics={"voice_to_voice": heard})], {})
    assert f"{answer.cohorts[0].cohort}: p50 {p50 / 1e6:,.0f} ms ({bounds})</div>" in cohorts


def test_an_objective_that_cannot_be_seen_is_not_missed() -> None:
    def count(_objective: Objective) -> EligibleTurns:
        raise NotObservable("no transcripts")

    (status, *_) = statuses(default_objectives(), count)
    assert status.state == "unknown"
    assert "not observable" in status.chip
    assert "no transcripts" in status.chip


def test_the_latency_tile_says_within_what_its_p95_was_measured() -> None:
    answer = summary()
    heard = answer.metrics["voice_to_voice"]
    assert heard.p95 is not None
    within = MeasuredWithin(None, (heard.p95 - 40e6, heard.p95), None, None)
    known = replace(answer, metrics={**answer.metrics, "voice_to_voice": replace(heard, measured_within=within)})
    figure = f"{heard.p95 / 1e6:,.0f}"
    assert f"measured within {heard.p95 / 1e6 - 40:,.0f}–{figure} · " in text_of(figures.tiles(known, judged(196, 200)))
    assert "measured within" not in text_of(figures.tiles(answer, judged(196, 200)))


def test_the_latency_tile_says_objective_and_budget() -> None:
    text = text_of(figures.tiles(summary(), judged(196, 200)))
    assert "Voice to voice p95 ✓ met 700 ms 95 % ≤ 800 ms · 60 % of the error budget left" in text
    assert "98 % 196 of 200 within 800 ms" in text


def test_an_overspent_budget_is_reported() -> None:
    text = text_of(figures.tiles(summary(), judged(180, 200)))
    assert "✕ missed" in text
    assert "error budget overspent ×2.0" in text


def test_without_an_objective_the_tiles_say_so() -> None:
    text = text_of(figures.tiles(summary(), ()))
    assert "no objective for it" in text
    assert "Good turns not known no objective for voice to voice" in text


def test_few_turns_have_no_p95_and_no_good_ratio_as_a_verdict() -> None:
    text = text_of(figures.tiles(summary(12), judged(12, 12)))
    assert "too few (12)" in text
    assert "error budget not known" in text
    assert "Good turns too few (12) 12 of 12 within 800 ms" in text


def test_turns_that_were_not_answered_are_counted_by_kind() -> None:
    full = replace(summary(), turns=TurnCounts(200, 180, 0, {"ok": 180, "abandoned": 10, "no_reply": 4, "timeout": 6}))
    heard = full.metrics["voice_to_voice"]
    unheard = replace(full, metrics=full.metrics | {"voice_to_voice": replace(heard, unanswered=20)})
    text = text_of(figures.tiles(unheard, ()))
    assert "Not answered 10 % 20 of 200 turns · no reply 4 · timed out 6 · abandoned 10" in text
    late = replace(unheard.turns, by_outcome={"ok": 178, "abandoned": 10, "no_reply": 4, "timeout": 6, "error": 2})
    text = text_of(figures.tiles(replace(unheard, turns=late), ()))
    assert "Not answered 10 % 20 of 200 turns" in text
    assert "error 2" not in text, "it is not known how many of these were answered before"
    assert "Not answered 0 % every turn was answered" in text_of(figures.tiles(summary(), ()))


def test_what_explains_bad_turns_is_ranked_with_its_value() -> None:
    value = ExplainingValue("<b>noisy\x1b", 30, 10, 0.6, 0.02)
    shown = ExplainedDimension("noise", 4, None, 0.42, 0.00001, is_shown=True, value=value)
    open_, silent = ExplainedDimension("route", 2), ExplainedDimension("region", 0, "not reported")
    alike = ExplainedDimension("model", 1, "one value")
    html = explanation(Explanation(50, 500, (shown, open_, silent, alike), is_sample=True), "bad turns")
    text = text_of(html)
    assert "50 bad turns against 500 others, a sample over their time" in text
    assert "noise &lt;b&gt;noisy\\x1b 60 % 2 % 0.42 &lt; 0.001" in text
    assert "not shown: route" in text
    assert "not reported: region" in text
    assert "the same on both sides: model" in text
    assert "<b>noisy" not in html
    assert NOTHING in text_of(explanation(Explanation(50, 500, (open_,)), "bad turns"))


def test_budgets_are_ticks_on_the_stage_bar() -> None:
    html = figures.budget({"llm": StageStats("llm", 200, 200.0 * MS, 400.0 * MS)}, default_objectives())
    assert html.count('<u class="vp-budget"') == 6  # three objectives, at p50 and at p95
    assert 'style="left:100.00%"' in html  # voice to voice at 800 ms is the end of the scale
    assert "LLM over by 600 ms" in text_of(html)
    assert "vp-budget" not in figures.budget({"llm": StageStats("llm", 200, 200.0 * MS, 400.0 * MS)})


def test_the_budget_of_one_stage_is_a_tick_from_where_it_begins() -> None:
    stages = {
        "llm": StageStats("llm", 200, 200.0 * MS, 400.0 * MS),
        "tts": StageStats("tts", 200, 100.0 * MS, 250.0 * MS),
    }
    html = figures.budget(stages, default_objectives())
    # 200 ms of TTS after 200 ms of LLM at p50, and after 400 ms at p95, on a scale of 800 ms.
    assert re.findall(r'vp-budget alone" style="left:([0-9.]+)%', html) == ["50.00", "75.00"]
    assert html.count('<u class="vp-budget') == 8
    legend = text_of(html)
    # The keys are in the order of the ticks.
    assert "ASR over by 400 ms LLM over by 600 ms voice to voice over by 800 ms TTS within 200 ms" in legend


def test_missed_objectives_come_first() -> None:
    objectives = default_objectives()
    counts = {each.name: (200, 200) for each in objectives} | {"tts-first-chunk": (10, 200)}
    found = statuses(objectives, lambda each: EligibleTurns(*counts[each.name]))
    rows = figures.stages(summary(), found)
    assert rows.index("TTS first chunk") < rows.index("Voice to voice<")


def test_no_eligible_turn_means_no_share_of_abandoned() -> None:
    none = replace(summary(0), turns=TurnCounts(3, 0, 3, {"invalid": 3}))
    assert "no eligible turn" in text_of(figures.tiles(none, ()))


def test_the_stage_table_gives_percentiles_in_order_with_n_objective_and_verdict() -> None:
    text = text_of(figures.stages(summary(), judged(196, 200)))
    assert "stage p50 p95 p99 n objective verdict" in text
    assert "Voice to voice 490 700 840 200 95 % ≤ 800 ms ✓ met" in text
    assert "The caller gets an answer: 98 % 200 99 % of turns: outcome answered or interrupted ✕ missed" in text
    assert "1 missed ✓ 6 met" in text


def test_percentiles_of_the_answered_say_so_on_the_page() -> None:
    whole = summary()
    heard = replace(whole.metrics["voice_to_voice"], n=150, eligible=200, unanswered=50)
    some = replace(whole, metrics={**whole.metrics, "voice_to_voice": heard})
    assert "150 of 200" in text_of(figures.stages(some, judged(196, 200)))
    assert figures.ANSWERED in text_of(figures.stages(some, judged(196, 200)))
    assert "of the answered: 150 of 200 turns" in text_of(figures.tiles(some, judged(196, 200)))
    assert figures.ANSWERED not in text_of(figures.stages(whole, judged(196, 200)))


def test_a_stage_that_the_wire_hides_gives_the_reason_instead_of_a_figure() -> None:
    hidden = stats("asr_partial_latency", 0, withheld="fixed cadence")
    one = summary()
    text = text_of(figures.stages(replace(one, metrics={**one.metrics, "asr_partial_latency": hidden}), ()))
    assert "ASR first partial not observable on this wire: fixed cadence" in text


def test_cohorts_stand_on_one_scale() -> None:
    html = figures.cohorts(summary(cohorts=("A", "B")).cohorts, {"A": judged(190, 200)[0], "B": None})
    text = text_of(html)
    assert "A 200 490 700 840 95 % 25 % 0 %" in text
    assert "B 200 490 700 840 – 25 % 0 %" in text
    assert html.count('class="vp-range"') == 2
    assert "left:97.0%" in html  # the largest p99 reaches the end of the scale
    assert "no turn names a cohort" in figures.cohorts((), {})


def test_a_slow_turn_links_to_its_waterfall_and_keeps_the_filter() -> None:
    turn = turns_of(Scene(turns=1, newest_unix_ns=100 * S))[0]
    html = figures.slowest([turn], Choice(cohort="A&B"), time_of_day)
    assert f'href="?cohort=A%26B&amp;trace={turn.trace_id}&amp;turn=0"' in html
    assert 'target="_self"' in html
    assert "00:01:39" in html
    assert figures.slowest([], Choice(), time_of_day) == ""


def test_the_budget_bar_shares_one_scale_and_says_too_few() -> None:
    stages = {
        "endpointing": StageStats("endpointing", 200, 200.0 * MS, 300.0 * MS),
        "llm": StageStats("llm", 200, 100.0 * MS, 300.0 * MS),
    }
    html = figures.budget(stages)
    assert "width:33.33%" in html
    assert "width:50.00%" in html
    assert "≈" not in html
    estimated = {"llm": StageStats("llm", 70_000, 100.0 * MS, 300.0 * MS, approximate=True)}
    assert text_of(figures.budget(estimated)).strip().endswith("LLM ≈ 100 / ≈ 300")
    assert 'title="LLM: ≈ 300 ms"' in figures.budget(estimated)
    bounded = replace(estimated["llm"], estimated_within={"p95": (290.0 * MS, 312.0 * MS)})
    assert 'title="LLM: ≈ 300 ms (95 % 290–312)"' in figures.budget({"llm": bounded})
    few = {"llm": StageStats("llm", 3, 100.0 * MS, None)}
    assert "too few (3)" in figures.budget(few)
    assert "too few turns" in figures.budget(few)
    assert "no turn shows its stages" in figures.budget({})


def test_outcomes_give_counts_and_shares_of_every_turn() -> None:
    text = text_of(figures.outcomes(TurnCounts(10, 8, 1, {"ok": 8, "abandoned": 1, "invalid": 1})))
    assert "answered 8 80 %" in text
    assert "abandoned 1 10 %" in text
    assert "invalid 1 10 %" in text
    assert "cut" not in text


def test_turns_that_were_cut_are_shown_with_what_cut_them() -> None:
    cut = TurnCounts(10, 8, 0, {"ok": 8, "cut": 2}, cut_by={"the stop time-out of <1> s": 2})
    text = text_of(figures.outcomes(cut))
    assert "cut by the generator 2 20 %" in text
    assert "cut by the stop time-out of <1> s 2" in text.replace("&lt;", "<").replace("&gt;", ">")


def test_the_head_says_what_how_old_and_how_well() -> None:
    text = text_of(trust.overview(RUN, summary(), "stale", 200 * S, UTC))
    for output in ("stale", "3 min ago", "ws://x", "200 turns"):
        assert output in text
    behind = text_of(trust.details(RUN, summary()))
    for output in ("openai-realtime", "none lost", "not calibrated"):
        assert output in behind
    assert "did not read" not in behind
    unread = replace(summary(), turns=TurnCounts(10, 10, 0, {}, endpoint_did_not_read=4))
    assert "did not read in 4 of 10 turns" in text_of(trust.details(RUN, unread))


def test_the_head_says_which_values_cannot_be_and_what_came_late() -> None:
    values = (ContradictedValue("service", "<b>", "before_turn", 3),)
    found = replace(summary(), contradictions=Contradictions(values, late_spans=12, revised_turns=2))
    of_service = replace(RUN, run_id="service:bot:2026-11-11")
    for run in (RUN, of_service):
        assert "<b>" not in trust.details(run, found).replace("<b></b>", "")
        behind = text_of(trust.details(run, found))
        assert "3 impossible values (3 × " in behind
        assert "reported: before its turn began)" in behind
        assert "12 spans of services came late: 2 turns judged anew" in behind
    assert "impossible" not in trust.details(RUN, summary())


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
def test_one_chip_sums_up_what_weakens_the_figures(changed, state, label) -> None:
    calibrated = replace(RUN, declared={"calibrated_to_ms": "0.4"})
    shown = trust.trust(calibrated, replace(summary(), **changed))
    assert (shown.state, label in shown.label) == (state, True), shown
    assert trust.trust(RUN, summary()).label.endswith("not calibrated")
    assert trust.trust(RUN, summary()).state == "unknown"


@pytest.mark.parametrize("declared", ["wide", "nan", "-3", "0", "1e9"])
def test_a_declared_bound_that_is_none_calibrates_nothing(declared: str) -> None:
    run = replace(RUN, declared={"calibrated_to_ms": declared})
    assert trust.trust(run, summary()).label.endswith("not calibrated")
    assert "not calibrated" in text_of(trust.details(run, summary()))


def test_names_from_the_store_cannot_become_markup() -> None:
    hostile = replace(RUN, target="<script>alert(1)</script>")
    assert "<script>" not in trust.overview(hostile, summary(), "live", 10 * S, UTC)
    assert "<script>" not in trust.details(replace(hostile, declared={"calibration": "<script>"}), summary())
    assert "<script>" not in note("damaged", ["<script>"])
    assert note("damaged", []) == ""


def test_the_evidence_of_a_turn_is_in_words() -> None:
    turn = turns_of(Scene(turns=1, newest_unix_ns=100 * S))[0]
    service = service_turn(turn, 0)
    picture = waterfall(turn, service)
    assert "20.0 ms later than the clip says" in one_turn.joined(turn, service, picture)
    assert "✓ valid" in text_of(one_turn.evidence_of(turn))
    invalid = replace_turn(turn, invalid_reasons=("drift",), drift_worst_ns=None)
    assert "✕ invalid: drift" in text_of(one_turn.evidence_of(invalid))
    assert "drift over the utterance not reported" in text_of(one_turn.evidence_of(invalid))
    stalled = text_of(
        one_turn.evidence_of(replace_turn(turn, endpoint_did_not_read=True, send_blocked_worst_ns=5_812_000_000))
    )
    assert "✓ valid" in stalled
    assert "the endpoint did not read for 5,812 ms: the turn counts" in stalled
    read = text_of(one_turn.evidence_of(replace_turn(turn, endpoint_did_not_read=False)))
    assert "the endpoint did not read for 0.0 ms" in read
    assert "the turn counts" not in read
    assert "not in the store" in one_turn.evidence_of(None)
    assert "utt-00" in one_turn.dimensions(turn)
    assert "1 Jan 00:01:39" in one_turn.dimensions(turn)
    assert "babble at 10.1 dB" in one_turn.dimensions(turn)
    assert "babble at −4.8 dB" in one_turn.dimensions(replace_turn(turn, snr_obtained_db=-4.8))
    assert "speech end, caller" in one_turn.moments(picture)
    assert one_turn.reported(turn) == ""
    bounded = replace_turn(
        turn,
        speech_end_uncertainty_ns=0,
        speech_end_later_ns=0,
        first_audio_earlier_ns=turn.first_audio_perf_ns - turn.speech_end_perf_ns - 100_000_000,
        stamp_error_ns=0,
        held_up_ns=0,
    )
    heard = f"{(turn.first_audio_perf_ns - turn.speech_end_perf_ns) / 1e6:,.0f}"
    assert f"Voice to voice {heard} ms, within 100–{heard}" in text_of(one_turn.evidence_of(bounded))
    assert f"{heard} ms (measured within 100–{heard})" in text_of(one_turn.headline(bounded, service, picture))
    assert "measured within" not in one_turn.headline(turn, service, picture)
    assert f"{heard} ms, bounds not known" in text_of(one_turn.evidence_of(replace_turn(turn, stamp_error_ns=None)))
    stated = replace_turn(turn, service_reported=("llm ttft", "<tts>"), service_reported_ns=(187_000_000, 90_000_000))
    assert "llm ttft 187 ms" in text_of(one_turn.reported(stated))
    assert "<tts>" not in one_turn.reported(stated)
    assert "llm ttft" not in one_turn.moments(waterfall(stated, service)), "no claim stands among what was measured"


def test_one_side_alone_is_reported() -> None:
    turn = turns_of(Scene(turns=1, newest_unix_ns=100 * S))[0]
    service = service_turn(turn, 0)
    assert "Only the service" in one_turn.joined(None, service, waterfall(None, service))
    assert "as the caller saw them" in one_turn.joined(turn, None, waterfall(turn, None))
    blind = replace_turn(service, speech_end_audio_ns=None)
    assert "both ends are drawn as one" in one_turn.joined(turn, blind, waterfall(turn, blind))
    head = text_of(one_turn.headline(None, service, waterfall(None, service)))
    says = milliseconds(METRICS["voice_to_voice"].value(service))
    assert f"voice to voice {says} outcome" in head, "the figure that its run's own page takes"
    silent = replace_turn(service, first_audio_perf_ns=None)
    head = text_of(one_turn.headline(None, silent, waterfall(None, silent)))
    assert "voice to voice not reported outcome" in head


def test_the_page_of_a_whole_call_does_not_describe_the_picture_of_a_turn() -> None:
    turn = turns_of(Scene(turns=1, newest_unix_ns=100 * S))[0]
    service = service_turn(turn, 0)
    picture = waterfall(turn, service)
    assert "Pale: reported by the service" in one_turn.headline(turn, service, picture)
    head = text_of(one_turn.headline(turn, service, picture, whole_call=True))
    assert "The whole call on one clock" in head
    assert "Pale" not in head


def replace_turn(turn: Turn, **changes: Any) -> Turn:

    return msgspec.structs.replace(turn, **changes)


SECOND_NS = NS_PER_S


def run(*, ended: bool = False, last_s: int = 100, declared: dict[str, str] | None = None) -> RunRecord:
    return RunRecord("r", 0, last_s * SECOND_NS, 3, None, None, ended, declared or {})


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


def test_an_estimate_has_its_interval_and_says_what_it_is_from() -> None:
    whole = summary()
    heard = replace(
        whole.metrics["voice_to_voice"], p95=818e6, approximate=True, estimated_within={"p95": (806e6, 829.4e6)}
    )
    assert descriptions.percentile(heard, "p95", with_unit=True) == "≈ 818 ms (95 % 806–829)"
    assert descriptions.percentile(heard, "p50", with_unit=True) == "≈ 490 ms"
    known = replace(whole, metrics={**whole.metrics, "voice_to_voice": heard})
    tiles = figures.tiles(known, ())
    assert "≈ 818 ms (95 % 806–829)" in text_of(tiles)
    stages = figures.stages(known, ())
    assert "≈ 490 ≈ 818 95 % 806–829" in text_of(stages)
    for html in (tiles, stages):
        assert html.count('title="estimated from the turns of one call in 16; the exact figure lies') == 1
    assert "estimated from" not in figures.tiles(whole, ()) + figures.stages(whole, ())


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
    assert descriptions.state_of(run(), 100 * SECOND_NS, 110 * SECOND_NS) == "live"
    assert descriptions.state_of(run(), 100 * SECOND_NS, 131 * SECOND_NS) == "stale"
    assert descriptions.state_of(run(last_s=100), None, 131 * SECOND_NS) == "stale"
    assert descriptions.state_of(run(ended=True), 100 * SECOND_NS, 101 * SECOND_NS) == "ended"


def test_a_stale_run_says_that_it_has_not_ended() -> None:
    sentence = descriptions.describe_state("stale", 0, 190 * SECOND_NS)
    assert sentence == "last turn 3 min ago; the run has not said that it ended"
    assert descriptions.describe_state("live", 0, 2 * SECOND_NS) == "last turn 2 s ago"
    assert descriptions.describe_state("ended", 0, 190 * SECOND_NS, UTC) == "last turn 1 Jan 00:00, 3 min ago"


def test_the_time_of_day_is_that_of_the_zone() -> None:
    assert descriptions.time_of_day(3_661 * SECOND_NS) == "01:01:01"
    assert descriptions.time_of_day(3_661 * SECOND_NS, timezone(timedelta(hours=2))) == "03:01:01"


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
    within = {"p50": (1.5e6, 2.5e6)}
    estimated = ClientServiceDelta(300, 0, 0, 2e6, -3e6, 3e6, approximate=True, estimated_within=within)
    assert (
        descriptions.describe_client_service_delta(estimated)
        == "p50 ≈ +2.0 ms (95 % +1.5 ms to +2.5 ms) · p99 ≈ −3.0 ms over 300 turns"
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
    assert descriptions.clock_of(one_day)(5 * hour * SECOND_NS) == "05:00:00"
    assert descriptions.clock_of(several)(29 * hour * SECOND_NS) == "2 Jan 05:00:00"
    # The day is the reader's: where it ends there, the run has two.
    assert descriptions.clock_of(one_day, ZoneInfo("Asia/Kolkata"))(20 * hour * SECOND_NS) == "2 Jan 01:30:00"


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
    described = descriptions.describe_speech_bounds
    assert described(SpeechBoundErrors()) == DASH
    assert described(SpeechBoundErrors(9, 9)) == "± not known for 9 of 9 turns"
    worst = described(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 20e6, 80_000_000))
    assert worst == "end ± 20.0 ms · worst ± 80.0 ms"
    assert described(SpeechBoundErrors(9, 0, 5e6, 6_000_000, 0.0, 0)) == "end exact"
    assert described(SpeechBoundErrors(9, 2, None, None, 2e7, 80_000_000)).endswith("· ± not known for 2 of 9 turns")
