"""The `voiceprobe` command: puts the commands together, each a file beside this one."""

import sys
from typing import Annotated, Final

import typer

from loadtest.cli.assistant import assistant
from loadtest.cli.audit import EXAMPLE as AUDIT_EXAMPLE
from loadtest.cli.audit import audit
from loadtest.cli.calibrate import EXAMPLE as CALIBRATE_EXAMPLE
from loadtest.cli.calibrate import calibrate
from loadtest.cli.capacity import EXAMPLE as CAPACITY_EXAMPLE
from loadtest.cli.capacity import capacity
from loadtest.cli.compare import EXAMPLE as COMPARE_EXAMPLE
from loadtest.cli.compare import compare
from loadtest.cli.corpus import corpus
from loadtest.cli.dashboard import dashboard
from loadtest.cli.deliver import EXAMPLE as DELIVER_EXAMPLE
from loadtest.cli.deliver import deliver
from loadtest.cli.demo import EXAMPLE as DEMO_EXAMPLE
from loadtest.cli.demo import demo
from loadtest.cli.flags import AllFaultsAtOnce
from loadtest.cli.forwarding import CONTEXT
from loadtest.cli.guard import guarded
from loadtest.cli.llm import EXAMPLE as LLM_EXAMPLE
from loadtest.cli.llm import llm
from loadtest.cli.pair import EXAMPLE as PAIR_EXAMPLE
from loadtest.cli.pair import pair
from loadtest.cli.protocol import protocol
from loadtest.cli.report import EXAMPLE as REPORT_EXAMPLE
from loadtest.cli.report import report
from loadtest.cli.rollout import rollout
from loadtest.cli.rules import EXAMPLE as RULES_EXAMPLE
from loadtest.cli.rules import rules
from loadtest.cli.run import EXAMPLE as RUN_EXAMPLE
from loadtest.cli.run import HELP as RUN_HELP
from loadtest.cli.run import run
from loadtest.cli.runs import runs
from loadtest.cli.sidecar import sidecar
from loadtest.cli.store import store
from loadtest.cli.techniques import EXAMPLE as TECHNIQUES_EXAMPLE
from loadtest.cli.techniques import techniques
from loadtest.exit_codes import ExitCode

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


app.command(epilog=RUN_EXAMPLE, help=RUN_HELP, cls=AllFaultsAtOnce)(run)
app.command(epilog=DEMO_EXAMPLE, cls=AllFaultsAtOnce)(demo)
app.command(epilog=CAPACITY_EXAMPLE, cls=AllFaultsAtOnce)(capacity)
app.command(epilog=LLM_EXAMPLE)(llm)
app.command(epilog=CALIBRATE_EXAMPLE)(calibrate)
app.command(epilog=AUDIT_EXAMPLE)(audit)
app.command(epilog=REPORT_EXAMPLE)(report)
app.command(epilog=COMPARE_EXAMPLE)(compare)
app.command(epilog=PAIR_EXAMPLE, cls=AllFaultsAtOnce)(pair)
app.command(epilog=TECHNIQUES_EXAMPLE)(techniques)
app.command(epilog=DELIVER_EXAMPLE)(deliver)
app.command(epilog=RULES_EXAMPLE)(rules)
app.add_typer(runs, name="runs")
app.add_typer(store, name="store")
app.add_typer(protocol, name="protocol")
app.add_typer(rollout, name="rollout")
for _forwarded in (assistant, sidecar, dashboard, corpus):
    app.command(add_help_option=False, context_settings=CONTEXT)(_forwarded)


def main() -> None:
    """The console script."""
    sys.exit(guarded(app))


if __name__ == "__main__":
    main()
