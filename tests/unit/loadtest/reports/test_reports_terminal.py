"""Terminal output at the end of a run and during it: by content, at 80 and 120 columns, without color."""

import re
from dataclasses import replace
from typing import Any

import pytest

from loadtest.reports import tables
from loadtest.reports.calibration_citing import Citation
from loadtest.reports.rows import behavior_rows, run_rows
from loadtest.reports.run_info import ProcessShare, RunCorpus, RunProfile, SpoolInfo
from loadtest.reports.terminal import final_view
from telemetry.model.bounds import MeasuredWithin
from telemetry.objectives.slo import default_objectives, not_judged
from telemetry.store.answers import (
    Behavior,
    Beside,
    CacheStats,
    ClientServiceDelta,
    FailureCount,
    PhaseSummary,
    RemarkCount,
    Retries,
    ShareByName,
    SpeechBoundErrors,
    Summary,
    TelemetryLoss,
    TurnCounts,
)
from tests.unit.loadtest.reports import reports_material as material
from tests.unit.loadtest.reports.reports_material import row, words

MS = material.MS


def final(run=None, summary=None, verdicts=None, width: int = 120, color: bool = False, objectives=()) -> str:
    verdicts = [material.verdict(True)] if verdicts is None else verdicts
    view = final_view(material.report(run, summary, verdicts, objectives=objectives))
    return material.printed(view, width, color=color)


@pytest.mark.parametrize("width", [80, 120])
def test_the_first_words_are_the_sentence_of_the_verdict(width: int) -> None:
    first, _, _ = final(width=width).partition("─")
    assert words(first).startswith(f"{material.VERDICT.sentence} "), "before anything else, and whole"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("color", [False, True], ids=["plain", "color"])
def test_report_fits_width_and_is_the_same_with_color(width: int, color: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", final(width=width, color=color))
    assert max(len(line) for line in text.splitlines()) <= width
    output = words(text)
    assert "✔ met" in output
    assert words(material.verdict(True).sentence) in output
    assert "612 ms" in output
    assert "…" not in output, "nothing is cut off"


def test_the_verdict_comes_first_and_the_stages_next() -> None:
    text = final()
    places = [
        text.index(part) for part in ("Verdict", "met", "exit 0", "Stages", "What happened", "Cohorts", "How well")
    ]
    assert places == sorted(places)


def test_objectives_are_met_missed_or_undecided_with_numbers() -> None:
    output = words(final(verdicts=[material.verdict(True), material.verdict(False), material.verdict(None)]))
    assert "176 of 181 turns good · error budget left 44.8 %" in output
    assert "✘ missed" in output
    assert "160 of 181 turns good · error budget overspent" in output
    assert "? undecided" in output
    for met in (True, False, None):
        assert material.verdict(met).sentence in output
    title = "“The caller hears an answer in time”"
    assert f"exit 3 objective missed: {title} missed; {title} undecided" in output


def test_objectives_have_display_names_and_missed_come_first() -> None:
    objective = replace(default_objectives()[0], name=material.verdict(True).name)
    text = final(verdicts=[material.verdict(True), material.verdict(False)], objectives=[objective])
    assert row(text, "✘ missed") == ["✘ missed", "The caller hears an answer in time"]
    assert text.index("✘ missed") < text.index("✔ met")
    assert "p99 is bad: 1,204 ms (the slowest 1 % of the turns); p95 is within: 800 ms" in words(text)


def test_a_run_that_is_not_judged_shows_no_sign_of_success() -> None:
    objective = replace(default_objectives()[0], name=material.verdict(True).name)
    verdicts = not_judged([objective], [material.verdict(True)], "the generator was the limit")
    text = final(verdicts=verdicts, objectives=[objective])
    assert row(text, "– not judged") == ["– not judged", "The caller hears an answer in time"]
    for claim in ("✔", "error budget", "is bad", " met "):
        assert claim not in text


def test_names_of_others_are_no_markup() -> None:
    routes = ShareByName(total=1, reported=1, counts={"[red]cloud[/red]": 1})
    assert "[red]cloud[/red] 1" in final(summary=material.summary(routes=routes))


def test_stages_have_their_percentiles_or_the_reason_why_not() -> None:
    text = final()
    assert row(text, "Voice to voice") == ["Voice to voice", "612 ms", "800 ms", "1,204 ms", "1,300 ms", "180"]
    assert row(text, "ASR final") == ["ASR final", "310 ms", "402 ms", "too few", "433 ms", "80"]
    assert row(text, "ASR first partial") == ["ASR first partial", "not observable", "–", "–", "–", "0"]
    assert row(text, "LLM first token") == ["LLM first token", "not measured", "–", "–", "–", "0"]
    assert row(text, "Tokens per second") == ["Tokens per second", "48.2/s", "51.0/s", "52.0/s", "53.0/s", "180"]
    assert row(text, "Word error rate") == ["Word error rate", "0 %", "12.5 %", "25 %", "50 %", "180"]
    assert "Barge-in stop" not in text, "what a run does not exercise is not listed"
    assert "ASR first partial: partials come on a fixed cadence" in text
    assert "a p95 needs 20 values, a p99 needs 100" in text


def with_bounds(within: MeasuredWithin, **changes: MeasuredWithin) -> Summary:
    answer = material.summary(speech_bounds=SpeechBoundErrors(180, 3, 1e7, 40_000_000, 2e7, 80_000_000))
    metrics = {
        name: replace(answer.metrics[name], measured_within=bounds)
        for name, bounds in {"voice_to_voice": within, **changes}.items()
    }
    return replace(answer, metrics={**answer.metrics, **metrics})


def test_line_counts_turns_with_unknown_bounds() -> None:
    none = MeasuredWithin(None, None, None, None, 180)
    text = words(final(summary=with_bounds(none), width=80))
    assert "measurement bounds not known for 180 of 180 turns" in text
    assert "measured within" not in text
    several = with_bounds(none, asr_final_latency=MeasuredWithin(None, None, None, None, 12))
    expected = "measurement bounds not known: Voice to voice 180 of 180 turns, ASR final 12 of 80 turns"
    assert expected in words(final(summary=several, width=80))
    # What a service reports of itself states no bounds at all; what is counted, and exact, does not matter to that.
    exact = MeasuredWithin((0.0, 0.0), (0.125, 0.125), (0.25, 0.25), (0.5, 0.5))
    every = with_bounds(none, asr_final_latency=MeasuredWithin(None, None, None, None, 80), wer=exact)
    assert "measurement bounds not known for any turn" in words(final(summary=every, width=80))


def test_cohorts_and_phases_have_their_own_bounds() -> None:
    whole = material.summary()
    heard = replace(whole.metrics["voice_to_voice"], measured_within=MeasuredWithin((5.9e8, 6.12e8), None, None, None))
    cohort = replace(whole.cohorts[0], metrics={"voice_to_voice": heard})
    phases = tuple(
        PhaseSummary(name, "hold", 1, whole.turns, {"voice_to_voice": heard}, None) for name in ("[up]", "steady")
    )
    text = words(final(summary=replace(whole, cohorts=(cohort, whole.cohorts[1]), phases=phases)))
    for name in ("control", "[up]", "steady"):
        assert f"{name}: p50 612 ms (measured within 590–612)" in text
    assert "streaming: " not in text


def test_the_share_of_an_objective_has_its_sampling_interval() -> None:
    text = words(final(verdicts=[replace(material.verdict(True), sampling=(0.921, 0.98))], width=80))
    assert "95 % sampling interval by call 92.1 % to 98 %, which does not change the verdict" in text


def test_bounds_of_speech_that_is_exact_say_so() -> None:
    exact = SpeechBoundErrors(180, 0, 0.0, 0, 0.0, 0)
    assert "end of speech exact; start of speech exact" in words(final(summary=material.summary(speech_bounds=exact)))
    assert "speech bounds no turn was spoken" in words(final())


def test_unreported_shares_are_shown() -> None:
    silent = material.summary(cache=CacheStats(0, 0, {}), fallback=ShareByName(182, 0, {}))
    assert words(final(summary=silent)).count("not reported by the endpoint") == 2


def test_unknown_and_duplicate_events_are_reported_if_any() -> None:
    text = words(final(summary=replace(material.summary(), beside=Beside(7, 2, 1, ("vendor.hello",)))))
    assert "7 events that the protocol does not know (vendor.hello)" in text
    assert "2 events came twice; each was heard once" in text
    assert "on 1 turn the service stated latencies of its own" in text
    assert not any(phrase in final() for phrase in ("does not know", "came twice", "latencies of its own"))


def test_cohorts_are_in_one_table_and_one_alone_is_not_compared() -> None:
    text = final()
    assert row(text, "control") == ["control", "91", "612 ms", "812 ms", "too few", "33.3 %", "0 %"]
    assert row(text, "streaming") == ["streaming", "91", "487 ms", "687 ms", "too few", "33.3 %", "0 %"]
    assert "Cohorts" not in final(summary=material.summary(cohorts=(material.cohort("control", 1),)))


def test_estimates_of_many_turns_are_marked() -> None:
    exact = material.summary()
    estimated = replace(
        exact,
        client_service_delta=replace(exact.client_service_delta, approximate=True),
        speech_bounds=SpeechBoundErrors(70_000, 0, 3e6, 5_000_000, 4e6, 6_000_000, approximate=True),
        generator=replace(exact.generator, approximate=frozenset({"frame_lateness_p99_ns"})),
    )
    output = words(final(summary=estimated))
    assert "p50 ≈ 0.4 ms, p99 ≈ 1.2 ms, largest 1.9 ms" in output
    assert "end of speech known to ≈ ±4.0 ms (median), ±6.0 ms (worst)" in output
    assert re.search(r"pacing p99 ≈ \d", output)


def test_calibration_is_cited_if_there_is_one() -> None:
    cited = Citation("beyond", "beyond the calibrated ceiling of 400 callers (2026-11-21)", date="2026-11-21")
    assert "calibration beyond the calibrated ceiling of 400 callers" in words(
        final(run=material.run_info(calibration=cited))
    )
    assert "calibrat" not in words(final())


def test_evidence_that_is_missing_is_reported_to_be_missing() -> None:
    output = words(final(summary=material.empty_summary(), verdicts=[]))
    assert "no turn was measured" in output
    assert "not known: the service reported none of these turns" in output
    assert "0 of an unknown number received" in output
    assert "stamped by: not reported" in output
    assert "pacing p99 not reported" in output
    assert "socket backlog not reported" in output
    assert "held up" not in output


def test_the_shares_of_several_processes_are_shown() -> None:
    used = (0.41, 0.38, None)
    shares = tuple(ProcessShare(worker=f"{n} of 3", turns=100 + n, cpu_ratio=ratio) for n, ratio in enumerate(used))
    output = words(final(run=material.run_info(processes=3, shares=shares)))
    assert "processes all 3 ended as they should; 100 to 102 turns each, ≤ 38 % to 41 % of a core in 3 of 4 s" in output
    assert "turns each" not in words(final(run=material.run_info(processes=3)))
    alike = words(final(run=material.run_info(processes=2, shares=shares[:1] * 2)))
    assert "all 2 ended as they should; 100 turns each, ≤ 41 % of a core in 3 of 4 s" in alike


def test_lost_telemetry_and_invalid_turns_are_not_hidden() -> None:
    limited = material.summary(
        turns=TurnCounts(total=200, ok=190, invalid=10, by_outcome={"ok": 190, "invalid": 10}),
        loss=TelemetryLoss(processes=2, emitted=210, received=200, missing=10),
        client_service_delta=ClientServiceDelta(12, 188, 0, 0.4 * MS, None, 0.9 * MS),
    )
    output = words(
        final(
            run=material.run_info(spooled=SpoolInfo(turns=3, spans=1_012, waiting_turns=1, waiting_spans=5)),
            summary=limited,
        )
    )
    assert "10 of 200 turns" in output
    assert (
        "200 of 210 received, 10 lost, 3 turns (1,012 spans) delivered from the spool after the run, "
        "1 turn (5 spans) waiting in the spool"
    ) in output
    assert "on 12 turns: p50 0.4 ms, p99 too few, largest 0.9 ms" in output


def test_report_says_that_a_lost_process_may_have_had_more() -> None:
    more = "182 of 182 received (a lost process may have had more)"
    assert more in words(final(run=material.run_info(**material.LIMITED)))
    assert more not in words(final())


def test_remarks_on_answers_are_below_failures() -> None:
    remark = "the endpoint cut its reply short (content_filter)"
    output = words(final(summary=material.summary(remarks=(RemarkCount(remark, 7),))))
    assert f"7 {remark}" in output
    assert "remarked" not in words(final(summary=material.summary()))


def test_the_run_is_named_with_what_was_replayed_and_no_secret() -> None:
    run = material.run_info(
        target="wss://me:secret@voice.example/v1", store="runs/7", dashboard_url="http://127.0.0.1:1"
    )
    text = final(run=run)
    output = words(text)
    assert "known-text: generated speech, 48 utterances (CC0-1.0) · noise babble · 10 dB SNR" in output
    loud = material.run_info(profile=RunProfile(noise="babble", snr_db=-5.0))
    assert "noise babble · −5 dB SNR" in words(final(run=loud))
    assert "run-7 · openai-realtime · 8 callers · seed 11" in output
    assert "dashboard http://127.0.0.1:1" in output
    assert "secret" not in text


def test_word_errors_are_shown_by_profile_if_there_are_several() -> None:
    text = words(final())
    assert "What the endpoint understood" in text
    assert "babble 5 dB, telephone 50 % too few" in text
    conditions = material.summary().wer_by_condition
    loud = material.summary(wer_by_condition=(conditions[0], replace(conditions[1], snr_asked_db=-5.0)))
    assert "babble −5 dB, telephone" in words(final(summary=loud))
    alone = material.summary(wer_by_condition=material.summary().wer_by_condition[:1])
    assert "What the endpoint understood" not in final(summary=alone), "one profile is in the stages already"


def test_rate_in_characters_is_called_character_error_rate() -> None:
    text = words(final())
    assert "Word error rate 0 %" in text
    assert "profile wer 95 % interval words turns" in text
    conditions = material.summary().wer_by_condition
    thai = tuple(replace(condition, characters=condition.words) for condition in conditions)
    text = words(final(summary=material.summary(wer_by_condition=thai)))
    assert "Character error rate 0 %" in text
    assert "profile cer 95 % interval characters turns" in text
    mixed = (conditions[0], thai[1])
    text = words(final(summary=material.summary(wer_by_condition=mixed)))
    assert "Word and character error rate 0 %" in text
    assert "profile wer and cer 95 % interval words and characters turns" in text


def _phases() -> tuple[PhaseSummary, ...]:
    def phase(name: str, kind: str, at: int, ok: int, n: int, p50_ms: float) -> PhaseSummary:
        return PhaseSummary(
            phase=name,
            kind=kind,
            first_unix_ns=at,
            turns=TurnCounts(total=n + 1, ok=ok, invalid=1, by_outcome={"ok": ok, "invalid": 1}),
            metrics={"voice_to_voice": material.stats("voice_to_voice", n, p50=p50_ms * MS, max=p50_ms * MS)},
        )

    return (phase("few", "hold", 1, 15, 15, 400.0), phase("up", "ramp", 2, 9, 18, 900.0))


def test_every_phase_has_a_row_and_what_a_ramp_took_is_reported() -> None:
    text = final(summary=material.summary(phases=_phases()), width=80)
    assert row(text, "few") == ["few", "16", "1", "100 %", "400 ms", "too few", "too few"]
    assert row(text, "up") == ["up (ramp)", "19", "1", "50 %", "900 ms", "too few", "too few"]
    assert "ramps 19 turns began during a ramp: shown apart under phases, in no figure above" in words(text)


def test_one_phase_alone_needs_no_table() -> None:
    text = final(summary=material.summary(phases=_phases()[:1]))
    assert "Phases" not in text
    assert "ramp" not in text


def test_run_with_only_a_ramp_is_reported() -> None:
    whole = replace(material.empty_summary(), phases=_phases()[1:])
    output = words(final(summary=whole, verdicts=[]))
    assert "nothing is shown: all 19 turns began during a ramp" in output
    assert "let the callers come faster" in output


def _with_unanswered(n: int, unanswered: int) -> Summary:
    made = material.summary()
    heard = replace(made.metrics["voice_to_voice"], n=n, eligible=n + unanswered, unanswered=unanswered)
    return replace(made, metrics={**made.metrics, "voice_to_voice": heard})


def test_percentile_of_answered_is_never_shown_as_that_of_all() -> None:
    text = final(summary=_with_unanswered(140, 41))
    assert "Voice to voice" in text
    assert "800 ms*" in text
    assert "140 of 181" in text
    assert tables.ANSWERED_NOTE in text
    assert "41 of 181 turns went unanswered" in text
    assert "*" not in final(summary=_with_unanswered(180, 0))


@pytest.mark.parametrize("width", [80, 120])
def test_why_turns_failed_is_reported_by_cause(width: int) -> None:
    failures = (
        FailureCount("http_status", "429", 15, "the endpoint refused the connection with HTTP 429 (Too Many Requests)"),
        FailureCount("no_reply", None, 3, "no answer within 10 s"),
        FailureCount("endpoint_error", "[bold red]x", 1, "[/nothing] of this is markup"),
        FailureCount(None, None, 1, None),
    )
    retries = Retries(asked=15, asked_worst_ns=7_000_000_000, waits=12, waited_ns=84_000_000_000)
    text = final(summary=replace(material.summary(), failures=failures, retries=retries), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    output = words(text)
    assert "Why turns failed" in output
    assert row(text, "   15")[:2] == ["15", "HTTP status 429"]
    assert "no reply" in output
    assert "[bold red]x" in output
    assert "[/nothing] of this is markup" in output
    assert "not recorded" in output
    assert "asked 15 times to call again later (after 7 s at most)" in output
    assert "callers waited before 12 calls, 84 s in all" in output
    assert "Why turns failed" not in final()


@pytest.mark.parametrize(
    ("stated", "phrase"),
    [
        ({"edges": "exact", "fade_ms": 5.0, "recorded_ends": 0}, ", exact edges (5 ms fade)"),
        ({"edges": "exact", "fade_ms": 5.0}, ", exact edges (5 ms fade)"),
        ({"edges": "exact", "fade_ms": 2.5, "recorded_ends": 3}, ", exact edges (2.5 ms fade, 3 as recorded)"),
        ({"edges": "recorded"}, ", recorded edges"),
        ({"edges": "exact"}, ", exact edges"),
        ({}, ""),
    ],
)
def test_the_corpus_row_states_the_edges_once(stated: dict[str, Any], phrase: str) -> None:
    corpus = RunCorpus(name="mine", kind="generated", utterances=48, licenses=("CC0-1.0",), **stated)
    rows = dict(run_rows(material.run_info(corpus=corpus), material.summary()))
    assert rows["corpus"] == f"mine: generated speech, 48 utterances (CC0-1.0){phrase} · noise babble · 10 dB SNR"


def test_unreported_intent_and_missing_stop_are_not_zero() -> None:
    output = dict(behavior_rows(material.summary(behavior=Behavior(barge_ins=1, intents_expected=4))))
    assert output["intent"] == "not reported by the endpoint"
    assert output["barge-in"] == "1 interruption, 0 % answered after it, no stop was measured"
    assert behavior_rows(material.summary(turns=TurnCounts(10, 10, 0, {"ok": 10}))) == []


def test_run_of_one_caller_and_utterance_is_singular() -> None:
    corpus = RunCorpus(name="mine", kind="generated", utterances=1)
    rows = dict(run_rows(material.run_info(corpus=corpus, users=1), material.summary()))
    assert " · 1 caller · " in rows["run"]
    assert "mine: generated speech, 1 utterance · " in rows["corpus"]
