"""The layouts of recordings that can be imported: each is a reader that yields rows over one table of columns.

`make_item` turns a row into an item, whatever layout it comes from. Commands and addresses in a manifest are never
used: a row names a file of the source. Recorded calls, which have no rows, are in `stereo_calls`.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Fault, Found, Item, Line, Place, Settings, Skipped, Transform
from corpora.sources.importing.stereo_calls import find_calls
from corpora.sources.importing.tables import (
    number,
    read_header,
    read_lines,
    read_objects,
    read_table,
    read_text,
    string,
)
from corpora.sources.importing.tree import SourceTree, file_with_suffix, has_suffix, is_audio, same_name

# What the columns of a row are called in the layouts, by the field of an item.
FILE_NAMES: Final = (
    *("audio", "file", "filename", "file_name", "path", "wav", "audio_filepath", "audio_path", "clip"),
    "audio_file_name",
)
COLUMNS: Final = {
    "text": ("text", "sentence", "transcript", "transcription", "normalized_text", "raw_text"),
    "speaker": ("speaker", "speaker_id", "client_id"),
    "language": ("language", "locale", "lang"),
    "domain": ("domain",),
    "license": ("license",),
    "consent": ("consent",),
}
_LONGEST_TEXT_BYTES: Final = 65_536
_HEAD_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of recordings, with functions to detect it and to find what is in it."""

    name: str
    fits: Callable[[SourceTree], bool]
    find: Callable[[SourceTree, Settings], Found]
    license: str | None = None  # if the publisher's is known
    consent: str | None = None

    def items(self, tree: SourceTree, settings: Settings) -> Iterator[Item | Fault | Skipped]:
        """Yield the items of a source, and a sentence for each line that cannot be one."""
        for entry in self.find(tree, settings):
            if not isinstance(entry, Line):
                yield entry
                continue
            try:
                yield make_item(tree, entry)
            except CorpusError as error:
                conversation = string(entry.row or {}, "conversation")
                yield Fault(f"{entry.where}: {error}", conversation)


def make_item(tree: SourceTree, line: Line) -> Item:
    """Make an item of a line. Raises CorpusError if its file is missing, or a number is not one."""
    row = line.row
    if row is None:
        raise CorpusError("is not a JSON object; write one object per line.")
    audio = tree.find(string(row, *FILE_NAMES) or "", line.below)
    start_s = number(row, "start_s", "start", "offset") or 0.0
    end_s, duration_s = number(row, "end_s", "end"), number(row, "duration_s")
    if duration_s is None and "offset" in row:  # without an offset, a duration is just that of the file
        duration_s = number(row, "duration")
    channel, conversation, place = number(row, "channel"), string(row, "conversation"), None
    if conversation is not None:
        place = Place(conversation, number(row, "think_s"), string(row, "intent"), number(row, "barge_in_after_s"))
    return Item(
        name=string(row, "id") or audio.stem,
        audio=audio,
        shown=tree.shown(audio),
        **{field: string(row, *names) for field, names in COLUMNS.items()},
        start_s=start_s,
        end_s=start_s + duration_s if end_s is None and duration_s is not None else end_s,
        channel=None if channel is None else int(channel),
        place=place,
        transforms=line.transforms,
    )


def layout_of(tree: SourceTree, name: str | None, is_calls: bool = False) -> Layout:
    """The layout with a known name, or the first that fits the source. Raises CorpusError if none fits."""
    if name is not None or is_calls:
        return LAYOUTS[name or "stereo-calls"]
    layout = next((layout for layout in LAYOUTS.values() if layout.fits(tree)), None)
    if layout is None:
        raise CorpusError(
            f"{tree.file or tree.root}: has no recognized layout; choose one with --format ({', '.join(LAYOUTS)})."
        )
    return layout


def _lists(tree: SourceTree, *suffixes: str) -> list[Path]:
    """The file of the source, or those at its root, that have one of these suffixes."""
    files = [tree.file] if tree.file is not None else sorted(path for path in tree.root.iterdir() if path.is_file())
    return [file for file in files if has_suffix(file, *suffixes)]


def _rows(tree: SourceTree, file: Path) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """The rows of a table or of JSON lines, each with its location."""
    shown = tree.shown(file)
    read = read_table if has_suffix(file, ".csv", ".tsv") else read_objects
    yield from ((f"{shown}:{line}", row) for line, row in read(tree.find(shown), shown))


def _only(row: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Any] | None:
    """A row with these columns alone; the others may mean something else than in a table."""
    return None if row is None else {name: row[name] for name in names if name in row}


def _mentions(file: Path, *fields: str) -> bool:
    """Return whether a field is named in the beginning of a file of JSON."""
    try:
        with file.open("rb") as content:
            head = content.read(_HEAD_BYTES)
    except OSError:
        return False
    return any(f'"{field}"'.encode() in head for field in fields)


def _with_suffix(folder: Path, name: str, default: str) -> str:
    """The name of a recording with the suffix that its file in a folder has, also in capital letters."""
    suffixes = (default, ".wav", ".flac", ".mp3", ".ogg")
    with suppress(OSError):  # a name that is too long
        default = next(
            (end for end in (*suffixes, *map(str.upper, suffixes)) if (folder / f"{name}{end}").is_file()), default
        )
    return f"{name}{default}"


# Kaldi: wav.scp, and optionally text, utt2spk and segments.


def _kaldi(tree: SourceTree, settings: Settings) -> Found:
    if not (tree.root / "wav.scp").is_file():
        raise CorpusError(f"{tree.root}: contains no wav.scp, so it is not a Kaldi data folder; give one.")
    texts = _pairs(tree, "text")
    text_of, speaker_of = ({key: value for _, key, value in pairs} for pairs in (texts, _pairs(tree, "utt2spk")))
    recordings = {key: (line, entry) for line, key, entry in _pairs(tree, "wav.scp")}
    listing, segments = "wav.scp", [(line, key, f"{key} 0 -1") for key, (line, _) in recordings.items()]
    if (tree.root / "segments").exists():
        listing, segments = "segments", _pairs(tree, "segments")
    for line, name, rest in segments:
        recording, *cells = rest.split() or [""]
        scp_line, entry = recordings.get(recording, (0, ""))
        times = _kaldi_times(cells)
        if not scp_line or times is None:
            yield Fault(
                f"{listing}:{line}: {name}: does not name a recording of wav.scp with a start and an end in seconds "
                "(-1: to its end), and then at most a channel; correct it."
            )
        elif entry.startswith("|") or entry.endswith("|"):
            yield Fault(
                f"{listing}:{line}: wav.scp:{scp_line}: is a command, and commands are never run; write its output to "
                "a file."
            )
        else:
            words = {"audio": entry, "id": name, "text": text_of.get(name), "speaker": speaker_of.get(name)}
            yield Line(f"{listing}:{line}", words | times)
    names = {name for _, name, _ in segments}
    for line, key, _ in texts:
        if key not in names:
            yield Skipped(f"text:{line}: the text of {key} is not used because no recording or segment has this name.")


def _pairs(tree: SourceTree, name: str) -> list[tuple[int, str, str]]:
    if not (tree.root / name).exists():
        return []
    # A key is separated from its value by any whitespace.
    split = ((line, text.split(None, 1)) for line, text in read_lines(tree.find(name), name))
    return [(line, words[0], words[1] if len(words) > 1 else "") for line, words in split]


def _kaldi_times(cells: list[str]) -> dict[str, float | None] | None:
    """Start, end and channel of a segment, None if they are invalid. Kaldi writes -1 for the end of the recording."""
    try:
        start_s, end_s = (float(cell) for cell in cells[:2])
        channel = int(cells[2]) if len(cells) > 2 else None
    except ValueError:
        return None
    to_end = end_s == -1.0
    is_valid = 0.0 <= start_s < (1e9 if to_end else end_s) <= 1e9 and (channel is None or channel >= 0)
    if not is_valid or len(cells) > 3:
        return None
    return {"start_s": start_s, "end_s": None if to_end else end_s, "channel": channel}


# LibriSpeech: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt with an id and a text per line, with the audio next to it.


def _librispeech_lists(tree: SourceTree) -> Iterator[Path]:
    yield from (path for path in tree.walk() if has_suffix(path, ".trans.txt"))


def _librispeech(tree: SourceTree, settings: Settings) -> Found:
    for listing in _librispeech_lists(tree):
        shown = tree.shown(listing)
        try:
            for line, words in read_lines(tree.find(shown), shown):
                name, *rest = words.split(None, 1)
                row = {"audio": _with_suffix(listing.parent, name, ".flac"), "id": name, "text": "".join(rest)}
                row |= {"speaker": f"librispeech-{name.split('-', 1)[0]}", "language": "en", "domain": "reading"}
                yield Line(f"{shown}:{line}", row, tree.shown(listing.parent))
        except CorpusError as error:
            yield Fault(str(error))


# Mozilla Common Voice: a table (validated.tsv, unless another one is given) and the folder `clips`.


def _common_voice_table(tree: SourceTree) -> Path | None:
    named = [tree.file] if tree.file is not None else []
    if tree.file is None:
        preferred = ("validated.tsv", "test.tsv", "dev.tsv", "train.tsv")
        named = [table for name in preferred if (table := same_name(tree.root / name)).is_file()]
    needed = {"client_id", "path", "sentence"}
    return next((file for file in named if read_header(file, tree.shown(file)) >= needed), None)


def _common_voice(tree: SourceTree, settings: Settings) -> Found:
    table = _common_voice_table(tree)
    if table is None:
        raise CorpusError(
            f"{tree.file or tree.root}: is not Common Voice (no table with client_id, path and sentence); "
            "give the folder of one language, or one of its .tsv files."
        )
    for line, cells in read_table(tree.find(tree.shown(table)), table.name):
        name = cells.get("path", "")
        # The client id identifies a person's account; a short digest also distinguishes speakers.
        speaker = "common-voice-" + hashlib.sha256(cells.get("client_id", "").encode()).hexdigest()[:12]
        row = {"audio": name if name.lower().endswith((".mp3", ".wav", ".ogg")) else f"{name}.mp3"}
        row |= {"id": Path(name).stem, "text": cells.get("sentence", ""), "speaker": speaker, "domain": "reading"}
        yield Line(f"{table.name}:{line}", row | {"language": cells.get("locale", "")}, "clips")


# Lhotse: cuts, or recordings with supervisions, as lines of JSON (gzipped or not). Transforms of a recording are
# applied if they can be reproduced exactly: by Lhotse's name, its argument, the kind here, and the range of its value.
_TRANSFORMS: Final[dict[str, tuple[str, Literal["speed", "resample", "gain"], float, float]]] = {
    "Speed": ("factor", "speed", 0.1, 10.0),
    "Resample": ("target_sampling_rate", "resample", 1_000.0, 384_000.0),
    "Volume": ("factor", "gain", 0.0, 1_000.0),
}


def _lhotse_rows(tree: SourceTree, what: str) -> list[Path]:
    return [file for file in _lists(tree, ".jsonl", ".jsonl.gz", ".json") if what in file.name]


def _lhotse_fits(tree: SourceTree) -> bool:
    return bool(_lhotse_rows(tree, "cuts") or (_lhotse_rows(tree, "supervisions") and _lhotse_rows(tree, "recordings")))


def _lhotse(tree: SourceTree, settings: Settings) -> Found:
    if not _lhotse_fits(tree):
        raise CorpusError(
            f"{tree.file or tree.root}: contains neither Lhotse cuts nor recordings with supervisions "
            "(.jsonl or .jsonl.gz with these words in their names); give the folder that does."
        )
    cuts = _lhotse_rows(tree, "cuts")
    known: dict[str | None, Any] = {}
    for where, recording in (row for file in _lhotse_rows(tree, "recordings") if not cuts for row in _rows(tree, file)):
        name = string(recording or {}, "id")
        if name is None:
            yield Fault(f"{where}: is not a recording with an id; write one per line.")
        known[name] = recording
    for where, row in (row for file in cuts or _lhotse_rows(tree, "supervisions") for row in _rows(tree, file)):
        if row is None:
            yield Line(where, None)
            continue
        try:
            yield _cut_line(where, row) if cuts else _supervision_line(where, row, known)
        except CorpusError as error:
            yield Fault(f"{where}: {error}")


def _cut_line(where: str, cut: Mapping[str, Any]) -> Line:
    if not isinstance(cut.get("recording"), dict):
        raise CorpusError("has no recording of its own (mixed and padded cuts are not imported); save it as one.")
    supervisions = [cast("dict[str, Any]", row) for row in _list(cut.get("supervisions")) if isinstance(row, dict)]
    words = {key: string(row, key) for row in supervisions[:1] for key in ("speaker", "language")}
    text = " ".join(filter(None, (string(row, "text") for row in supervisions)))
    return _part_of(where, cut["recording"], cut, words | {"text": text})


def _supervision_line(where: str, supervision: Mapping[str, Any], known: Mapping[str | None, Any]) -> Line:
    name = string(supervision, "recording_id")
    if name is None or name not in known:
        raise CorpusError(f"its recording {name} is unknown; correct its recording_id.")
    words = {key: string(supervision, key) for key in ("text", "speaker", "language")}
    return _part_of(where, known[name], supervision, words)


def _part_of(where: str, recording: Mapping[str, Any], part: Mapping[str, Any], words: dict[str, str | None]) -> Line:
    """The line of a part of a recording; `words` are its text, speaker and language."""
    sources = _list(recording.get("sources"))
    if len(sources) != 1 or not isinstance(sources[0], dict):
        raise CorpusError("its recording must have exactly one source; save it as one file.")
    source = cast("dict[str, Any]", sources[0])
    if source.get("type") != "file":
        raise CorpusError(f"its recording has the type {source.get('type')!r}, but must be a file; save it as one.")
    start_s, duration_s = number(part, "start") or 0.0, number(part, "duration")
    if duration_s is None:
        raise CorpusError("has no duration; add it.")
    given = recording.get("transforms")
    if given is not None and not isinstance(given, list):
        raise CorpusError("the transforms of its recording are not a list; correct them.")
    transforms = tuple(map(_transform, _list(given)))
    # The times apply after the transforms, but the file is cut before them.
    speed = math.prod(transform.value for transform in transforms if transform.kind == "speed")
    channel = part.get("channel", 0)
    is_chosen = len(_list(source.get("channels"))) > 1 and isinstance(channel, int) and channel >= 0
    row = {"audio": string(source, "source"), "id": string(part, "id"), "channel": channel if is_chosen else None}
    times = {"start_s": start_s * speed, "end_s": (start_s + duration_s) * speed}
    return Line(where, row | words | times, transforms=transforms)


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


# NeMo: one JSON object per line with audio_filepath, text, and optionally offset and duration.


_NEMO_COLUMNS: Final = ("audio_filepath", "offset", "duration", *(name for names in COLUMNS.values() for name in names))


def _nemo_lists(tree: SourceTree) -> list[Path]:
    return [file for file in _lists(tree, ".json", ".jsonl") if _mentions(file, "audio_filepath")]


def _nemo(tree: SourceTree, settings: Settings) -> Found:
    if not _nemo_lists(tree):
        raise CorpusError(f"{tree.file or tree.root}: is not a NeMo manifest (it has no audio_filepath); give one.")
    for manifest in _nemo_lists(tree):
        yield from (Line(where, _only(row, _NEMO_COLUMNS)) for where, row in _rows(tree, manifest))


# Hugging Face: metadata.csv or metadata.jsonl with file_name and a text, in any folder; names are relative to it.


_HUGGINGFACE_FILES: Final = ("file_name", "audio_file_name")


def _huggingface_lists(tree: SourceTree) -> Iterator[Path]:
    for file in [tree.file] if tree.file is not None else tree.walk():
        if file.name.lower() == "metadata.jsonl" and _mentions(file, *_HUGGINGFACE_FILES):
            yield file
        if file.name.lower() == "metadata.csv" and read_header(file, tree.shown(file)) & set(_HUGGINGFACE_FILES):
            yield file


def _huggingface(tree: SourceTree, settings: Settings) -> Found:
    lists = list(_huggingface_lists(tree))
    if not lists:
        raise CorpusError(
            f"{tree.file or tree.root}: contains no metadata.csv or metadata.jsonl with a file_name; "
            "give the folder that does."
        )
    for metadata in lists:
        below = tree.shown(metadata.parent)
        for where, row in _rows(tree, metadata):
            # Columns such as start and duration are about a longer recording that the file was cut from.
            kept = _only(row, (*_HUGGINGFACE_FILES, *(name for names in COLUMNS.values() for name in names)))
            audio = Path(below) / (string(row or {}, *_HUGGINGFACE_FILES) or "")
            name = str(audio.with_suffix("")) if audio.name else None  # "/" has none
            text = string(row or {}, "transcription", *COLUMNS["text"])
            yield Line(where, kept and kept | {"id": name, "text": text}, below)


# LJSpeech and similar: metadata.csv with ID|text|normalized text, without a header, and wavs/ID.wav. The normalized
# text (numbers and abbreviations written out) is used, or the other one if it is missing.


def _ljspeech_list(tree: SourceTree) -> Path:
    return same_name(tree.root / "metadata.csv") if tree.file is None else tree.file


def _ljspeech_audio(tree: SourceTree, name: str) -> str:
    return _with_suffix(tree.root / "wavs", name, "" if "." in name else ".wav")


def _ljspeech(tree: SourceTree, settings: Settings) -> Found:
    listing = _ljspeech_list(tree)
    for line, text in read_lines(tree.find(tree.shown(listing)), listing.name):
        cells = [cell.strip() for cell in text.split("|")]
        where = f"{listing.name}:{line}"
        if 2 <= len(cells) <= 3:
            audio = _ljspeech_audio(tree, cells[0])
            yield Line(where, {"audio": audio, "id": cells[0], "text": cells[-1] or cells[1]}, "wavs")
        else:
            yield Fault(f"{where}: has {len(cells)} cells instead of ID|text|normalized text; correct it.")


def _ljspeech_fits(tree: SourceTree) -> bool:
    listing = _ljspeech_list(tree)
    if listing.name.lower() != "metadata.csv" or not listing.is_file():
        return False
    try:
        cells = next(read_lines(listing, listing.name), (0, ""))[1].split("|")
        tree.find(_ljspeech_audio(tree, cells[0].strip()), "wavs")
    except CorpusError:
        return False
    return 2 <= len(cells) <= 3


# A CSV or TSV with a header and a column for the file; rows with the same `conversation` form one, in their order.


def _tables(tree: SourceTree) -> list[Path]:
    return [file for file in _lists(tree, ".csv", ".tsv") if read_header(file, tree.shown(file)) & set(FILE_NAMES)]


def _table(tree: SourceTree, settings: Settings) -> Found:
    tables = _tables(tree)
    if len(tables) != 1:
        names = ", ".join(file.name for file in tables) or "none"
        raise CorpusError(
            f"{tree.file or tree.root}: expected one table with a column {' or '.join(FILE_NAMES[:4])}, "
            f"found: {names}; give the path of the table."
        )
    yield from (Line(where, row) for where, row in _rows(tree, tables[0]))


# A folder of recordings with a text file next to each: `yes.wav` and `yes.txt` (or .lab), also in subfolders.


def _recordings(tree: SourceTree) -> Iterator[Path]:
    yield from (path for path in tree.walk() if is_audio(path)) if tree.file is None else (tree.file,)


def _folder(tree: SourceTree, settings: Settings) -> Found:
    for path in _recordings(tree):
        shown = tree.shown(path)
        try:
            yield Item(str(Path(shown).with_suffix("")), tree.find(shown), shown, _text_of(tree, path))
        except CorpusError as error:
            yield Fault(str(error))


def _text_of(tree: SourceTree, path: Path) -> str | None:
    # Both yes.txt and yes.wav.txt are common.
    for text in (file_with_suffix(path, suffix) for suffix in (".txt", ".lab", f"{path.suffix}.txt")):
        if text.is_symlink() or text.is_file():
            shown = tree.shown(text)
            file = tree.find(shown)
            if file.stat().st_size > _LONGEST_TEXT_BYTES:
                raise CorpusError(f"{shown}: is too large to be the text of {path.name}; correct it.")
            return read_text(file, shown)
    return None


# Specific layouts come first: a folder fits almost every source, and a table also fits Common Voice.
LAYOUTS: Final = {
    layout.name: layout
    for layout in (
        Layout("kaldi", lambda tree: tree.file is None and (tree.root / "wav.scp").is_file(), _kaldi),
        Layout(
            "librispeech",
            lambda tree: tree.file is None and any(True for _ in _librispeech_lists(tree)),
            _librispeech,
            license="CC-BY-4.0",
            consent="read for LibriVox and given to the public domain",
        ),
        Layout(
            "common-voice",
            lambda tree: (tree.file is None or has_suffix(tree.file, ".tsv")) and _common_voice_table(tree) is not None,
            _common_voice,
            license="CC0-1.0",
            consent="given to Mozilla Common Voice by its speakers",
        ),
        Layout("lhotse", _lhotse_fits, _lhotse),
        Layout("nemo", lambda tree: bool(_nemo_lists(tree)), _nemo),
        Layout("huggingface", lambda tree: any(True for _ in _huggingface_lists(tree)), _huggingface),
        Layout("ljspeech", _ljspeech_fits, _ljspeech),
        Layout("csv", lambda tree: len(_tables(tree)) == 1, _table),
        Layout("stereo-calls", lambda tree: False, find_calls),
        Layout("folder", lambda tree: any(True for _ in _recordings(tree)), _folder),
    )
}
