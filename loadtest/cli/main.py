"""The `voiceprobe` command: the only place where the rooms are put together, each as a process of its own."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from corpora.manifest.errors import CorpusError
from loadtest.capacity.flags import EXAMPLE as CAPACITY_EXAMPLE
from loadtest.capacity.flags import capacity
from loadtest.cli.bench import EXAMPLE as BENCH_EXAMPLE
from loadtest.cli.bench import bench
from loadtest.errors import EndpointUnreachable, OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.caller_flags import Json, Out, Processes, Slo, Target, Users, flag, sends_callers
from loadtest.run.processes import ProcessFailedError, environment
from loadtest.run.request import RunRequest, check, default_out
from loadtest.scenario.durations import parse_duration_s
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.errors import ConfigError, StoreError, TelemetryError

# Commands with a process and a help of their own: everything behind the name goes to them as it is.
FORWARDED: Final = {
    "assistant": ("loadtest.targets.assistant", "Run the reference voice assistant, the target of the demo."),
    "sidecar": ("telemetry.sidecar", "Run the sidecar: OTLP in, store, Prometheus out."),
    "dashboard": ("dashboard", "Show a store in the browser."),
    "corpus": ("corpora", "List, install, build and check the speech that callers say."),
}
HELP: Final = "Load tests and an observability sidecar for voice assistants."
# The ways to use it, each with one command to begin with.
WAYS: Final = (
    (
        "Load-test an endpoint from the terminal: callers, a verdict on each objective, an exit code",
        "voiceprobe run ws://127.0.0.1:8765/v1/realtime --users 20 --run-time 2m",
    ),
    (
        "Watch objectives, stages and single turns in a browser, over the store of a sidecar",
        "voiceprobe dashboard --store ./store --slo examples/objectives.yaml",
    ),
    (
        "Watch a staged rollout: send callers to the new version as a cohort of its own, beside the old one",
        "voiceprobe run wss://canary.example.com/v1/realtime --cohort canary --sidecar http://127.0.0.1:4318",
    ),
)
EXIT_CODES: Final = (
    "Exit codes: 0 all objectives met; 1 unexpected fault; 2 usage or configuration; 3 an objective missed; 4 "
    "generator-limited; 5 target unreachable or refused; 6 undecided, e.g. too few turns; 130 interrupted."
)

app = typer.Typer(
    name="voiceprobe",
    help=f"{HELP}\n\n{EXIT_CODES}",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def voiceprobe(context: typer.Context) -> None:
    """Without a command, shows the ways to use it."""
    if context.invoked_subcommand is None:
        ways = "\n\n".join(f"{purpose}:\n  {command}" for purpose, command in WAYS)
        typer.echo(f"{HELP}\n\n{ways}\n\nTo see all of it work on this machine first: voiceprobe demo")
        typer.echo("All commands: voiceprobe --help. Completion for your shell: voiceprobe --install-completion.")
        raise typer.Exit(int(ExitCode.USAGE))


@app.command(
    epilog="Example: voiceprobe run ws://127.0.0.1:8765/v1/realtime --users 20 --run-time 2m --noise babble --snr 10"
)
@sends_callers("speech", "callers", "run")
def run(
    context: typer.Context,
    target: Target,
    users: Users = 1,
    spawn_rate: Annotated[
        float | None, flag("load", help="callers to start a second (default: all within 5 s, at least 10)")
    ] = None,
    processes: Processes = 1,
    run_time: Annotated[str, flag("load", help="how long, e.g. 90s or 2m")] = "1m",
    stop_timeout: Annotated[
        float, flag("load", help="how long turns under way then have to end, seconds; what is left is cut, and shown")
    ] = 30.0,
    scenario: Annotated[
        Path | None,
        flag("load", help="scenario file (TOML): callers, speech, phases; flags that are given win"),
    ] = None,
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    *,
    settings: SwarmSettings,
) -> None:
    """Send callers to an endpoint and judge what they heard.

    A bearer token for the endpoint is read from the environment variable VOICEPROBE_TOKEN.
    """
    from loadtest.run.command import preflight
    from loadtest.run.command import run as carry_out
    from loadtest.run.judged_run import print_and_write

    request = RunRequest(
        replace(settings, host=target),
        users,
        spawn_rate,
        parse_duration_s(run_time),
        slo,
        out if out is not None else default_out(),
        json_file,
        processes,
        scenario,
        stop_timeout_s=stop_timeout,
        given=_given(context),
    )
    console = Console()
    checked = check(request)
    console.print(checked.sentence, soft_wrap=True)
    preflight(checked)
    raise typer.Exit(int(print_and_write(carry_out(checked, console), console, json_file)))


@app.command(epilog="Example: voiceprobe demo --users 8 --run-time 60s --exit --json summary.json")
@sends_callers("speech")
def demo(
    users: Users = 8,
    run_time: Annotated[str, flag("load", help="how long the swarm runs, e.g. 60s")] = "60s",
    exit_after: Annotated[bool, flag("output", "--exit", help="end by itself instead of staying until Ctrl-C")] = False,
    engines: Annotated[str, flag("target", help="the assistant's engines: scripted or real")] = "scripted",
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    *,
    settings: SwarmSettings,
) -> None:
    """Start the reference assistant, the sidecar and the dashboard, and send callers: the whole way, once."""
    from loadtest.cli.demo import DemoRequest
    from loadtest.cli.demo import demo as carry_out

    folder = out if out is not None else default_out()
    request = DemoRequest(users, parse_duration_s(run_time), exit_after, engines, settings, slo, folder, json_file)
    raise typer.Exit(int(carry_out(request, Console())))


app.command(epilog=CAPACITY_EXAMPLE)(capacity)


@app.command(epilog="Example: voiceprobe calibrate --quick --json calibration.json --picture calibration.svg")
def calibrate(
    quick: Annotated[bool, flag("load", "--quick", help="about a minute: loads 1, 50 and 200")] = False,
    loads: Annotated[str | None, flag("load", help="loads to try, callers in rising order, e.g. 1,50,200")] = None,
    turns: Annotated[int | None, flag("load", help="turns of each caller (default: 8, with --quick 4)")] = None,
    faults: Annotated[bool, flag("load", help="let the endpoint misbehave on purpose, too")] = True,
    out: Out = None,
    json_file: Json = None,
    picture: Annotated[
        Path | None, flag("output", help="the picture, .svg, .png or .pdf (default: calibration.svg in --out)")
    ] = None,
) -> None:
    """Measure the instrument's own error on this machine, and how many callers it drives with figures to be trusted.

    Callers speak to an endpoint that knows what it did and when. The result is stored, and later runs cite it. Exit
    code 0: a load was trustworthy; 4: none was; 6: too few turns to judge any; 130: interrupted.
    """
    from loadtest.calibration.command import calibrate as carry_out
    from loadtest.calibration.command import request_of

    request = request_of(quick, loads, turns, faults, out if out is not None else default_out(), json_file, picture)
    raise typer.Exit(int(carry_out(request, Console())))


def _given(context: typer.Context) -> frozenset[str]:
    """The parameters that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")


@app.command(epilog="Example: voiceprobe report --store runs/20260101-120000-abcdef/store --json summary.json")
def report(
    store: Annotated[Path, typer.Option(help="folder of the store, as the sidecar was given it")],
    run_id: Annotated[str | None, typer.Option("--run", help="name of the run (default: the newest)")] = None,
    list_runs: Annotated[bool, typer.Option("--list", help="list the runs of the store instead")] = False,
    slo: Slo = None,
    json_file: Json = None,
) -> None:
    """Judge a run from its store: the same text, JSON and exit code as `voiceprobe run`, whoever started it.

    Works while the run is under way, and for swarms that were started with plain Locust.
    """
    from loadtest.cli.report import list_runs as show_runs
    from loadtest.cli.report import report as carry_out

    console = Console()
    code = (
        show_runs(store, console)
        if list_runs
        else carry_out(store, console, run_id=run_id, slo=slo, json_file=json_file)
    )
    raise typer.Exit(int(code))


@app.command(epilog="Example: voiceprobe deliver ./spool --sidecar http://127.0.0.1:4318")
def deliver(
    folder: Annotated[Path, typer.Argument(help="the folder that workers were given with --spool")],
    sidecar: Annotated[str, typer.Option(help="OTLP/HTTP address of the sidecar")] = "http://127.0.0.1:4318",
) -> None:
    """Bring what the workers of a swarm kept on disk to a sidecar, the last turns of killed ones among it."""
    from loadtest.cli.deliver import deliver as carry_out

    Console().print(carry_out(folder, sidecar), soft_wrap=True)


def _forwarder(name: str, module: str, summary: str) -> None:
    def forward(context: typer.Context) -> None:
        os.execve(sys.executable, [sys.executable, "-m", module, *context.args], environment())  # noqa: S606

    forward.__doc__ = summary
    app.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    )(forward)


for _name, (_module, _summary) in FORWARDED.items():
    _forwarder(_name, _module, _summary)


app.command(epilog=BENCH_EXAMPLE)(bench)


def guarded(command: Callable[[], None]) -> int:
    """Run a command; the exit code. What we raise on purpose is one sentence on standard error."""
    try:
        command()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(ExitCode.OK if done.code is None else ExitCode.FAULT)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except (UsageError, CorpusError, ConfigError, StoreError) as error:
        return _say(error, ExitCode.USAGE)
    except EndpointUnreachable as error:
        return _say(error, ExitCode.UNREACHABLE)
    except (OutputError, ProcessFailedError, TelemetryError) as error:
        return _say(error, ExitCode.FAULT)
    return int(ExitCode.OK)


def _say(error: Exception, code: ExitCode) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"voiceprobe: {line}\n")
    return int(code)


def main() -> None:
    """The console script."""
    sys.exit(guarded(app))


if __name__ == "__main__":
    main()
