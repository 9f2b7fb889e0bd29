"""Lhotse manifests: cuts, or recordings with supervisions, as lines of JSON (gzipped or not).

A recording that would have to be downloaded or produced by a command is rejected. The `transforms` of a recording are
applied if they can be reproduced exactly: speed, resampling and gain. Others are rejected.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Layout, Settings, Transform, each
from corpora.sources.importing.transcripts import number, read_objects, string
from corpora.sources.importing.tree import SourceTree, has_suffix

_ENDS = (".jsonl", ".jsonl.gz", ".json")
# Lhotse's name of a transform, its argument, its kind here, and the range of its value.
_TRANSFORMS: dict[str, tuple[str, Literal["speed", "resample", "gain"], float, float]] = {
    "Speed": ("factor", "speed", 0.1, 10.0),
    "Resample": ("target_sampling_rate", "resample", 1_000.0, 384_000.0),
    "Volume": ("factor", "gain", 0.0, 1_000.0),
}


def _named(tree: SourceTree, what: str) -> list[Path]:
    files = [tree.file] if tree.file is not None else sorted(path for path in tree.root.iterdir() if path.is_file())
    return [file for file in files if has_suffix(file, *_ENDS) and what in file.name]


def _objects(tree: SourceTree, files: list[Path]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for file in files:
        for line, row in read_objects(tree.find(tree.shown(file)), file.name):
            yield f"{file.name}:{line}", row


def _items(tree: SourceTree, settings: Settings) -> Found:
    cuts, supervisions = _named(tree, "cuts"), _named(tree, "supervisions")
    if cuts:
        yield from each(_objects(tree, cuts), partial(_from_cut, tree))
    elif supervisions and (recordings := _named(tree, "recordings")):
        yield from _from_supervisions(tree, recordings, supervisions)
    else:
        raise CorpusError(
            f"{tree.file or tree.root}: contains neither Lhotse cuts nor recordings with supervisions "
            "(.jsonl or .jsonl.gz with these words in their names); give the folder that does."
        )


def _from_cut(tree: SourceTree, cut: dict[str, Any] | None) -> Item:
    if cut is None:
        raise CorpusError("is not a JSON object; each line holds one.")
    if not isinstance(cut.get("recording"), dict):
        raise CorpusError("has no recording of its own (mixed and padded cuts are not imported); save it as one.")
    recording = cast("dict[str, Any]", cut["recording"])
    rows = _list(cut.get("supervisions"))
    supervisions = [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]
    text = " ".join(words for row in supervisions if (words := string(row, "text"))) or None
    return _item(tree, recording, cut, supervisions[0] if supervisions else {}, text)


def _from_supervisions(tree: SourceTree, recordings: list[Path], supervisions: list[Path]) -> Found:
    known: dict[str, dict[str, Any]] = {}
    for where, recording in _objects(tree, recordings):
        name = None if recording is None else string(recording, "id")
        if recording is None or name is None:
            yield Fault(f"{where}: is not a recording with an id; write one per line.")
        else:
            known[name] = recording

    def item(supervision: dict[str, Any] | None) -> Item:
        name = None if supervision is None else string(supervision, "recording_id")
        if supervision is None or name not in known:
            raise CorpusError(f"its recording {name} is unknown; correct its recording_id.")
        return _item(tree, known[name], supervision, supervision, string(supervision, "text"))

    yield from each(_objects(tree, supervisions), item)


def _item(
    tree: SourceTree,
    recording: Mapping[str, Any],
    segment: Mapping[str, Any],
    supervision: Mapping[str, Any],
    text: str | None,
) -> Item:
    sources = _list(recording.get("sources"))
    if len(sources) != 1 or not isinstance(sources[0], dict):
        raise CorpusError("its recording must have exactly one source; save it as one file.")
    source = cast("dict[str, Any]", sources[0])
    if source.get("type") != "file":
        raise CorpusError(f"its recording has the type {source.get('type')!r}, but must be a file; save it as one.")
    audio = tree.find(string(source, "source") or "")
    start_s, duration_s = number(segment, "start") or 0.0, number(segment, "duration")
    if duration_s is None:
        raise CorpusError("has no duration; add it.")
    transforms = _transforms(recording)
    # The times apply after the transforms, but the file is cut before them.
    speed = math.prod(transform.value for transform in transforms if transform.kind == "speed")
    channel = segment.get("channel", 0)
    several = len(_list(source.get("channels"))) > 1
    return Item(
        name=string(segment, "id") or audio.stem,
        audio=audio,
        shown=tree.shown(audio),
        text=text,
        speaker=string(supervision, "speaker"),
        language=string(supervision, "language"),
        start_s=start_s * speed,
        end_s=(start_s + duration_s) * speed,
        channel=channel if several and isinstance(channel, int) and channel >= 0 else None,
        transforms=transforms,
    )


def _transforms(recording: Mapping[str, Any]) -> tuple[Transform, ...]:
    """The transforms of a recording, in order. Raises CorpusError if one cannot be reproduced exactly."""
    given = recording.get("transforms")
    if given is not None and not isinstance(given, list):
        raise CorpusError("the transforms of its recording are not a list; correct them.")
    return tuple(map(_transform, _list(given)))


def _transform(given: object) -> Transform:
    row = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    name = row.get("name")
    if not isinstance(name, str) or name not in _TRANSFORMS:
        raise CorpusError(
            f"its recording has the transform {name!r}, which is not supported (only {', '.join(_TRANSFORMS)} are); "
            "save the cut as audio first (CutSet.save_audios)."
        )
    field, kind, low, high = _TRANSFORMS[name]
    arguments = row.get("kwargs")
    value = cast("dict[str, Any]", arguments).get(field) if isinstance(arguments, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value == 0.0:
        raise CorpusError(
            f"the transform {name} of its recording has the {field} {value!r}; it must be a number "
            f"from {low:g} to {high:g}, and not 0."
        )
    return Transform(kind, float(value))


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _fits(tree: SourceTree) -> bool:
    return bool(_named(tree, "cuts") or (_named(tree, "supervisions") and _named(tree, "recordings")))


LHOTSE = Layout("lhotse", _fits, _items)
