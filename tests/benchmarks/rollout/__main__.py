"""Error rates of the rollout gate on turns that are like those of real services, compared with other rules.

`python -m tests.benchmarks.rollout` simulates 400 rollouts of each row of `scenarios`, up to 5,000 turns of the
candidate, and prints how many were rolled back and promoted, with 95 % intervals (Wilson), the median of the turns that
took, and what must hold. Exits with 1 if a row misses that. `--rows TEXT` simulates those with the text in their names.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks.rollout import peers
from tests.benchmarks.rollout.figures import Row, described
from tests.benchmarks.rollout.scenarios import Scenario, scenarios
from tests.benchmarks.rollout.simulate import Simulated, simulated

_AT_ONCE: Final = 20  # rollouts of a task


@dataclass(frozen=True)
class _Task:
    """Some of a row's rollouts; `rule` None is the gate's own."""

    scenario: Scenario
    rule: str | None
    first: int
    rollouts: int
    seed: int

    def run(self) -> list[Simulated]:
        """Simulate them."""
        one: Callable[[Scenario, int, int], Simulated]
        one = simulated if self.rule is None else partial(peers.by_rule, self.rule)
        return [one(self.scenario, self.first + number, self.seed) for number in range(self.rollouts)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, print the table, and say whether every row keeps its limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="append", help="part of the names of rows; may be given again (default: all)")
    parser.add_argument("--rollouts", type=int, default=400, help="of each row (default: 400)")
    parser.add_argument("--seed", type=int, default=35)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--no-peers", action="store_true", help="leave the other rules out")
    options = parser.parse_args(arguments)
    chosen = _chosen(options.rows, with_peers=not options.no_peers)
    if not chosen or options.rollouts < 1 or options.jobs < 1:
        parser.error("no row has such a name, or a number is below 1; --rows '' has them all")
    began = time.monotonic()
    rows = _simulated(chosen, options.rollouts, options.seed, options.jobs)
    Console(width=None if sys.stdout.isatty() else 200).print(_table(rows))
    missed = [row for row in rows if row.missed()]
    took = time.monotonic() - began
    print(f"{len(rows) - len(missed)} of {len(rows)} rows keep their limits; {took:.0f} s.")
    if options.json:
        documents = [row.document() for row in rows]
        result = {"seed": options.seed, "rollouts": options.rollouts, "seconds": round(took), "rows": documents}
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 1 if missed else 0


def _chosen(parts: Sequence[str] | None, *, with_peers: bool) -> list[tuple[Scenario, str | None]]:
    pairs: list[tuple[Scenario, str | None]] = [(scenario, None) for scenario in scenarios()]
    if with_peers:
        pairs += [(scenario, rule) for scenario in peers.COMPARED for rule in (None, *peers.RULES)]
    return [pair for pair in pairs if parts is None or any(part in _named(*pair).name for part in parts)]


def _named(scenario: Scenario, rule: str | None) -> Scenario:
    return scenario if rule is None else replace(scenario, name=f"{scenario.name} {rule}")


def _simulated(chosen: Sequence[tuple[Scenario, str | None]], rollouts: int, seed: int, jobs: int) -> list[Row]:
    """Every row, in parallel; the rollouts are the same ones whatever the number of processes."""
    tasks: list[_Task] = []
    for scenario, rule in chosen:
        number = max(1, round(rollouts * scenario.rollouts))
        starts = range(0, number, _AT_ONCE)
        tasks += [_Task(scenario, rule, first, min(_AT_ONCE, number - first), seed) for first in starts]
    ended: dict[str, list[Simulated]] = {_named(*pair).name: [] for pair in chosen}
    with Progress(console=Console(stderr=True)) as progress:
        shown = progress.add_task("rollouts", total=sum(task.rollouts for task in tasks))
        for task, batch in zip(tasks, _run(tasks, jobs), strict=True):
            name = _named(task.scenario, task.rule).name
            ended[name] += batch
            progress.update(shown, advance=len(batch), description=name)
    return [Row(_named(*pair), tuple(ended[_named(*pair).name])) for pair in chosen]


def _run(tasks: Sequence[_Task], jobs: int) -> Iterator[list[Simulated]]:
    if jobs == 1:
        yield from map(_Task.run, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_Task.run, tasks)


def _table(rows: Sequence[Row]) -> Table:
    table = Table("Row", "Rolled back", "Promoted", "Turns", "By", "Must", "", title="Simulated rollouts")
    for row in rows:
        missed = row.missed()
        turns = (
            row.figure("turns to roll back") if row.rolled_back.value > row.promoted.value else row.median_of_promoted()
        )
        must = "\n".join(
            f"{described(limit)}{f' (is {row.figure(limit.figure):.3g})' if limit in missed else ''}"
            for limit in row.scenario.limits
        )
        verdict = "" if not row.scenario.limits else "[red]FAIL" if missed else "pass"
        figures = (str(row.rolled_back), str(row.promoted), f"{turns:,.0f}", row.by())
        table.add_row(row.scenario.name, *figures, must, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
