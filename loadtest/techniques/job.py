"""`voiceprobe techniques`: a row for each technique, from two assistants that hear the same audio in turn.

A finished row is a file in the folder; the same folder given again resumes with the rows that are missing.
"""

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.pairing.job import PairedRun, PairRequest, Variant, pair
from loadtest.pairing.view import paired_object, verdict_sentence
from loadtest.run import processes
from loadtest.run.json_file import write_json
from loadtest.run.request import CheckedRun, check
from loadtest.targets.assistant.real import environment
from loadtest.techniques.catalog import CLOUD_ANSWER_USD, COMMON, Technique
from loadtest.techniques.labels import judged, stale_answers
from telemetry.model.metrics import HEADLINE

READY_S: Final = 120.0
_NO_REDIS: Final = "not available here: redis-server is not installed (Debian: apt-get install redis-server)"
_ROW: Final = "row.json"


@dataclass(frozen=True, slots=True)
class TechniquesRequest:
    """The request for a table. `common` are the flags of both assistants in every row."""

    checked: CheckedRun
    techniques: tuple[Technique, ...]
    quantile: float
    smallest_ms: float
    most_pairs: int
    common: tuple[str, ...] = COMMON


def techniques(request: TechniquesRequest, console: Console) -> tuple[list[dict[str, Any]], bool]:
    """Measure what is missing; all rows, and whether somebody interrupted it. Raises ProcessFailedError, UsageError."""
    if request.common == COMMON:
        environment.prepare(lambda text: console.print(text, soft_wrap=True))
    folder = request.checked.request.out
    rows: list[dict[str, Any]] = []
    for number, technique in enumerate(request.techniques, 1):
        own = folder / technique.name
        row = _kept(own / _ROW, technique)
        if row is None:
            console.print(f"{number} of {len(request.techniques)}: {technique.title}", soft_wrap=True)
            missing = technique.missing
            if technique.needs_redis and shutil.which("redis-server") is None:
                missing = _NO_REDIS
            if missing:
                row = _described(technique, missing) | {"sentence": f"{technique.name}: {missing}."}
            else:
                run, memory_bytes = _measure(request, technique, own, console)
                if run.interrupted:
                    return rows, True
                row = row_object(technique, run, memory_bytes)
                write_json(own / _ROW, row)
        console.print(f"  {row['sentence']}", soft_wrap=True)
        rows.append(row)
    return rows, False


def _described(technique: Technique, missing: str | None) -> dict[str, Any]:
    return {
        "technique": technique.name,
        "title": technique.title,
        "flags": {"off": list(technique.off), "on": list(technique.on)},
        "callers": {**technique.spoken, "few_utterances": technique.few_utterances},
        "real": technique.real,
        "declared": technique.declared,
        "missing": missing,
    }


def row_object(technique: Technique, run: PairedRun, memory_bytes: Sequence[int | None]) -> dict[str, Any]:
    """A row as JSON: the technique, what was real, the paired comparison, the memory of both assistants, and what the
    labeled lists say of it."""
    comparison = paired_object(run)
    shares = [variant["routes"]["cloud"] for variant in comparison["variants"]]
    prices = [None if share is None else 1_000 * share * CLOUD_ANSWER_USD for share in shares]
    flags = dict(zip((name.removeprefix("--") for name in technique.on[::2]), technique.on[1::2], strict=True))
    return _described(technique, None) | {
        "sentence": verdict_sentence(run, 1),
        "hit_rate": comparison["variants"][1]["cache_hits"],
        "usd_per_1000_answers": {"off": prices[0], "on": prices[1]},
        "labels": judged(flags),
        "memory_bytes": list(memory_bytes),
        "stale_answers": [dict(zip(("stale", "hits"), stale_answers(run, place), strict=True)) for place in (0, 1)],
        "comparison": comparison,
    }


def exit_code(rows: list[dict[str, Any]], interrupted: bool) -> ExitCode:
    """The exit code: 6 where a row has too few pairs for its figure, 130 where somebody interrupted it."""
    if interrupted:
        return ExitCode.INTERRUPTED
    measured = [row["comparison"] for row in rows if "comparison" in row]
    decided = all(comparison["variants"][1]["decision"] != "undecided" for comparison in measured)
    return ExitCode.OK if decided else ExitCode.UNDECIDED


def _kept(file: Path, technique: Technique) -> dict[str, Any] | None:
    """The row of an earlier call that was measured in the same way."""
    try:
        row: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    described = _described(technique, None)
    return row if isinstance(row, dict) and described.items() <= row.items() else None


def _measure(
    request: TechniquesRequest, technique: Technique, folder: Path, console: Console
) -> tuple[PairedRun, list[int | None]]:
    with ExitStack() as stack:
        redis = ""
        if technique.needs_redis:
            redis = stack.enter_context(processes.redis_server(folder, "--save", "")) or ""
        started: list[processes.Child] = []
        for name, flags in (("off", technique.off), ("on", technique.on)):
            given = (*request.common, *(flag.format(redis=redis) for flag in flags))
            logs = folder / "logs"
            started.append(processes.start_assistant(stack, logs, "--port", "0", *given, name=f"assistant-{name}"))
        urls = [str(processes.wait_until_ready(child, READY_S)["url"]) for child in started]
        clips = technique.few_utterances or request.checked.request.settings.clips
        asked = replace(request.checked.request, out=folder).with_settings(
            **technique.spoken, host=urls[0], clips=clips
        )
        variants = tuple(
            Variant(f"{technique.name}-{name}", url) for name, url in zip(("off", "on"), urls, strict=True)
        )
        paired = PairRequest(
            check(asked),
            variants,
            request.checked.request.out / "store",
            metric=HEADLINE,
            quantile=request.quantile,
            smallest_ms=request.smallest_ms,
            most_pairs=request.most_pairs,
            hears_out=False,
        )
        return pair(paired, console), [memory_of(child.process.pid) for child in started]


def memory_of(pid: int) -> int | None:
    """The memory of a process and of all that it started; what several of them share is counted once (Linux: PSS).
    None where one of them cannot be read."""
    try:
        assistant = psutil.Process(pid)
        memory = [process.memory_full_info() for process in (assistant, *assistant.children(recursive=True))]
    except psutil.Error:
        return None
    return sum(getattr(used, "pss", used.uss) for used in memory)
