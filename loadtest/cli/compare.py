"""`voiceprobe compare`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Places, flag
from telemetry.model.durations import METAVAR

EXAMPLE: Final = "Example: voiceprobe compare before after --margin 100ms --html compared.html"


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="two runs or more, the first is the baseline: a run's folder, its id or the beginning of it, "
            "STORE#RUN, or http://HOST:4318#RUN of a sidecar",
        ),
    ],
    *,
    places: Places = None,
    margin: Annotated[
        str, typer.Option(help="by how much the figure may be larger than the baseline's", metavar=METAVAR)
    ] = "100ms",
    metric: Annotated[str, typer.Option(help="what the margin is about: a duration")] = "voice_to_voice",
    statistic: Annotated[str, typer.Option(help="which percentile of it: p50, p95 or p99")] = "p95",
    slo: Annotated[
        Path | None,
        flag("objectives", help="objectives, an OpenSLO file (default: those of the baseline, else the built-in set)"),
    ] = None,
    json_file: Json = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="write the result as one HTML file, with pictures")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="write the result as Markdown, for the summary of a CI job")
    ] = None,
) -> None:
    """Compare runs with a baseline: differences of latency, good turns, cache, fallbacks and word errors.

    Every difference has a 95 % interval whose variance is clustered by call, and paired by utterance where both runs
    heard the same audio. Exit code 0: shown to be within the margin; 3: a regression, shown to exceed it; 6: undecided,
    too few turns, or a run is generator-limited; 2: a run or a flag cannot be used.
    """
    from loadtest.run.compare import CompareRequest
    from loadtest.run.compare import compare as carry_out

    request = CompareRequest(
        tuple(runs), tuple(places or ()), margin, metric, statistic, slo, json_file, html_file, markdown_file
    )
    raise typer.Exit(int(carry_out(request, Console())))
