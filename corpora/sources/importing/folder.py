"""A folder of audio files with a text file next to each: `yes.wav` and `yes.txt` (or .lab), also in subfolders.

A recording without a text file is imported without a text.
"""

from collections.abc import Iterator
from pathlib import Path

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Layout, Settings
from corpora.sources.importing.transcripts import read_text
from corpora.sources.importing.tree import SourceTree, beside, is_audio

_TEXT_SUFFIXES = (".txt", ".lab")
_LONGEST_TEXT_BYTES = 65_536


def _items(tree: SourceTree, settings: Settings) -> Found:
    for path in _recordings(tree):
        shown = tree.shown(path)
        try:
            yield Item(
                name=str(Path(shown).with_suffix("")), audio=tree.find(shown), shown=shown, text=_text(tree, path)
            )
        except CorpusError as error:
            yield Fault(str(error))


def _recordings(tree: SourceTree) -> Iterator[Path]:
    if tree.file is not None:
        yield tree.file
        return
    yield from (path for path in tree.walk() if is_audio(path))


def _text(tree: SourceTree, path: Path) -> str | None:
    # Both yes.txt and yes.wav.txt are common.
    for text in (*(beside(path, suffix) for suffix in _TEXT_SUFFIXES), beside(path, f"{path.suffix}.txt")):
        if text.is_symlink() or text.is_file():
            shown = tree.shown(text)
            file = tree.find(shown)
            if file.stat().st_size > _LONGEST_TEXT_BYTES:
                raise CorpusError(f"{shown}: is too large to be the text of {path.name}; correct it.")
            return read_text(file, shown)
    return None


def _fits(tree: SourceTree) -> bool:
    return any(True for _ in _recordings(tree))


FOLDER = Layout("folder", _fits, _items)
