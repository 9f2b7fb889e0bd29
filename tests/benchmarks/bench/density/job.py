"""What each wire costs per frame, beside raw WebSocket frames, in rounds."""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.run.json_file import write_json
from tests.benchmarks.bench import machine
from tests.benchmarks.bench.density.options import DensityOptions
from tests.benchmarks.bench.density.report import WireCost, costs, markdown, print_costs
from tests.benchmarks.bench.density.windows import WindowCost
from tests.benchmarks.bench.density.wires import not_compared
from tests.benchmarks.bench.processes import Cores, finish, serving, start

LOG_WIDTH: Final = 132
# Beside its windows, a round starts a process and connects and ends the callers of each.
_STARTS_S: Final = 60.0
_WINDOW_ENDS_S: Final = 30.0


def bench_density(options: DensityOptions) -> None:
    """Compare the wires and write what was asked for.

    Raises OutputError for a file that cannot be written, and PartFailedError for a process that failed.
    """
    console = Console(stderr=options.markdown, width=None if sys.stdout.isatty() else LOG_WIDTH)
    info = machine.machine_info()
    console.print(f"{machine.sentence(info)}, load {info['load_before']}", soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="voiceprobe-bench-") as folder:
        rounds, spoken = _rounds(options, Path(folder), console)
    found = costs(rounds, spoken)
    print_costs(console, found)
    if left_out := not_compared():
        console.print(f"not compared: {', '.join(left_out)}", soft_wrap=True)
    if options.markdown:
        sys.stdout.write(markdown(found, machine.sentence(info)) + "\n")
    if options.json_file is not None:
        write_json(options.json_file, _as_json(options, info, found))


def _as_json(options: DensityOptions, info: dict[str, Any], found: list[WireCost]) -> dict[str, Any]:
    wires = [{**dataclasses.asdict(cost), "verdict": cost.verdict} for cost in found]
    return {"machine": info, "callers": options.sizes.callers, "rounds": options.rounds, "wires": wires}


def _rounds(
    options: DensityOptions, folder: Path, console: Console
) -> tuple[list[list[WindowCost]], dict[str, list[int]]]:
    """Measure all rounds; return the windows of each, and when the sink sent chunks of each wire."""
    log, record, cores, sizes = folder / "log", folder / "spoken", Cores.found(), options.sizes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: list[list[WindowCost]] = []
    windows = 3 * len(options.wires) + 2
    within_s = _STARTS_S + windows * (sizes.warm_up_s + sizes.window_s + _WINDOW_ENDS_S)
    sink_command = [sys.executable, "-m", "tests.benchmarks.bench.density.sink", str(record)]
    with (
        serving("sink", sink_command, cores.peer, log) as sink,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        numbers = [str(sizes.callers), *(str(round(each * 1e3)) for each in (sizes.warm_up_s, sizes.window_s))]
        sender = [
            sys.executable,
            "-m",
            "tests.benchmarks.bench.density.sender",
            json.dumps(sink.ready["ports"]),
            *numbers,
        ]
        for _ in progress.track(range(options.rounds), description="rounds"):
            part = start([*sender, *options.wires], cores.sender, log)
            found.append([WindowCost(**each) for each in finish("sender", part, within_s, log)["windows"]])
        sink.end()
    return found, json.loads(record.read_text())
