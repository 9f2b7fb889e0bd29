"""`voiceprobe protocol`: the flags of its commands."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Target

PARTIALS_EXAMPLE: Final = (
    "Example: voiceprobe protocol partials --store runs/20260101-120000-abcdef/store --out partials.jsonl"
)
TRY_EXAMPLE: Final = (
    "Example: voiceprobe protocol try ws://127.0.0.1:8765/v1/realtime --spec examples/protocols/openai-realtime.yaml"
)

protocol = typer.Typer(help="Work on the wire of an endpoint.", no_args_is_help=True, add_completion=False)


@protocol.callback()
def group() -> None:
    """Work on the wire of an endpoint."""


@protocol.command("try", epilog=TRY_EXAMPLE)
def try_(
    url: Target,
    spec: Annotated[Path, typer.Option(help="YAML file that describes the wire, see examples/protocols")],
    *,
    model: Annotated[str | None, typer.Option(help="model, where the spec has a place for it")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VARIABLE", help="header whose value is in the environment; may be repeated"),
    ] = None,
    wait: Annotated[float, typer.Option(help="how many seconds to wait for a reply")] = 10.0,
) -> None:
    """Say one utterance over a declared wire and show live what was recognized, with times, and what was not.

    Exit code 0: a reply was heard; 5: no session opened; 6: no reply was heard; 2: the spec cannot be used.
    """
    from loadtest.run.trial import TrialRequest, carry_out

    request = TrialRequest(url, spec, model, wait, tuple(header or ()))
    raise typer.Exit(int(carry_out(request, Console(soft_wrap=True))))


@protocol.command("partials", epilog=PARTIALS_EXAMPLE)
def partials(
    store: Annotated[
        str, typer.Option(help="folder of the store, or http://HOST:4318 of its sidecar (with its token)")
    ],
    out: Annotated[Path, typer.Option(help="file to write: one line of JSON for each utterance")],
    run_id: Annotated[str | None, typer.Option("--run", help="name of the run (default: the newest)")] = None,
) -> None:
    """Write the transcripts of a run that kept them, with their times, to be replayed into a language model.

    `voiceprobe run URL --protocol llm --protocol-option partials=FILE` replays them without a recognizer.
    """
    from loadtest.run.store import write_partials

    raise typer.Exit(int(write_partials(store, out, Console(), run_id)))
