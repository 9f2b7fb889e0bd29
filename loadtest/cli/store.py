"""`voiceprobe store` and `voiceprobe deliver`: what a sidecar keeps, and what it did not take yet."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

CHECK_EXAMPLE: Final = "Example: voiceprobe store check ./store --json check.json"
EXPORT_EXAMPLE: Final = "Example: voiceprobe store export ./store --to ./exported --turns csv"
IMPORT_EXAMPLE: Final = "Example: voiceprobe store import ./exported ./store"

Folder = Annotated[Path, typer.Argument(help="folder of the store, as the sidecar was given it")]

store = typer.Typer(help="Check, export and import the store of a sidecar.", no_args_is_help=True, add_completion=False)


@store.command(epilog=CHECK_EXAMPLE)
def check(
    folder: Folder,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as one JSON object")] = None,
) -> None:
    """Read every row of a store and say what is wrong with it; changes nothing.

    Stop the sidecar first. The exit code is 0 for a sound store, and 7 for one with rows that cannot be read.
    """
    from loadtest.run.store import check as carry_out

    raise typer.Exit(int(carry_out(folder, Console(), json_file)))


@store.command(epilog=EXPORT_EXAMPLE)
def export(
    folder: Folder,
    to: Annotated[Path, typer.Option(help="folder for the files, new or empty")],
    turns: Annotated[Literal["parquet", "csv"], typer.Option(help="format of the turns")] = "parquet",
    spans: Annotated[
        Literal["otel_traces", "store"],
        typer.Option(
            help="columns of the spans: those of the Collector's table, or the store's, which keep every type"
        ),
    ] = "otel_traces",
) -> None:
    """Write the turns, the spans and the metric points of a store into files for other programs or another version.

    Spans become Parquet files with the columns of `otel_traces`, the table of the OpenTelemetry Collector's ClickHouse
    exporter; turns and metric points become one file each. Stop the sidecar first.
    """
    from loadtest.run.store import export as carry_out

    carry_out(folder, to, Console(), turns, spans)


@store.command("import", epilog=IMPORT_EXAMPLE)
def import_files(
    source: Annotated[Path, typer.Argument(help="folder that `voiceprobe store export` wrote")],
    folder: Annotated[Path, typer.Argument(help="folder of the store to import to, created when missing")],
    keep_text: Annotated[
        bool, typer.Option("--keep-transcripts", help="store transcripts that the export holds")
    ] = False,
) -> None:
    """Store what an export of this version or an earlier one holds; rows that are there already are left as they are.

    An import that was interrupted may be repeated. Stop the sidecar of the store first.
    """
    from loadtest.run.store import import_files as carry_out

    carry_out(source, folder, Console(), keep_text=keep_text)


DELIVER_EXAMPLE: Final = "Example: voiceprobe deliver ./spool --sidecar http://127.0.0.1:4318"


def deliver(
    folder: Annotated[Path, typer.Argument(help="the folder that workers were given with --spool")],
    sidecar: Annotated[str, typer.Option(help="OTLP/HTTP address of the sidecar")] = "http://127.0.0.1:4318",
) -> None:
    """Send telemetry that workers kept on disk to a sidecar, including the last turns of killed workers."""
    from loadtest.run.store import deliver as carry_out

    Console().print(carry_out(folder, sidecar), soft_wrap=True)
