"""`voiceprobe corpus`: list, show, install, import, say, build and check corpora.

Exits with 0 on success and with 2 when something that was named cannot be used.
"""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from corpora.annotation.boundary_review import review_advice
from corpora.annotation.lint import diagnostics
from corpora.manifest.edges import EDGES_HELP, parse_edges, set_edges
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED, CorpusInfo, available, corpus_folder
from corpora.manifest.manifest import DEFAULT_EDGES, read_manifest
from corpora.manifest.validation import numbered
from corpora.progress import progress_bar
from corpora.rendering.cache import cache_entries, cache_root, limit_bytes, trim
from corpora.reports.command import EPILOG as SHOW_EPILOG
from corpora.reports.command import show
from corpora.review.command import EPILOG as REVIEW_EPILOG
from corpora.review.command import review
from corpora.sources.importing.command import EPILOG as IMPORT_EPILOG
from corpora.sources.importing.command import import_
from corpora.sources.install import install as install_corpus
from corpora.sources.recorded import RECIPES
from corpora.sources.synthesis.bundled import build as build_corpus
from corpora.sources.synthesis.command import SynthesisRequest, synthesize
from corpora.sources.synthesis.texts import read_texts
from corpora.sources.synthesis.voices import (
    DEFAULT_VOICES,
    ENGINES,
    Espeak,
    Flite,
    OpenAiSpeech,
    SpeechEngine,
    speech_token,
)

_USAGE = 2
_BUNDLED_FOLDER = Path(__file__).parent / "data" / BUNDLED
_EXAMPLES = """Examples:

  voiceprobe corpus list

  voiceprobe corpus install recorded-en

  voiceprobe corpus import ./recordings --into ./my-corpus --license CC-BY-4.0 --consent "signed forms, 2026"

  voiceprobe corpus check ./my-corpus

  voiceprobe corpus edges ./my-corpus recorded
"""

app = typer.Typer(
    name="voiceprobe corpus",
    help="List, install, import, synthesize, review and check the utterances that callers speak.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; a CorpusError is printed to stderr and ends with exit code 2."""
    try:
        app(prog_name="voiceprobe corpus")
    except CorpusError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_USAGE)


app.command("import", epilog=IMPORT_EPILOG)(import_)
app.command(epilog=REVIEW_EPILOG)(review)
app.command(epilog=SHOW_EPILOG)(show)


@app.command("list", epilog="Example: voiceprobe corpus list --json | jq '.[].name'")
def list_(
    json: Annotated[bool, typer.Option("--json", help="print one JSON array to stdout instead of a table")] = False,
) -> None:
    """List the corpora that can be used by name: the bundled one and the installed ones."""
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


_INSTALL_EXAMPLES = """Examples:

  voiceprobe corpus install pocketsphinx-testdata

  voiceprobe corpus install pocketsphinx-testdata --from ./pocketsphinx-testdata.deb --edges recorded
"""


@app.command(epilog=_INSTALL_EXAMPLES)
def install(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(RECIPES)}")],
    files: Annotated[
        list[Path] | None, typer.Option("--from", help="a local package file (.deb or .tar.gz); repeatable")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the installed corpus")] = False,
    edges: Annotated[str | None, typer.Option("--edges", help=f"{EDGES_HELP} (default: exact, or unchanged)")] = None,
) -> None:
    """Download recorded human speech and make a corpus from it."""
    asked = None if edges is None else parse_edges(edges)
    with progress_bar(f"installing {name}") as progress:
        folder = install_corpus(name, files or (), force, asked, progress=progress)
    manifest = read_manifest(folder)
    sys.stdout.write(f"{name}: {numbered(len(manifest.utterances), 'utterance')} in {folder}, {manifest.edges} edges\n")
    sys.stdout.writelines(f"{line}\n" for line in review_advice(manifest.utterances, manifest.edges, folder))


_EDGES_EXAMPLES = """Examples:

  voiceprobe corpus edges pocketsphinx-testdata

  voiceprobe corpus edges pocketsphinx-testdata recorded

  voiceprobe corpus edges ./my-corpus exact
"""


@app.command(epilog=_EDGES_EXAMPLES)
def edges(
    corpus: Annotated[str, typer.Argument(help="a folder, or the name of an installed corpus")],
    value: Annotated[str | None, typer.Argument(help="exact or recorded; without it, the present one is shown")] = None,
) -> None:
    """Show or change where speech ends in a corpus.

    With exact edges, each clip is faded out over 5 ms after its last certain speech, so that its end is known exactly.
    With recorded edges, the whole recording is sent, and every latency carries the uncertainty of its end. The clips
    stay as they are; nothing is downloaded.
    """
    folder = corpus_folder(corpus)
    if value is not None:
        set_edges(folder, parse_edges(value, "The value"))
    sys.stdout.write(f"{folder.name}: {read_manifest(folder).edges} edges\n")


@app.command(epilog="Example: voiceprobe corpus build --out ./corpus")
def build(
    out: Annotated[Path, typer.Option("--out", help="the folder to write")] = _BUNDLED_FOLDER,
    texts: Annotated[Path, typer.Option("--texts", help="the folder with texts.csv")] = _BUNDLED_FOLDER,
    edges: Annotated[str, typer.Option("--edges", help=EDGES_HELP)] = DEFAULT_EDGES,
) -> None:
    """Synthesize the texts of the bundled corpus again (needs flite)."""
    made = build_corpus(texts, out, parse_edges(edges))
    sys.stdout.write(f"{BUNDLED}: {numbered(made, 'utterance')} in {out}\n")


@app.command(epilog="Example: voiceprobe corpus say texts.csv --into ./spoken --engine flite --license CC0-1.0")
def say(
    *,
    texts: Annotated[
        Path, typer.Argument(help="CSV, TSV or JSONL with text, and optionally id, domain, language and voice")
    ],
    into: Annotated[Path, typer.Option("--into", help="the folder of the new corpus")],
    license: Annotated[str, typer.Option("--license", help="SPDX license of the clips, such as CC0-1.0")],
    engine: Annotated[str, typer.Option(help=f"one of: {', '.join(ENGINES)}")] = "flite",
    voice: Annotated[str | None, typer.Option(help="voice for texts without one (default: that of the engine)")] = None,
    url: Annotated[
        str, typer.Option(help="base URL of an endpoint with the OpenAI speech API")
    ] = "https://api.openai.com/v1",
    model: Annotated[str, typer.Option(help="model to request from that endpoint")] = "tts-1",
    language: Annotated[str, typer.Option(help="language for texts without one")] = "en-US",
    domain: Annotated[str, typer.Option(help="domain for texts without one")] = "general",
    rate: Annotated[int, typer.Option(help="sample rate of the clips in Hz")] = 24_000,
    force: Annotated[bool, typer.Option("--force", help="replace an existing corpus")] = False,
    edges: Annotated[str, typer.Option("--edges", help=EDGES_HELP)] = DEFAULT_EDGES,
) -> None:
    """Synthesize texts and make a corpus from the clips.

    The token for the endpoint is read from VOICEPROBE_SAY_TOKEN.
    """
    synthesizer = _engine(engine, url, model)
    lines = read_texts(texts, domain=domain, language=language)
    request = SynthesisRequest(lines, voice or DEFAULT_VOICES[engine], license, rate, into, force, parse_edges(edges))
    with progress_bar("synthesizing") as progress:
        made = synthesize(request, synthesizer, progress)
    sys.stdout.write(f"{into.resolve().name}: {numbered(made, 'utterance')} in {into}\n")


def _engine(name: str, url: str, model: str) -> SpeechEngine:
    if name == "flite":
        return Flite()
    if name == "espeak-ng":
        return Espeak()
    if name == "openai":
        return OpenAiSpeech(url, model, speech_token())
    raise CorpusError(f"--engine {name!r} is unknown; use one of {', '.join(ENGINES)}.")


@app.command(epilog="Example: voiceprobe corpus check ./my-corpus")
def check(folder: Annotated[Path, typer.Argument(help="a folder with a manifest.jsonl")]) -> None:
    """Check a corpus and print every fault, one per line.

    Finds broken and missing files, wrong or uncertain bounds (of ends only where they count: with recorded edges, or
    where no speech is certain), clipping, silence, wrong rates, duplicates, texts that
    cannot match the audio, and missing licenses. Exits with 2 if it finds any.
    """
    faults = 0
    with progress_bar("checking") as progress:
        for finding in diagnostics(folder, progress):
            faults += 1
            sys.stdout.write(f"{finding}\n")
    if faults:
        raise typer.Exit(_USAGE)
    sys.stdout.write(f"{folder}: {numbered(len(read_manifest(folder).utterances), 'utterance')}, no faults found\n")


@app.command(epilog="Example: voiceprobe corpus cache --clear")
def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="remove everything; speech is rendered again when needed")
    ] = False,
) -> None:
    """Show where rendered speech is cached and how much space it takes."""
    root, limit = cache_root(), limit_bytes()
    if clear:
        sys.stdout.write(f"{root}: {trim(0) / 1e6:.1f} MB removed\n")
        return
    cached = cache_entries()
    kept = sum(size for _, size, _ in cached)
    entries = f"{len(cached)} {'entry' if len(cached) == 1 else 'entries'}"
    sys.stdout.write(f"{root}: {kept / 1e6:.1f} MB in {entries}, at most {limit / 1e9:g} GB\n")


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
        "licenses": list(info.licenses),
        "edges": info.edges,
        "fault": info.fault,
    }


def _table(infos: list[CorpusInfo]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    # Two lines per corpus, so that the table fits into eighty columns.
    table.add_column("name\nkind, license, edges")
    for column in ("utter-\nances", "short", "medium", "long", "speech", "speak-\ners"):
        table.add_column(column, justify="right", no_wrap=True)
    for info in infos:
        if info.fault is not None:
            table.add_row(f"{info.name}\ncannot be used: {info.fault}")
            continue
        counts = (info.utterance_count, info.short_count, info.medium_count, info.long_count)
        cells = (*map(str, counts), _duration(info.speech_s), str(len(info.speakers)))
        table.add_row(f"{info.name}\n{info.kind}, {', '.join(info.licenses)}, {info.edges} edges", *cells)
    return table


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
