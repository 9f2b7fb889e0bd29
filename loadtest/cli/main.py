"""The `voiceprobe` command: puts the commands together, each a file of this folder.

Commands that are processes of their own get everything behind their name as it is.
"""

import os
import sys
from typing import Annotated, Any, Final

import typer

from loadtest.cli import audit, capacity, demo, llm, pairs, rules, run, runs, store
from loadtest.cli.flags import AllFaultsAtOnce
from loadtest.cli.guard import guarded
from loadtest.cli.protocol import protocol
from loadtest.cli.rollout import rollout
from loadtest.exit_codes import ExitCode

# Their help is their own, and so is every flag.
CONTEXT: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


def assistant(context: typer.Context) -> None:
    """Run the reference voice assistant, the target of the demo."""
    _become("loadtest.targets.assistant", context)


def sidecar(context: typer.Context) -> None:
    """Run the sidecar: OTLP in, store, Prometheus out."""
    _become("telemetry.sidecar", context)


def dashboard(context: typer.Context) -> None:
    """Show a store in the browser."""
    _become("dashboard", context)


def corpus(context: typer.Context) -> None:
    """List, install, build and check the speech that callers say."""
    _become("corpora", context)


def _become(module: str, context: typer.Context) -> None:
    """Replace this process by the module's, with all arguments of the command."""
    from loadtest.run.processes import environment

    os.execve(sys.executable, [sys.executable, "-m", module, *context.args], environment())  # noqa: S606


VERSION: Final = "0.1.0"
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
        "Judge a staged rollout: promote, hold or roll back, why, and how many turns are still needed",
        "voiceprobe rollout check examples/rollouts/streaming.toml --store ./store --history streaming.json",
    ),
)
EXIT_CODES: Final = (
    "Exit codes: 0 all objectives met; 1 unexpected fault; 2 usage or configuration; 3 an objective missed; 4 "
    "generator-limited; 5 target unreachable or refused; 6 undecided, e.g. too few turns; 7 a damaged store; "
    "130 interrupted."
)

app = typer.Typer(
    name="voiceprobe",
    help=f"{HELP}\n\n{EXIT_CODES}",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"voiceprobe {VERSION}")
        raise typer.Exit


@app.callback()
def voiceprobe(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Without a command, shows the ways to use it."""
    if context.invoked_subcommand is None:
        ways = "\n\n".join(f"{purpose}:\n  {command}" for purpose, command in WAYS)
        typer.echo(f"{HELP}\n\n{ways}\n\nTo see all of it work on this machine first: voiceprobe demo")
        typer.echo("All commands: voiceprobe --help. Completion for your shell: voiceprobe --install-completion.")
        raise typer.Exit(int(ExitCode.USAGE))


app.command(epilog=run.EXAMPLE, help=run.HELP, cls=AllFaultsAtOnce)(run.run)
app.command(epilog=demo.EXAMPLE, cls=AllFaultsAtOnce)(demo.demo)
app.command(epilog=capacity.CAPACITY_EXAMPLE, cls=AllFaultsAtOnce)(capacity.capacity)
app.command(epilog=llm.EXAMPLE)(llm.llm)
app.command(epilog=capacity.CALIBRATE_EXAMPLE)(capacity.calibrate)
app.command(epilog=audit.EXAMPLE)(audit.audit)
app.command(epilog=runs.REPORT_EXAMPLE)(runs.report)
app.command(epilog=runs.COMPARE_EXAMPLE)(runs.compare)
app.command(epilog=pairs.PAIR_EXAMPLE, cls=AllFaultsAtOnce)(pairs.pair)
app.command(epilog=pairs.TECHNIQUES_EXAMPLE)(pairs.techniques)
app.command(epilog=store.DELIVER_EXAMPLE)(store.deliver)
app.command(epilog=rules.EXAMPLE)(rules.rules)
app.add_typer(runs.runs, name="runs")
app.add_typer(store.store, name="store")
app.add_typer(protocol, name="protocol")
app.add_typer(rollout, name="rollout")
for _forwarded in (assistant, sidecar, dashboard, corpus):
    app.command(add_help_option=False, context_settings=CONTEXT)(_forwarded)


def main() -> None:
    """The console script."""
    sys.exit(guarded(app))


if __name__ == "__main__":
    main()
