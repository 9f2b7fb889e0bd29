"""The stall bench: does the true voice-to-voice lie within the stated interval, whatever holds the generator up?

python -m tests.benchmarks.stalls --out /tmp/stall-bench --json stalls.json

Starts `voiceprobe run` against two endpoints, `loadtest.targets.ground_truth` and one that shares no code with
voiceprobe (`endpoint.py`), and holds the generator up in several ways while the callers talk. Exit code 0: every goal
of issue 34 is met over all turns, 1: one is missed. `--judge FOLDER` judges runs that are there.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.stalls.comparison import MS, Compared, Comparison, missed_goals
from tests.benchmarks.stalls.runs import ENDPOINTS, MODES, Load, RunFolder, carry_out, folders_in, pooled


def _ms(value_ns: float | None) -> str:
    return "–" if value_ns is None else f"{value_ns / MS:.3f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"


def _row(name: str, result: Comparison) -> tuple[str, ...]:
    worst = result.misses[0].miss_ns if result.misses else None
    return (
        name,
        str(result.turns),
        str(len(result.compared)),
        str(len(result.misses)),
        _percent(result.within),
        _ms(worst),
        _ms(result.quiet_width_ns),
        _percent(result.narrow),
        str(result.left_out.total()),
        str(result.invalid_turns),
        str(result.altered),
        str(len(result.invalid_without_stall)),
    )


def _one(found: Compared) -> dict[str, Any]:
    return {
        "call_id": found.turn.call_id,
        "turn_index": found.turn.turn_index,
        "response_id": found.turn.response_id,
        "outcome": found.turn.outcome,
        "true_ms": [value / MS for value in found.truth],
        "stated_ms": [value / MS for value in found.stated],
        "endpoint_held_up_ms": found.held_up_ns / MS,
        "stall_ms": found.stall_ns / MS,
        "miss_ms": found.miss_ns / MS,
    }


def _object(result: Comparison) -> dict[str, Any]:
    return {
        "turns": result.turns,
        "compared": len(result.compared),
        "missed": len(result.misses),
        "within": result.within,
        "median_width_without_stall_ms": None if result.quiet_width_ns is None else result.quiet_width_ns / MS,
        "without_stall": sum(not one.stall_ns for one in result.compared),
        "no_wider_than_stall_and_2_ms": result.narrow,
        "left_out": dict(result.left_out),
        "left_out_share": result.left_out_share,
        "invalid": result.invalid_turns,
        "invalid_by_reason": dict(result.invalid),
        "not_said_as_recorded": result.altered,
        "invalid_without_stall": [f"{turn.call_id} {turn.turn_index}" for turn in result.invalid_without_stall],
        "misses": [_one(one) for one in result.misses[:20]],
        "too_wide": [_one(one) for one in result.too_wide[:20]],
    }


def report(folders: list[RunFolder], least_turns: int, json_file: Path | None, *, is_shared_machine: bool) -> int:
    """Print and write what came of the runs; the exit code."""
    compared = {(one.endpoint, one.mode): pooled(()) for one in folders}
    for folder in folders:
        compared[folder.endpoint, folder.mode].add(folder.compared(is_shared_machine=is_shared_machine))
    total = pooled(compared.values())
    table = Table(title="The true voice-to-voice and the stated interval; ms")
    for name in ("endpoint, stalls", "turns", "compared", "missed", "within", "worst miss", "width, no stall"):
        table.add_column(name)
    for name in ("≤ stall + 2 ms", "left out", "invalid", "not said", "invalid without stall"):
        table.add_column(name)
    for (endpoint, mode), result in compared.items():
        table.add_row(*_row(f"{endpoint}, {mode}", result))
    table.add_row(*_row("all", total))
    console = Console(width=180)
    console.print(table)
    for reason, count in total.left_out.most_common():
        console.print(f"left out: {count} turns, {reason}", soft_wrap=True)
    missed = missed_goals(total, least_turns)
    for sentence in missed:
        console.print(f"missed: {sentence}", soft_wrap=True)
    if json_file is not None:
        runs = {f"{endpoint}, {mode}": _object(result) for (endpoint, mode), result in compared.items()}
        value = {"shared_machine": is_shared_machine, "goals_missed": missed, "all": _object(total), "runs": runs}
        json_file.write_text(json.dumps(value, indent=2))
    return 1 if missed else 0


def _chosen(given: str, known: list[str]) -> list[str]:
    names = given.split(",")
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{', '.join(unknown)}: not known; choose of {', '.join(known)}")
    return names


def main() -> None:
    """Run and judge, or judge alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the runs (default: a temporary one)")
    parser.add_argument("--judge", type=Path, help="judge the runs of this folder, start none")
    parser.add_argument("--endpoints", default=",".join(ENDPOINTS))
    parser.add_argument("--modes", default=",".join(MODES), help="; ".join(f"{a}: {b}" for a, b in MODES.items()))
    parser.add_argument("--turns", type=int, default=2000, help="turns to compare at the least, over all runs")
    parser.add_argument("--users", type=int, default=40)
    parser.add_argument("--run-time", type=int, default=20, help="seconds of each run")
    parser.add_argument("--lengths-ms", type=float, nargs=2, default=(5.0, 200.0), help="of a stall, at random between")
    parser.add_argument("--gap", type=float, default=0.6, help="mean seconds from one stall to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--shared-machine",
        action="store_true",
        help="other work keeps this machine busy: what the probe thread overslept is a stall in every run",
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    out = given.judge or given.out or Path(tempfile.mkdtemp(prefix="stalls-"))
    if given.judge is None:
        load = Load(given.users, given.run_time, tuple(given.lengths_ms), given.gap, given.seed)
        for endpoint in _chosen(given.endpoints, list(ENDPOINTS)):
            for mode in _chosen(given.modes, list(MODES)):
                print(f"{endpoint}, {mode}: {MODES[mode]} …", flush=True)
                carry_out(out / f"{endpoint}-{mode}-{given.seed}", endpoint, mode, load)
        print(f"the runs are in {out}")
    sys.exit(report(folders_in(out), given.turns, given.json, is_shared_machine=given.shared_machine))


if __name__ == "__main__":
    main()
