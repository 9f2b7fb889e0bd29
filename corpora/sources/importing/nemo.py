"""NeMo manifests: one JSON object per line with audio_filepath, text, and optionally offset and duration."""

from functools import partial
from pathlib import Path
from typing import Any

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Found, Item, Layout, Settings, each
from corpora.sources.importing.transcripts import number, read_objects, string
from corpora.sources.importing.tree import SourceTree, has_suffix

_SUFFIXES = (".json", ".jsonl")


def _manifests(tree: SourceTree) -> list[Path]:
    named = (
        [tree.file] if tree.file is not None else sorted(p for p in tree.root.iterdir() if has_suffix(p, *_SUFFIXES))
    )
    return [file for file in named if has_suffix(file, *_SUFFIXES) and b'"audio_filepath"' in _head(file)]


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            return content.read(65_536)
    except OSError:
        return b""


def _items(tree: SourceTree, settings: Settings) -> Found:
    manifests = _manifests(tree)
    if not manifests:
        raise CorpusError(f"{tree.file or tree.root}: is not a NeMo manifest (it has no audio_filepath); give one.")
    for manifest in manifests:
        rows = read_objects(tree.find(tree.shown(manifest)), manifest.name)
        yield from each(((f"{manifest.name}:{line}", row) for line, row in rows), partial(_item, tree))


def _item(tree: SourceTree, row: dict[str, Any] | None) -> Item:
    if row is None:
        raise CorpusError("is not a JSON object; write one object per line.")
    audio = tree.find(string(row, "audio_filepath") or "")
    offset_s, duration_s = number(row, "offset") or 0.0, number(row, "duration")
    return Item(
        name=audio.stem,
        audio=audio,
        shown=tree.shown(audio),
        text=string(row, "text"),
        speaker=string(row, "speaker", "speaker_id"),
        language=string(row, "lang", "language"),
        domain=string(row, "domain"),
        license=string(row, "license", "license"),
        consent=string(row, "consent"),
        start_s=offset_s,
        # Without an offset, the duration is just that of the file.
        end_s=offset_s + duration_s if duration_s is not None and "offset" in row else None,
    )


def _fits(tree: SourceTree) -> bool:
    return bool(_manifests(tree))


NEMO = Layout("nemo", _fits, _items)
