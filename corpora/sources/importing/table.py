"""A CSV or TSV with a header and a column for the file.

Optional columns are text, speaker, language, domain, license, consent, id, channel, start_s, end_s and duration_s. Rows
with the same `conversation` form one, in their order, optionally with think_s, intent and barge_in_after_s.
"""

from pathlib import Path

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Layout, Place, Settings
from corpora.sources.importing.transcripts import Row, number, read_header, read_table, string
from corpora.sources.importing.tree import SourceTree, has_suffix

_SUFFIXES = (".csv", ".tsv")
_FILE_COLUMNS = ("audio", "file", "filename", "file_name", "path", "wav", "audio_filepath", "audio_path", "clip")
_TEXT_COLUMNS = ("text", "sentence", "transcript", "transcription")


def _tables(tree: SourceTree) -> list[Path]:
    named = (
        [tree.file] if tree.file is not None else sorted(p for p in tree.root.iterdir() if has_suffix(p, *_SUFFIXES))
    )
    tables = [file for file in named if has_suffix(file, *_SUFFIXES)]
    return [file for file in tables if read_header(file, tree.shown(file)) & set(_FILE_COLUMNS)]


def _items(tree: SourceTree, settings: Settings) -> Found:
    tables = _tables(tree)
    if len(tables) != 1:
        found = ", ".join(file.name for file in tables) or "none"
        raise CorpusError(
            f"{tree.file or tree.root}: expected one table with a column {' or '.join(_FILE_COLUMNS[:4])}, "
            f"found: {found}; give the path of the table."
        )
    table = tables[0]
    rows = read_table(tree.find(tree.shown(table)), table.name)
    for line, row in rows:
        try:
            yield _item(tree, row)
        except CorpusError as error:
            yield Fault(f"{table.name}:{line}: {error}", string(row, "conversation"))


def _item(tree: SourceTree, row: Row) -> Item:
    audio = tree.find(string(row, *_FILE_COLUMNS) or "")
    start_s = number(row, "start_s", "start") or 0.0
    end_s, duration_s, channel = number(row, "end_s", "end"), number(row, "duration_s"), number(row, "channel")
    conversation = string(row, "conversation")
    place = None
    if conversation is not None:
        place = Place(conversation, number(row, "think_s"), string(row, "intent"), number(row, "barge_in_after_s"))
    return Item(
        name=string(row, "id") or audio.stem,
        audio=audio,
        shown=tree.shown(audio),
        text=string(row, *_TEXT_COLUMNS),
        speaker=string(row, "speaker", "speaker_id", "client_id"),
        language=string(row, "language", "locale", "lang"),
        domain=string(row, "domain"),
        license=string(row, "license", "license"),
        consent=string(row, "consent"),
        start_s=start_s,
        end_s=start_s + duration_s if end_s is None and duration_s is not None else end_s,
        channel=None if channel is None else int(channel),
        place=place,
    )


def _fits(tree: SourceTree) -> bool:
    return len(_tables(tree)) == 1


TABLE = Layout("csv", _fits, _items)
