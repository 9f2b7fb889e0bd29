"""`voiceprobe store`: the flags of its commands."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

CHECK_EXAMPLE: Final = "Example: voiceprobe store check ./store --json check.json"
REPAIR_EXAMPLE: Final = "Example: voiceprobe store repair ./store --dry-run"
EXPORT_EXAMPLE: Final = "Example: voiceprobe store export ./store --to ./exported --turns csv"
COMPACT_EXAMPLE: Final = "Example: voiceprobe store compact ./store"

Folder = Annotated[Path, typer.Argument(help="folder of the store, as the sidecar was given it")]

store = typer.Typer(
    help="Check, repair, compact and export the store of a sidecar.", no_args_is_help=True, add_completion=False
)


@store.command(epilog=CHECK_EXAMPLE)
def check(
    folder: Folder,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result as one JSON object")] = None,
) -> None:
    """Read every file of a store and say what is wrong with it; changes nothing.

    Works while a sidecar writes the store. The exit code is 0 for a sound store, and 7 for one that needs a repair.
    """
    from loadtest.run.store import check as carry_out

    raise typer.Exit(int(carry_out(folder, Console(), json_file)))


@store.command(epilog=REPAIR_EXAMPLE)
def repair(
    folder: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and change nothing")] = False,
) -> None:
    """Make the manifest of a store anew from its segments, so that every intact row counts once.

    Nothing is deleted: damaged files, superfluous files and the manifest that was there move to the folder
    `quarantine`. Refused while a sidecar writes the store. The exit code is 7 if rows are lost.
    """
    from loadtest.run.store import repair as carry_out

    raise typer.Exit(int(carry_out(folder, Console(), dry_run=dry_run)))


@store.command(epilog=COMPACT_EXAMPLE)
def compact(folder: Folder) -> None:
    """Merge the small segments of a store that no sidecar writes, as the sidecar does in the background."""
    from loadtest.run.store import compact as carry_out

    carry_out(folder, Console())


@store.command(epilog=EXPORT_EXAMPLE)
def export(
    folder: Folder,
    to: Annotated[Path, typer.Option(help="folder for the files, new or empty")],
    turns: Annotated[Literal["parquet", "csv"], typer.Option(help="format of the turns")] = "parquet",
) -> None:
    """Write the turns, the spans and the metric points of a store into files for other programs.

    Spans become Parquet files with the columns of `otel_traces`, the table of the OpenTelemetry Collector's ClickHouse
    exporter; turns and metric points become one file each. Works while a sidecar writes the store. The exit code is 7
    if damaged segments had to be left out.
    """
    from loadtest.run.store import export as carry_out

    raise typer.Exit(int(carry_out(folder, to, Console(), turns)))
