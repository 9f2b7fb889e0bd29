"""`voiceprobe run`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import (
    Json,
    Out,
    Slo,
    Target,
    flag,
    given_on_command_line,
    sends_callers,
)
from loadtest.protocols import registry
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings

EXAMPLE: Final = (
    "Example: voiceprobe run ws://127.0.0.1:8765/v1/realtime --users 20 --run-time 2m --noise babble --snr 10"
)


_PROTOCOLS: Final = "\n\n".join(registry.lines())
HELP: Final = f"""Send callers to an endpoint and judge what they heard.

A bearer token for the endpoint is read from the environment variable VOICEPROBE_TOKEN.

Protocols, and the stages of a turn that the caller can observe with each:

{_PROTOCOLS}
"""


@sends_callers("speech", "callers", "run")
def run(
    context: typer.Context,
    target: Target = "",
    *,
    scenario: Annotated[
        Path | None,
        flag("load", help="scenario file (TOML): callers, speech, phases; flags take precedence over it"),
    ] = None,
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    load: RunLoad,
    settings: SwarmSettings,
    unreadable: list[str],
) -> None:
    """Send callers to an endpoint and judge what they heard."""
    from loadtest.run.job import reach
    from loadtest.run.job import run as carry_out
    from loadtest.run.judged_run import print_and_write
    from loadtest.run.request import RunRequest, called_as_its_folder, check, out_folder, sole_use_of

    del target  # the settings have it
    folder = out_folder(out)
    request = RunRequest(
        called_as_its_folder(settings, folder, out),
        load,
        slo,
        folder,
        json_file,
        scenario,
        frozenset(given_on_command_line(context)),
        tuple(unreadable),
    )
    console = Console()
    checked = check(request).with_an_end()
    # A terminal breaks lines between words; elsewhere a line is a sentence.
    is_one_line = not console.is_terminal
    with sole_use_of(folder):
        for line in filter(None, (checked.sentence, checked.left_out, checked.expectation)):
            console.print(line, soft_wrap=is_one_line)
        reach(checked, console)
        console.print(checked.kept_in, soft_wrap=is_one_line)
        raise typer.Exit(int(print_and_write(carry_out(checked, console), console, json_file)))
