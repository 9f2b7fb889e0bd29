"""LibriSpeech: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt with an id and a text per line, with the audio next to it."""

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Layout, Settings
from corpora.sources.importing.transcripts import read_lines
from corpora.sources.importing.tree import SourceTree, has_suffix

_LIST = ".trans.txt"
_SUFFIXES = (".flac", ".wav", ".mp3")


def _items(tree: SourceTree, settings: Settings) -> Found:
    for listing in (path for path in tree.walk() if has_suffix(path, _LIST)):
        shown = tree.shown(listing)
        try:
            lines = list(read_lines(tree.find(shown), shown))
        except CorpusError as error:
            yield Fault(str(error))
            continue
        for number, line in lines:
            name, *rest = line.split(None, 1)
            text = rest[0] if rest else ""
            try:
                ends = (*_SUFFIXES, *(end.upper() for end in _SUFFIXES))
                suffix = next((end for end in ends if (listing.parent / f"{name}{end}").exists()), _SUFFIXES[0])
                audio = tree.find(f"{name}{suffix}", tree.shown(listing.parent))
            except CorpusError as error:
                yield Fault(f"{shown}:{number}: {error}")
                continue
            speaker = f"librispeech-{name.split('-', 1)[0]}"
            yield Item(name, audio, tree.shown(audio), text or None, speaker, "en", "reading")


def _fits(tree: SourceTree) -> bool:
    return tree.file is None and any(has_suffix(path, _LIST) for path in tree.walk())


LIBRISPEECH = Layout(
    "librispeech",
    _fits,
    _items,
    license="CC-BY-4.0",
    consent="read for LibriVox and given to the public domain",
)
