"""`python -m dashboard`: the dashboard over a store, in a browser."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboard.launch import LaunchOptions, serve
from telemetry.model.errors import TelemetryError

EPILOG = "Example: python -m dashboard --store runs/store --slo slo.yaml --port 0 --headless"

app = typer.Typer(add_completion=False)


@app.command(epilog=EPILOG)
def run(
    store: Annotated[
        str, typer.Option(help="Folder of the store, or http://HOST:4318 of its sidecar (with its token).")
    ],
    slo: Annotated[Path | None, typer.Option(help="File of objectives; without it, the default set.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. It has no login: anything but loopback shows it to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 8501,
    headless: Annotated[bool, typer.Option(help="Do not open a browser.")] = False,
) -> None:
    """Show a run live: latency against objectives, cohorts, cache, fallbacks and the slowest turns.

    Prints one line {"ready": true, "url": ...} on standard output when the page answers, and stays until Ctrl-C.
    Exit codes: 0 ended by a signal, 2 a flag or file that cannot be used.
    """
    try:
        serve(LaunchOptions(store=store, slo=slo, host=host, port=port, headless=headless))
    except TelemetryError as error:
        sys.stderr.write(f"dashboard: {error}\n")
        raise typer.Exit(2) from error


def main() -> None:
    """Entry point for the command line of the project."""
    app()


if __name__ == "__main__":
    main()
