"""`voiceprobe techniques`: a row for each technique, from two assistants that hear the same audio in turn.

A finished row is a file in the folder; the same folder given again resumes with the rows that are missing.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.pairing.job import PairedRun, PairRequest, Variant, pair
from loadtest.pairing.view import paired_object, verdict_sentence
from loadtest.run import processes
from loadtest.run.json_file import write_json
from loadtest.run.request import CheckedRun, check
from loadtest.targets.assistant.real import environment
from loadtest.techniques.catalog import COMMON, Technique
from telemetry.model.metrics import HEADLINE

READY_S: Final = 120.0
_ROW: Final = "row.json"


@dataclass(frozen=True, slots=True)
class TechniquesRequest:
    """What to measure. `common` are the flags of both assistants in every row."""

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
            found = _measure(request, technique, own, console)
            if found.interrupted:
                return rows, True
            row = row_object(technique, found)
            write_json(own / _ROW, row)
        console.print(f"  {row['sentence']}", soft_wrap=True)
        rows.append(row)
    return rows, False


def row_object(technique: Technique, found: PairedRun) -> dict[str, Any]:
    """A row as JSON: the technique, what was real, and the paired comparison."""
    hits, known = found.share(1, lambda turn: turn["cache_hit"])
    return {
        "technique": technique.name,
        "title": technique.title,
        "flags": {"off": list(technique.off), "on": list(technique.on)},
        "real": technique.real,
        "declared": technique.declared,
        "sentence": verdict_sentence(found, 1),
        "hit_rate": hits / known if known else None,
        "comparison": paired_object(found),
    }


def exit_code(rows: list[dict[str, Any]], interrupted: bool) -> ExitCode:
    """The exit code: 6 where a row has too few pairs for its figure, 130 where somebody interrupted it."""
    if interrupted:
        return ExitCode.INTERRUPTED
    decided = all(each["comparison"]["variants"][1]["decision"] != "undecided" for each in rows)
    return ExitCode.OK if decided else ExitCode.UNDECIDED


def _kept(file: Path, technique: Technique) -> dict[str, Any] | None:
    """The row of an earlier call with the same flags."""
    try:
        row: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    flags = {"off": list(technique.off), "on": list(technique.on)}
    return row if isinstance(row, dict) and row.get("flags") == flags else None


def _measure(request: TechniquesRequest, technique: Technique, folder: Path, console: Console) -> PairedRun:
    with ExitStack() as stack:
        started = [
            _assistant((*request.common, *flags), folder / "logs", name, stack)
            for name, flags in (("off", technique.off), ("on", technique.on))
        ]
        urls = [str(processes.wait_until_ready(child, READY_S)["url"]) for child in started]
        asked = replace(request.checked.request, out=folder).with_settings(
            host=urls[0], clips=technique.few_utterances or request.checked.request.settings.clips
        )
        variants = (Variant("off", urls[0]), Variant("on", urls[1]))
        paired = PairRequest(
            check(asked),
            variants,
            metric=HEADLINE,
            quantile=request.quantile,
            smallest_ms=request.smallest_ms,
            most_pairs=request.most_pairs,
        )
        return pair(paired, console)


def _assistant(flags: tuple[str, ...], logs: Path, name: str, stack: ExitStack) -> processes.Child:
    child = processes.start(
        f"assistant-{name}",
        ["-m", "loadtest.targets.assistant", "--port", "0", *flags],
        logs,
        says_ready=True,
        bystander=False,
    )
    stack.enter_context(processes.ending(child))
    return child
