"""The parts of a summary that are no metric of a turn, from a roll-up: behavior, failures, agreement and others."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from telemetry.model.stats import enough
from telemetry.store.answers import (
    REPORTED_STAGES,
    Behavior,
    Filter,
    SpeechBoundErrors,
    StageStats,
    WerByCondition,
)
from telemetry.store.beside import Beside
from telemetry.store.causes import FailureCount, RemarkCount, Retries
from telemetry.store.client_service_delta import ClientServiceDelta
from telemetry.store.failures import MOST_REMARKS, folded
from telemetry.store.noticed import NAMED_EVENTS
from telemetry.store.queries import BEHAVIOR
from telemetry.store.rollups.buckets import DURATIONS, Ints
from telemetry.store.rollups.figures import RolledFigures
from telemetry.store.rollups.histogram import Histogram
from telemetry.store.rollups.pairs import STAGES
from telemetry.store.rollups.rollup import Rollup, union_of_ranges
from telemetry.store.rollups.statements import EVIDENCE_MOST, EVIDENCE_P99
from telemetry.store.wer_by_condition import WordErrorSums, wer_row

Row = dict[str, Any]


def behavior(figures: RolledFigures) -> Behavior:
    """As `queries.behavior`."""
    counts = figures.counts(judged=True)
    return Behavior(**{name: counts[name] for name in BEHAVIOR})


def beside(figures: RolledFigures) -> Beside:
    """As `noticed.beside`."""
    counts = figures.counts(judged=False)
    names = sorted({key.labels[0] or "" for key, _ in figures.of("unknown_name")})
    return Beside(
        unknown=counts["unknown"],
        duplicates=counts["duplicates"],
        turns_with_service_latency=counts["turns_with_service_latency"],
        unknown_names=tuple(names[:NAMED_EVENTS]),
    )


def retries(figures: RolledFigures) -> Retries:
    """As `failures.retries`."""
    counts, most = figures.counts(judged=False), largest(figures)
    worst = most.get("asked_worst_ns")
    return Retries(
        asked=counts["asked"],
        asked_worst_ns=None if worst is None else int(worst),
        waits=counts["waits"],
        waited_ns=counts["waited_ns"],
    )


def largest(figures: RolledFigures) -> dict[str, float]:
    """By name, the largest values that turns carry."""
    found: dict[str, float] = {}
    for key, cell in figures.of("most"):
        name = key.labels[0] or ""
        if cell.most is not None:
            found[name] = max(found.get(name, cell.most), cell.most)
    return found


def failures(figures: RolledFigures) -> tuple[FailureCount, ...]:
    """As `failures.failures`."""
    turns = Counter[tuple[str | None, str | None]]()
    examples: dict[tuple[str | None, str | None], tuple[int, str]] = {}
    for key, cell in figures.judged("failure"):
        cause = (key.labels[0], key.labels[1])
        turns[cause] += cell.n
        if cell.text is not None and cell.text_at is not None:
            examples[cause] = max(examples.get(cause, (cell.text_at, cell.text)), (cell.text_at, cell.text))

    def order(item: tuple[tuple[str | None, str | None], int]) -> tuple[Any, ...]:
        (kind, code), n = item
        return -n, kind is None, kind or "", code is not None, code or ""

    return folded(
        [
            FailureCount(kind, code, n, examples[kind, code][1] if (kind, code) in examples else None)
            for (kind, code), n in sorted(turns.items(), key=order)
        ]
    )


def remarks(figures: RolledFigures) -> tuple[RemarkCount, ...]:
    """As `failures.remarks`."""
    turns = Counter[str]()
    for key, cell in figures.judged("remark"):
        turns[key.labels[0] or ""] += cell.n
    commonest = sorted(turns.items(), key=lambda item: (-item[1], item[0]))
    return tuple(RemarkCount(remark, count) for remark, count in commonest[:MOST_REMARKS])


def speech_bounds(figures: RolledFigures) -> SpeechBoundErrors:
    """As `queries.speech_bounds`."""
    counts = figures.counts(judged=True)
    start, end = (figures.histogram("bound", name) for name in ("start", "end"))
    return SpeechBoundErrors(
        turns=counts["spoken"],
        turns_unknown=counts["spoken_unknown"],
        start_median_ns=_median(start),
        start_worst_ns=None if start.high is None else int(start.high),
        end_median_ns=_median(end),
        end_worst_ns=None if end.high is None else int(end.high),
        approximate=True,
    )


def _median(histogram: Histogram) -> float | None:
    found = histogram.quantiles(DURATIONS, (0.5,))
    return None if found is None else found[0]


def wer_by_condition(figures: RolledFigures) -> tuple[WerByCondition, ...]:
    """As `wer_by_condition.wer_by_condition`."""
    sums: defaultdict[tuple[str | None, ...], dict[str, float]] = defaultdict(dict)
    for key, cell in figures.judged("wer"):
        *condition, name = key.labels
        of_one = sums[tuple(condition)]
        of_one[name or ""] = of_one.get(name or "", 0.0) + cell.total
        if name == "words":
            of_one["turns"] = of_one.get("turns", 0) + cell.n

    def order(condition: tuple[str | None, ...]) -> tuple[Any, ...]:
        noise, snr, channel = condition
        by_name = ((name is None, name != "clean", name or "") for name in (channel, noise))
        return *by_name, snr is not None, -float(snr or 0.0)

    found: list[WerByCondition] = []
    for noise, snr, channel in sorted(sums, key=order):
        of_one = sums[noise, snr, channel]
        snr_db = None if snr is None else float(snr)
        condition = {"noise_profile": noise, "snr_asked_db": snr_db, "channel_profile": channel}
        word_sums = WordErrorSums(
            turns=int(of_one["turns"]),
            words=int(of_one["words"]),
            errors=int(of_one["errors"]),
            errors_squared=of_one["errors_squared"],
            errors_times_words=of_one["errors_times_words"],
            words_squared=of_one["words_squared"],
            characters=int(of_one.get("characters", 0)),
        )
        found.append(wer_row(condition, word_sums))
    return tuple(found)


def client_service_delta(figures: RolledFigures, everything: Rollup, f: Filter) -> ClientServiceDelta:
    """As `joined.client_service_delta`; the service's turns of the filter's run count however narrow the filter is."""
    counts = Counter[str]()
    of_run = 0
    for key, cell in figures.judged("pair"):
        counts[key.labels[0] or ""] += cell.n
    for key, cell in figures.of("pair"):
        if key.labels[0] == "matched" and (f.run_id is None or key.labels[1] == f.run_id):
            of_run += cell.n
    services = sum(
        cell.n
        for key, cell in everything.of("service")
        if f.run_id is None or key.run_id == f.run_id or (key.labels[0] == "unmatched" and key.labels[1] == f.run_id)
    )
    differences = figures.histogram("difference", "difference")
    quantiles = differences.quantiles(DURATIONS, (0.5, 0.99))
    ends = [abs(each) for each in (differences.low, differences.high) if each is not None]
    return ClientServiceDelta(
        joined=counts["joined"],
        client_only=counts["client_only"],
        service_only=services - of_run,
        difference_p50_ns=None if quantiles is None else quantiles[0],
        difference_p99_ns=None if quantiles is None else enough("p99", differences.n, quantiles[1]),
        difference_abs_max_ns=max(ends, default=None),
        approximate=True,
        uncorrected=counts["uncorrected"],
    )


def stage_budget(figures: RolledFigures) -> dict[str, StageStats]:
    """As `joined.stage_budget`."""
    found: dict[str, StageStats] = {}
    has_service = any(key.labels[0] == "joined" and cell.n for key, cell in figures.of("pair"))
    for stage in STAGES:
        histogram = figures.histogram("stage", stage)
        quantiles = histogram.quantiles(DURATIONS, (0.5, 0.95))
        if quantiles is not None:
            p50, p95 = quantiles
            p95, by_service = enough("p95", histogram.n, p95), has_service and stage in REPORTED_STAGES
            found[stage] = StageStats(stage, histogram.n, p50, p95, approximate=True, by_service=by_service)
    return found


def received(everything: Rollup, run_id: str | None) -> list[Row]:
    """Rows `process_id, received, holes`: how many numbers of a run's turns arrived, and how many in between did not.

    A process may outlive a run (an assistant does): its numbers are looked at from the run's first to the run's last,
    whichever run they are of.
    """
    of_process: defaultdict[str, list[Ints]] = defaultdict(list)
    mine: defaultdict[str, list[Ints]] = defaultdict(list)
    for (run, process_id), ranges in everything.sequences.items():
        of_process[process_id].append(ranges)
        if run_id is None or run == run_id:
            mine[process_id].append(ranges)
    return [arrived(name, union_of_ranges(parts), union_of_ranges(of_process[name])) for name, parts in mine.items()]


def arrived(process_id: str, own: Ints, every: Ints) -> Row:
    """A row of `received`: of the `own` numbers of a run, and of every one that the process gave."""
    first, last = int(own[0, 0]), int(own[-1, 1])
    lower = first if int(every[0, 0]) < first else 0
    return {"process_id": process_id, "received": _size(own), "holes": last + 1 - lower - _within(every, lower, last)}


def _size(ranges: Ints) -> int:
    return int((ranges[:, 1] - ranges[:, 0] + 1).sum())


def _within(ranges: Ints, first: int, last: int) -> int:
    """How many numbers from `first` to `last` the ranges hold."""
    cut = np.stack([np.maximum(ranges[:, 0], first), np.minimum(ranges[:, 1], last)], axis=1)
    return _size(cut[cut[:, 1] >= cut[:, 0]])


def evidence(figures: RolledFigures) -> Row:
    """As the row of the turns' evidence in `generator`."""
    most = largest(figures)
    row: Row = {"processes": len({key.labels[0] for key, _ in figures.of("process")}), "is_approximate": True}
    for name in EVIDENCE_MOST:
        row[f"v_{name}"], row[f"n_{name}"] = most.get(name), 0
    for name in EVIDENCE_P99:
        histogram = figures.histogram("evidence", name)
        quantiles = histogram.quantiles(DURATIONS, (0.99,))
        row[f"v_{name}"], row[f"n_{name}"] = None if quantiles is None else quantiles[0], histogram.n
    for name in ("receive_stamp", "pacer"):
        row[name] = ", ".join(_texts(figures, name)) or None
    return row


def _texts(figures: RolledFigures, part: str) -> Sequence[str]:
    return sorted({key.labels[0] or "" for key, _ in figures.of(part)})
