"""A run to report on, made by hand, of which each test changes the one fact that it is about; and printed reports."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType

from loadtest.exit_codes import ExitCode
from loadtest.reports.run_info import LostProcess, RunCorpus, RunInfo, RunProfile
from loadtest.reports.run_outcome import RunOutcome, run_outcome_for
from loadtest.reports.run_report import RunReport
from telemetry.model.metrics import METRIC_NAMES, METRICS
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.objective import Objective
from telemetry.objectives.run_verdict import RunVerdict, run_verdict
from telemetry.objectives.slo import Verdict, default_objectives, judge, not_judged
from telemetry.store.answers import (
    CacheStats,
    ClientServiceDelta,
    CohortSummary,
    Filter,
    Generator,
    MetricStats,
    ShareByName,
    Summary,
    TelemetryLoss,
    TurnCounts,
    WerByCondition,
)

MS = 1_000_000
VERDICT = RunVerdict("undecided", "Undecided: 9 of the 100 turns that the 99 % objective needs")


def run_info(**changes: Any) -> RunInfo:
    info = RunInfo(
        run_id="run-7",
        target="ws://127.0.0.1:8765/v1/realtime",
        protocol="openai-realtime",
        corpus=RunCorpus(name="known-text", kind="generated", utterances=48, licenses=("CC0-1.0",)),
        users=8,
        seed=11,
        started_unix_ns=1_795_000_000_000_000_000,
        run_time_s=60.0,
        elapsed_s=61.5,
        profile=RunProfile(noise="babble", snr_db=10.0),
        versions={"voiceprobe": "0.1.0", "locust": "2.47.0"},
        calls_started=40,
        calls_connected=40,
    )
    return replace(info, **changes)


def stats(name: str, n: int = 0, **values: Any) -> MetricStats:
    unit = METRICS[name].unit if name in METRICS else "ns"
    figures: dict[str, Any] = {"p50": None, "p95": None, "p99": None, "max": None} | values
    return MetricStats(name=name, unit=unit, n=n, **figures)


TURNS = TurnCounts(
    total=182,
    ok=178,
    invalid=1,
    by_outcome={"ok": 178, "no_reply": 2, "abandoned": 1, "invalid": 1},
    invalid_by_reason={"frame lateness": 1},
    not_as_recorded=1,
)


def summary(turns: TurnCounts | None = None, **changes: Any) -> Summary:
    metrics = {name: stats(name) for name in METRIC_NAMES}
    metrics["voice_to_voice"] = stats(
        "voice_to_voice", 180, p50=612.4 * MS, p95=799.6 * MS, p99=1_204.0 * MS, max=1_300.0 * MS
    )
    metrics["asr_final_latency"] = stats("asr_final_latency", 80, p50=310.0 * MS, p95=402.0 * MS, max=433.0 * MS)
    metrics["asr_partial_latency"] = stats("asr_partial_latency", withheld="partials come on a fixed cadence")
    metrics["tokens_per_s"] = stats("tokens_per_s", 180, p50=48.2, p95=51.0, p99=52.0, max=53.0)
    metrics["wer"] = stats("wer", 180, p50=0.0, p95=0.125, p99=0.25, max=0.5)
    whole = Summary(
        filter=Filter(run_id="run-7"),
        turns=turns or TURNS,
        metrics=metrics,
        cache=CacheStats(reported=180, hits=45, hits_by_tier={"central": 45}),
        fallback=ShareByName(total=181, reported=180, counts={"rule": 9}),
        routes=ShareByName(total=181, reported=180, counts={"cache": 45, "cloud": 126, "rule": 9}),
        cohorts=tuple(cohort(name, p50) for name, p50 in (("control", 612.0), ("streaming", 487.0))),
        client_service_delta=ClientServiceDelta(
            joined=179,
            client_only=2,
            service_only=0,
            difference_p50_ns=0.4 * MS,
            difference_p99_ns=1.2 * MS,
            difference_abs_max_ns=1.9 * MS,
        ),
        loss=TelemetryLoss(processes=2, emitted=182, received=182, missing=0),
        generator=Generator(
            processes=2,
            figures={
                "cpu_ratio_worst": 0.31,
                "loop_lag_worst_ns": 3 * MS,
                "frame_lateness_p99_ns": MS // 2,
                "frame_lateness_worst_ns": 2 * MS,
                "receive_lag_worst_ns": MS,
                "drift_worst_ns": 0,
                "start_late_worst_ns": None,
                "gc_pause_worst_ns": 4 * MS,
                "clock_offset_drift_worst_ns": 20_000,
                "unsent_worst_bytes": 2_600,
                "send_blocked_worst_ns": 0,
                "frames_held_up": 0,
            },
            receive_stamp="kernel",
            pacer="timerfd",
        ),
        newest_unix_ns=1_795_000_060_000_000_000,
        wer_by_condition=(
            WerByCondition("clean", None, "clean", 100, 800, 8, (0.004, 0.016)),
            WerByCondition("babble", 5.0, "telephone", 12, 96, 48, None),
        ),
    )
    return replace(whole, **changes)


def report(
    run: RunInfo | None = None,
    whole: Summary | None = None,
    verdicts: Sequence[Verdict] = (),
    *,
    objectives: Sequence[Objective] = (),
    code: ExitCode | None = None,
) -> RunReport:
    """A run with the outcome of its figures, or with another one."""
    run, whole = run or run_info(), whole or summary()
    outcome = run_outcome_for(run=run, summary=whole, verdicts=verdicts)
    if code not in (None, outcome.code):
        outcome = RunOutcome(code, "of another reason")
    return RunReport(
        run=run, summary=whole, objectives=objectives, verdicts=verdicts, run_outcome=outcome, verdict=VERDICT
    )


def cohort(name: str, p50_ms: float) -> CohortSummary:
    return CohortSummary(
        cohort=name,
        turns=TurnCounts(total=91, ok=89, invalid=0, by_outcome={"ok": 89, "no_reply": 2}),
        metrics={"voice_to_voice": stats("voice_to_voice", 90, p50=p50_ms * MS, p95=(p50_ms + 200) * MS)},
        cache=CacheStats(reported=90, hits=30, hits_by_tier={"central": 30}),
        fallback=ShareByName(total=91, reported=90, counts={}),
    )


def empty_summary() -> Summary:
    return summary(
        turns=TurnCounts(total=0, ok=0, invalid=0, by_outcome={}),
        metrics={name: stats(name) for name in METRIC_NAMES},
        cache=CacheStats(reported=0, hits=0, hits_by_tier={}),
        fallback=ShareByName(total=0, reported=0, counts={}),
        routes=ShareByName(total=0, reported=0, counts={}),
        cohorts=(),
        client_service_delta=ClientServiceDelta(0, 0, 0, None, None, None),
        loss=TelemetryLoss(processes=0, emitted=None, received=0, missing=0),
        generator=Generator(0),
        newest_unix_ns=None,
    )


def verdict(met: bool | None) -> Verdict:
    """A verdict as telemetry.objectives.slo makes them, from real counts: 176, 160 or 4 good turns against 95 %."""
    made = verdict_on(EligibleTurns(*{True: (176, 181), False: (160, 181), None: (4, 4)}[met]))
    assert made.met is met
    return made


def verdict_on(turns: EligibleTurns) -> Verdict:
    """The verdict on so many turns."""
    objective = next(objective for objective in default_objectives() if objective.metric == "voice_to_voice")
    (made,) = judge([replace(objective, name="voice-to-voice-800ms")], lambda _: turns)
    return made


OBJECTIVES = default_objectives()[:2]
# The processes of a run whose load generator was the limit.
LIMITED: dict[str, Any] = {"processes": 2, "lost": (LostProcess(worker="2 of 2", after_s=41.2),)}


def judged(
    good: Mapping[str, int] | int = 181, eligible: int = 181, whole: Summary | None = None, **run: Any
) -> RunReport:
    """A run that is judged by two objectives as its command does it; `good` may be other turns for each of them."""
    info, whole = run_info(**run), whole or summary()

    def count(objective: Objective) -> EligibleTurns:
        return EligibleTurns(good if isinstance(good, int) else good[objective.name], eligible)

    verdicts = judge(OBJECTIVES, count)
    outcome = run_outcome_for(run=info, summary=whole, verdicts=verdicts)
    limited = outcome.reason if outcome.code is ExitCode.GENERATOR_LIMITED else None
    if limited is not None:
        verdicts = not_judged(OBJECTIVES, verdicts, "the generator was the limit")
    return RunReport(
        run=info,
        summary=whole,
        objectives=OBJECTIVES,
        verdicts=verdicts,
        run_outcome=outcome,
        verdict=run_verdict(OBJECTIVES, verdicts, limited=limited),
    )


def printed(view: RenderableType, width: int = 120, *, color: bool = False) -> str:
    """Print it on a terminal of a width, and return what that shows."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, no_color=not color, legacy_windows=False)
    console.print(view)
    return out.getvalue()


def words(text: str) -> str:
    """The text on one line, a space between two words."""
    return re.sub(r"\s+", " ", text)


def row(text: str, first: str) -> list[str]:
    """The cells of the table row that begins with `first`."""
    line = next(line for line in text.splitlines() if line.startswith(first))
    return re.split(r"\s{2,}", line.strip())
