"""Mozilla Common Voice: a table (validated.tsv, unless another one is given) and the folder `clips`."""

import hashlib
from pathlib import Path

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Layout, Settings
from corpora.sources.importing.transcripts import read_header, read_table
from corpora.sources.importing.tree import SourceTree, has_suffix, same_name

_COLUMNS = frozenset({"client_id", "path", "sentence"})
_PREFERRED = ("validated.tsv", "test.tsv", "dev.tsv", "train.tsv")


def _table(tree: SourceTree) -> Path | None:
    if tree.file is not None:
        named = (tree.file,)
    else:
        tables = (same_name(tree.root / name) for name in _PREFERRED)
        named = tuple(table for table in tables if table.is_file())
    return next((file for file in named if read_header(file, tree.shown(file)) >= _COLUMNS), None)


def _items(tree: SourceTree, settings: Settings) -> Found:
    table = _table(tree)
    if table is None:
        raise CorpusError(
            f"{tree.file or tree.root}: is not Common Voice (no table with client_id, path and sentence); "
            "give the folder of one language, or one of its .tsv files."
        )
    for line, row in read_table(tree.find(tree.shown(table)), table.name):
        name = row.get("path", "")
        try:
            audio = tree.find(name if name.lower().endswith((".mp3", ".wav", ".ogg")) else f"{name}.mp3", "clips")
        except CorpusError as error:
            yield Fault(f"{table.name}:{line}: {error}")
            continue
        # The client id identifies a person's account; a short digest also distinguishes speakers.
        speaker = "common-voice-" + hashlib.sha256(row.get("client_id", "").encode()).hexdigest()[:12]
        yield Item(
            name=Path(name).stem,
            audio=audio,
            shown=tree.shown(audio),
            text=row.get("sentence") or None,
            speaker=speaker,
            language=row.get("locale") or None,
            domain="reading",
        )


def _fits(tree: SourceTree) -> bool:
    return (tree.file is None or has_suffix(tree.file, ".tsv")) and _table(tree) is not None


COMMON_VOICE = Layout(
    "common-voice",
    _fits,
    _items,
    license="CC0-1.0",
    consent="given to Mozilla Common Voice by its speakers",
)
