"""`python -m dashboard`: the dashboard over a store, in a browser."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboard.launch import LaunchOptions, public_host_name, serve
from telemetry.model.addresses import without_brackets
from telemetry.model.errors import TelemetryError
from telemetry.store.run_folders.places import RUNS_FOLDER, places_of

EPILOG = "Example: voiceprobe dashboard --store runs/store --slo slo.yaml --port 0 --headless"

app = typer.Typer(add_completion=False)


@app.command(epilog=EPILOG)
def run(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PLACE",
            help="where runs are: folders of runs, run folders, stores, or http://HOST:4318 of sidecars (with their "
            "token); the newest run is shown first, the page Runs has all of them (default: runs)",
        ),
    ] = None,
    *,
    store: Annotated[
        str | None,
        typer.Option(help="show this one store: its folder, or http://HOST:4318 of its sidecar (with its token)"),
    ] = None,
    slo: Annotated[
        Path | None,
        typer.Option(help="objectives, an OpenSLO file (default: those of each run, else the built-in set)"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="address to listen on; it has no login: anything but loopback shows it to the network")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to listen on; 0 takes any free one")] = 8501,
    public_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="host name by which browsers reach the page through a reverse proxy or from elsewhere; repeatable; "
            "requests for any other name are refused",
        ),
    ] = None,
    headless: Annotated[bool, typer.Option(help="do not open a browser")] = False,
    locust: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="address of Locust's page as a browser reaches it; without a run, pages say to start callers there",
        ),
    ] = None,
) -> None:
    """Show runs live: latency against objectives, cohorts, cache, fallbacks, slow turns; and runs side by side.

    Prints one line {"ready": true, "url": ...} on standard output when the page answers, and stays until Ctrl-C.
    Exit codes: 0 ended by a signal, 2 a flag or file that cannot be used.
    """
    try:
        places = named_places(store, runs or [])
        public_hosts = tuple(map(public_host_name, public_host or []))
        host = without_brackets(host)
        serve(
            LaunchOptions(store, places, slo, host, port, headless=headless, public_hosts=public_hosts, locust=locust)
        )
    except TelemetryError as error:
        sys.stderr.write(f"voiceprobe: {error}\n")
        raise typer.Exit(2) from error


def named_places(store: str | None, given: list[str]) -> tuple[str, ...]:
    """Return the places to search for runs. Raises ConfigError for a place that is not a folder."""
    if store is None and not given:
        given = [RUNS_FOLDER]
    places_of(given)
    return tuple(dict.fromkeys([*([store] if store is not None and given else []), *given]))


def main() -> None:
    """Entry point for the command line of the project."""
    app(prog_name="voiceprobe dashboard")


if __name__ == "__main__":
    main()
