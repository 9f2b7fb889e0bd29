"""`voiceprobe corpus show`: prints tables, and writes a page with --out."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import open_corpus
from corpora.manifest.validation import numbered
from corpora.output_paths import unwritable, write_whole
from corpora.progress import progress_bar
from corpora.rendering.profiles.parsing import profile_from_text
from corpora.reports.gather import Shown, choose, gather

MAX_CLIPS: Final = 100
_BAR_WIDTH: Final = 30
EPILOG: Final = (
    'Example: voiceprobe corpus show voiceprobe-en --out corpus.html --profile "noise=babble snr=10 channel=telephone"'
)


def show(
    corpus: Annotated[str, typer.Argument(help="a folder, or the name of a corpus")],
    out: Annotated[Path | None, typer.Option("--out", help="write an HTML page to this file")] = None,
    clip: Annotated[
        list[str] | None, typer.Option("--clip", help="show the clip of this utterance; repeatable")
    ] = None,
    clips: Annotated[int, typer.Option("--clips", help="number of clips to show without --clip")] = 8,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile", help='also show the clips with this profile, as in "noise=babble snr=10"; repeatable'
        ),
    ] = None,
) -> None:
    """Show the lengths, domains and speakers of a corpus; --out writes a page with spectrograms, bounds and audio."""
    if not 0 <= clips <= MAX_CLIPS or len(clip or ()) > MAX_CLIPS:
        raise CorpusError(f"--clips {clips}: a page can show 0 to {MAX_CLIPS} clips; use fewer.")
    if out is not None and (fault := unwritable(out)):
        raise CorpusError(f"--out: {fault}.")
    profiles = [profile_from_text(text) for text in profile or ()]
    opened = open_corpus(corpus)
    chosen = choose(opened, clip or (), clips if out is not None else 0)
    with progress_bar("rendering") as progress:
        shown = gather(opened, chosen if out is not None else (), profiles, progress)
    console = Console()
    for name, counted in (("length", shown.by_length), ("domain", shown.by_domain), ("speaker", shown.by_speaker)):
        console.print(_table(name, counted))
    console.print(_summary(shown), soft_wrap=True)
    if out is not None:
        from corpora.reports.page import page  # imports what draws, which takes 0.3 s

        with progress_bar("drawing") as progress:
            _write(out, page(shown, progress))
        console.print(f"page: {out}", soft_wrap=True)


def _summary(shown: Shown) -> str:
    licenses = ", ".join(name for name, _ in shown.by_license)
    return (
        f"{shown.corpus.name}: {shown.corpus.kind} speech, {numbered(len(shown.corpus.utterances), 'utterance')}, "
        f"{shown.speech_s / 60:.1f} minutes ({licenses}); {shown.bounds_sentence}"
    )


def _table(name: str, counted: tuple[tuple[str, int], ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(name)
    table.add_column("utterances", justify="right")
    table.add_column("")
    largest = max(count for _, count in counted)
    for value, count in counted[:20]:
        table.add_row(value, str(count), "█" * max(1, round(_BAR_WIDTH * count / largest)))
    if len(counted) > 20:
        table.add_row(f"… {len(counted) - 20} more", str(sum(count for _, count in counted[20:])), "")
    return table


def _write(file: Path, text: str) -> None:
    try:
        write_whole(file, text.encode())
    except OSError as error:
        raise CorpusError(f"{file}: cannot be written ({error.strerror}); free space, or use another path.") from error
