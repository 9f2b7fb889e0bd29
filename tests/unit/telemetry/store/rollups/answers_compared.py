"""Answers from roll-ups held against the same answers from turns, for tests."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective, default_objectives
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.reader import StoreReader
from telemetry.store.rollups.making import RollUpMaker
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, START_UNIX_NS, generator_points, run_span, synthetic_run

LIMITS = MergeLimits(fan_in=2, rows=400)
# Slots of so few turns that every segment has several families of them.
EVERY = RollUpMaker(fewest_rows=2, most_of_segment=99.0, slot_turns=4, value_turns=0)
NOW_NS = START_UNIX_NS + 10**15
# What may differ between figures that are exact and figures from roll-ups.
ESTIMATED = frozenset({"p50", "p95", "p99", "p50_ns", "p95_ns", "p99_ns", "difference_p50_ns", "difference_p99_ns",
                       "start_median_ns", "end_median_ns", "frame_lateness_p99_ns"})  # fmt: skip


def mixed_turns(seed: int, turns: int) -> list[Turn]:
    """A run in three phases with turns that differ in all that figures tell apart."""
    dice, other, limits = random.Random(seed), random.Random(seed + 1_000), random.Random(seed + 2_000)
    found: list[Turn] = []
    for place, turn in enumerate(synthetic_run(turns=turns, seed=seed).turns):
        phase = ("up", "steady", None)[min(2, place * 5 // (2 * turns))]
        changes: dict[str, object] = {
            "phase": phase,
            "phase_kind": {"up": "ramp", "steady": "hold"}.get(phase or ""),
            "speech_end_uncertainty_ns": dice.choice((None, 0, 15 * MS, 40 * MS)) if dice.random() < 0.3 else 5 * MS,
            "speech_start_uncertainty_ns": dice.choice((None, 3 * MS)),
        }
        if turn.source == "client":
            changes["noise_profile"] = other.choice(("clean", "street", "a\x1fb", None))
            changes["length_class"] = other.choice(("short", "long"))
            changes["channel_profile"] = other.choice(("g711", "", None))
            changes["route"] = other.choice(("cloud", "cache", None))
        if dice.random() < 0.15:
            changes["outcome"] = dice.choice(("interrupted", "cut", "error", "no_reply"))
            changes["hangup_perf_ns"] = turn.started_perf_ns + dice.choice((2_400, 2_900, 3_400)) * MS
            changes |= {"failure_kind": dice.choice((None, "tcp")), "failure_code": dice.choice(("503", None))}
            changes |= {"outcome_reason": f"reason {place}", "cut_by": dice.choice((None, "stop"))}
        elif other.random() < 0.1:
            changes["outcome_reason"] = f"cut short ({other.choice(('content_filter', 'length'))})"
        if dice.random() < 0.1:
            changes |= {"first_audio_perf_ns": None, "asr_final_perf_ns": None}
        if dice.random() < 0.05:
            changes |= {"withheld_metrics": ("voice_to_voice",), "withheld_reasons": ("not on this wire",)}
        if dice.random() < 0.05:
            changes |= {"cohort": None, "turn_kind": "silence", "silence_ns": 3 * MS, "reprompted": True}
        if dice.random() < 0.05:
            changes |= {"retry_after_ns": 5 * MS, "retry_wait_ns": 6 * MS, "unknown_events": 2}
            changes |= {"unknown_event_names": ("b", "a"), "connect_ns": None, "barge_in_at_ns": MS}
        if turn.source == "service" and dice.random() < 0.1:
            continue
        if turn.source == "service" and dice.random() < 0.1:
            changes |= {"response_id": None}
        if turn.source == "client" and dice.random() < 0.05:
            changes |= {"response_id": None}
        found.append(_prevented_or(msgspec.structs.replace(turn, **changes), limits))
    dice.shuffle(found)
    return found


def _prevented_or(turn: Turn, dice: random.Random) -> Turn:
    """Return some turns of callers as the load generator's own limits prevented them, and the others as they are."""
    if turn.source != "client" or dice.random() >= 0.05:
        return turn
    cause = {"failure_kind": "generator", "failure_code": dice.choice(("EMFILE", "EADDRNOTAVAIL"))}
    reason = {"outcome_reason": f"limit {turn.span_id}", "invalid_reasons": ("out of open files",)}
    return msgspec.structs.replace(turn, outcome="invalid", outcome_observed="error", **cause, **reason)


def stored(
    folder: Path, turns: Sequence[Turn], *, segments: int, compacted: int = 0, roll_up: RollUpMaker = EVERY
) -> Path:
    """A store of so many segments, of which those of the first `compacted` were merged by two, with roll-ups."""
    with StoreWriter(folder) as writer:
        size = -(-len(turns) // segments)
        for begin in range(0, len(turns), size):
            writer.append(Batch(turns[begin : begin + size]))
            if begin // size + 1 == compacted:
                compactor = Compactor(writer, limits=LIMITS, roll_up=roll_up)
                while compactor.run_once():
                    pass
                compactor.stop()
        spans = [run_span("run-1", START_UNIX_NS, "start"), run_span("run-1", START_UNIX_NS + 10**12, "end")]
        writer.append(Batch((), spans, generator_points("run-1", 30)))
    return folder


def compared(exact: Any, found: Any, path: str = "") -> None:
    """Assert that two answers agree, except that estimates may be a bucket off and have no measurement bounds."""
    if dataclasses.is_dataclass(exact) and not isinstance(exact, type):
        assert type(found) is type(exact), path
        for each in dataclasses.fields(exact):
            if each.name == "measured_within" and found.approximate:
                assert found.measured_within is None, path
            elif each.name != "approximate":
                compared(getattr(exact, each.name), getattr(found, each.name), f"{path}.{each.name}")
    elif isinstance(exact, dict):
        assert exact.keys() == found.keys(), path
        for key, value in exact.items():
            compared(value, found[key], f"{path}.{key}")
    elif isinstance(exact, tuple | list):
        assert len(exact) == len(found), (path, exact, found)
        for place, value in enumerate(exact):
            compared(value, found[place], f"{path}.{place}")
    elif path.rpartition(".")[2] in ESTIMATED:
        close(exact, found, path)
    elif isinstance(exact, float):
        assert found == pytest.approx(exact, rel=1e-9), path
    else:
        assert found == exact, path


def close(exact: Any, found: Any, path: str) -> None:
    if exact is None or found is None:
        assert exact is found, (path, exact, found)
    else:
        assert found == pytest.approx(exact, rel=0.011, abs=1.1 * MS), path


FILTERS = (
    Filter(),
    Filter(run_id="run-1"),
    Filter(run_id="run-1", cohort="streaming"),
    Filter(run_id="run-1", phase="steady"),
    Filter(run_id="run-1", phase="up"),
    Filter(run_id="other"),
    Filter(run_id="run-1", since_unix_ns=START_UNIX_NS + 60 * 10**9, until_unix_ns=START_UNIX_NS + 200 * 10**9),
)
# By values that a roll-up tells apart by their combination.
NARROWED = (
    Filter(run_id="run-1", noise_profile="street"),
    Filter(noise_profile="clean", length_class="short", channel_profile="g711", route="cache"),
    Filter(run_id="run-1", cohort="streaming", phase="steady", length_class="long"),
    Filter(run_id="run-1", route="nowhere"),
    Filter(
        run_id="run-1",
        noise_profile="street",
        since_unix_ns=START_UNIX_NS + 60 * 10**9,
        until_unix_ns=START_UNIX_NS + 200 * 10**9,
    ),
)
OBJECTIVES = [
    *default_objectives(),
    Objective("streaming", "metric", 0.9, "voice_to_voice", 500.0 * MS, cohort="streaming"),
    *(
        Objective(f"{name}-300", "metric", 0.9, name, 300.0 * MS)
        for name in (
            "endpointing",
            "llm_ttft",
            "barge_in_stop",
            "talk_over",
            "leading_silence",
            "time_to_first_sentence",
        )
    ),
    Objective("answered", "fallback", 0.9),
    Objective("cached", "cache", 0.3),
]


def answers_agree(folder: Path, filters: Sequence[Filter] = FILTERS) -> None:
    """Every answer of a page from roll-ups is that from turns."""
    with (
        StoreReader(folder, wall_clock_ns=lambda: NOW_NS) as exact,
        StoreReader(folder, wall_clock_ns=lambda: NOW_NS, fewest_rolled_up=-1) as rolled,
    ):
        for f in filters:
            summary = rolled.summary(f)
            compared(exact.summary(f), summary)
            if summary.turns.total:
                assert summary.metrics["voice_to_voice"].approximate
                assert summary.client_service_delta.approximate
                assert summary.speech_bounds.approximate
                assert summary.generator.approximate == {"frame_lateness_p99_ns"}
                assert all(stage.approximate for stage in rolled.stage_budget(f).values())
                assert not exact.summary(f).generator.approximate
            compared(exact.stage_budget(f), rolled.stage_budget(f))
            compared(exact.timeline(f, buckets=6), rolled.timeline(f, buckets=6))
            assert rolled.slowest(f, limit=7) == exact.slowest(f, limit=7)
            assert rolled.dimension_values(f) == exact.dimension_values(f)
            assert rolled.objective_counts(f, OBJECTIVES) == exact.objective_counts(f, OBJECTIVES)
        assert rolled.runs() == exact.runs()
