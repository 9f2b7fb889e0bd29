"""LibriSpeech: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt, each line an id and what is read, the audio beside it."""

from corpora.errors import CorpusError
from corpora.importing.items import Fault, Found, Item, Layout, Settings
from corpora.importing.tree import SourceTree
from corpora.importing.words import read_text

_LIST = ".trans.txt"
_SUFFIXES = (".flac", ".wav", ".mp3")


def _items(tree: SourceTree, settings: Settings) -> Found:
    for listing in (path for path in tree.walk() if path.name.endswith(_LIST)):
        shown = tree.shown(listing)
        try:
            lines = read_text(tree.find(shown), shown).splitlines()
        except CorpusError as error:
            yield Fault(str(error))
            continue
        for number, line in enumerate(lines, start=1):
            name, _, text = line.strip().partition(" ")
            if not name:
                continue
            try:
                suffix = next((s for s in _SUFFIXES if (listing.parent / f"{name}{s}").exists()), _SUFFIXES[0])
                audio = tree.find(f"{name}{suffix}", tree.shown(listing.parent))
            except CorpusError as error:
                yield Fault(f"{shown}:{number}: {error}")
                continue
            speaker = f"librispeech-{name.split('-', 1)[0]}"
            yield Item(name, audio, tree.shown(audio), text or None, speaker, "en", "reading")


def _fits(tree: SourceTree) -> bool:
    return tree.file is None and any(path.name.endswith(_LIST) for path in tree.walk())


LIBRISPEECH = Layout(
    "librispeech",
    "LibriSpeech: FLAC files and .trans.txt lists by speaker and chapter",
    _fits,
    _items,
    licence="CC-BY-4.0",
    consent="read for LibriVox and given to the public domain",
)
