"""`voiceprobe corpus`: list, install, build and check corpora.

Ends with 0 when all is well and with 2 when something that was named cannot be used.
"""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from corpora.errors import CorpusError
from corpora.install import install as install_corpus
from corpora.library import BUNDLED, CorpusInfo, available, find_faults
from corpora.manifest import LOW_CONFIDENCE_DB, read_manifest
from corpora.recorded import RECIPES
from corpora.synth import build as build_corpus

_USAGE = 2
_BUNDLED_FOLDER = Path(__file__).parent / "data" / BUNDLED
_EXAMPLES = """Examples:

  voiceprobe corpus list

  voiceprobe corpus install pocketsphinx-testdata

  voiceprobe corpus check ./my-corpus
"""

app = typer.Typer(
    name="voiceprobe corpus",
    help="Utterances to call with: what there is, and how to get more.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a CorpusError becomes its sentence on stderr and exit code 2."""
    try:
        app(prog_name="voiceprobe corpus")
    except CorpusError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_USAGE)


@app.command("list", epilog="Example: voiceprobe corpus list --json | jq '.[].name'")
def list_(
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout instead of a table.")] = False,
) -> None:
    """Show the corpora that can be used by name: the bundled ones and those installed."""
    infos = available()
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode([_row(info) for info in infos])).decode() + "\n")
        return
    console = Console()
    console.print(_table(infos))
    missing = [name for name in RECIPES if name not in {info.name for info in infos}]
    for name in missing:
        console.print(
            f"Not installed: {name}, {RECIPES[name].about}. Get it: voiceprobe corpus install {name}", soft_wrap=True
        )


@app.command(epilog="Example: voiceprobe corpus install pocketsphinx-testdata --from ./pocketsphinx-testdata.deb")
def install(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(RECIPES)}.")],
    files: Annotated[
        list[Path] | None, typer.Option("--from", help="A package that is already here (.deb or .tar.gz); repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is installed.")] = False,
) -> None:
    """Fetch recorded human speech and make a corpus of it."""
    folder = install_corpus(name, files or (), force)
    manifest = read_manifest(folder)
    doubtful = sum((u.bounds_confidence_db or LOW_CONFIDENCE_DB) < LOW_CONFIDENCE_DB for u in manifest.utterances)
    sys.stdout.write(f"{name}: {len(manifest.utterances)} utterances in {folder}\n")
    if doubtful:
        sys.stdout.write(
            f"{doubtful} of them have less than {LOW_CONFIDENCE_DB:g} dB of speech over floor: "
            "their bounds may be off by more than 10 ms.\n"
        )


@app.command(epilog="Example: voiceprobe corpus build --out ./corpus")
def build(
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = _BUNDLED_FOLDER,
    texts: Annotated[Path, typer.Option("--texts", help="The folder that holds texts.csv.")] = _BUNDLED_FOLDER,
) -> None:
    """Speak the texts of the generated corpus again (needs flite)."""
    count = build_corpus(texts, out)
    sys.stdout.write(f"{BUNDLED}: {count} utterances in {out}\n")


@app.command(epilog="Example: voiceprobe corpus check ./my-corpus")
def check(folder: Annotated[Path, typer.Argument(help="A folder with a manifest.jsonl.")]) -> None:
    """Print everything that is wrong with a corpus, one line each."""
    faults = find_faults(folder)
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    if faults:
        raise typer.Exit(_USAGE)
    sys.stdout.write(f"{folder}: {len(read_manifest(folder).utterances)} utterances, no fault found\n")


def _row(info: CorpusInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "path": str(info.path),
        "kind": info.kind,
        "utterances": info.utterance_count,
        "short": info.short_count,
        "medium": info.medium_count,
        "long": info.long_count,
        "speech_s": round(info.speech_s, 3),
        "speakers": list(info.speakers),
        "licences": list(info.licences),
        "fault": info.fault,
    }


def _table(infos: list[CorpusInfo]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    # Two lines a corpus, so that all of it fits into eighty columns.
    table.add_column("name\nkind, licence")
    for column in ("utter-\nances", "short", "medium", "long", "speech", "speak-\ners"):
        table.add_column(column, justify="right", no_wrap=True)
    for info in infos:
        if info.fault is not None:
            table.add_row(f"{info.name}\ncannot be used: {info.fault}")
            continue
        counts = (info.utterance_count, info.short_count, info.medium_count, info.long_count)
        cells = (*map(str, counts), _spoken(info.speech_s), str(len(info.speakers)))
        table.add_row(f"{info.name}\n{info.kind}, {', '.join(info.licences)}", *cells)
    return table


def _spoken(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
