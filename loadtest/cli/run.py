"""`voiceprobe run`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import (
    Json,
    Out,
    Processes,
    Slo,
    Target,
    durations,
    flag,
    given_on_command_line,
    sends_callers,
    shared_by,
)
from loadtest.protocols import registry
from loadtest.run.forecast import USERS
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import METAVAR, Duration

EXAMPLE: Final = (
    "Example: voiceprobe run ws://127.0.0.1:8765/v1/realtime --users 20 --run-time 2m --noise babble --snr 10"
)


_STOP_TIMEOUT: Final = "30s"
_PROTOCOLS: Final = "\n\n".join(registry.lines())
HELP: Final = f"""Send callers to an endpoint and judge what they heard.

A bearer token for the endpoint is read from the environment variable VOICEPROBE_TOKEN.

Protocols, and the stages of a turn that the caller can observe with each:

{_PROTOCOLS}
"""


_Callers = Annotated[
    int | None,
    flag("load", "--users", "-u", help=f"callers at the same time (default: {USERS}; 1 for an agent that connects)"),
]
_RunTime = Annotated[
    str | None,
    flag(
        "load",
        help="how long, e.g. 2m (default: until every objective has enough turns, at most 15m; at a --rate 1m)",
        metavar=METAVAR,
    ),
]
_StopTimeout = Annotated[
    str, flag("load", help="how long turns under way then have to end; what is left is cut, and shown", metavar=METAVAR)
]


@sends_callers("speech", "callers", "run")
def run(
    context: typer.Context,
    target: Target = "",
    *,
    users: _Callers = None,
    spawn_rate: Annotated[
        float | None, flag("load", help="callers to start a second (default: all within 5 s, at least 10)")
    ] = None,
    processes: Processes = "1",
    run_time: _RunTime = None,
    stop_timeout: _StopTimeout = _STOP_TIMEOUT,
    scenario: Annotated[
        Path | None,
        flag("load", help="scenario file (TOML): callers, speech, phases; flags that are given win"),
    ] = None,
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Send callers to an endpoint and judge what they heard."""
    from loadtest.run.job import reach
    from loadtest.run.job import run as carry_out
    from loadtest.run.judged_run import print_and_write
    from loadtest.run.request import RunRequest, called_as_its_folder, check, out_folder, usual_users

    del target  # the settings have it
    times = durations(unreadable, stop_timeout=stop_timeout, **({} if run_time is None else {"run_time": run_time}))
    shared = shared_by(processes, unreadable)
    folder = out_folder(out)
    request = RunRequest(
        called_as_its_folder(settings, folder, out),
        usual_users(settings, shared) if users is None else users,
        spawn_rate,
        times["run_time"].seconds if "run_time" in times else None,
        slo,
        folder,
        json_file,
        shared,
        scenario,
        stop_timeout_s=times.get("stop_timeout", Duration.parse(_STOP_TIMEOUT)).seconds,
        given=frozenset(given_on_command_line(context)),
        unreadable=tuple(unreadable),
    )
    console = Console()
    checked = check(request).with_an_end()
    # A terminal breaks lines between words; elsewhere a line is a sentence.
    is_one_line = not console.is_terminal
    for line in filter(None, (checked.sentence, checked.left_out, checked.expectation)):
        console.print(line, soft_wrap=is_one_line)
    reach(checked, console)
    console.print(checked.kept_in, soft_wrap=is_one_line)
    raise typer.Exit(int(print_and_write(carry_out(checked, console), console, json_file)))
