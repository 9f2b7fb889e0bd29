"""A Kaldi data folder: wav.scp, and optionally text, utt2spk and segments.

Entries of wav.scp that are commands or offsets in archives are rejected: commands in a manifest are never run.
"""

from dataclasses import dataclass

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Found, Item, Layout, Settings, Skipped, each
from corpora.sources.importing.transcripts import read_lines
from corpora.sources.importing.tree import SourceTree

_SCP = "wav.scp"
_TO_THE_END_S = -1.0
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class _KaldiSegment:
    """An utterance and its recording, with start and end."""

    where: str
    name: str
    recording: str
    start_s: float | None  # None: the line is invalid
    end_s: float | None  # None: the end of the recording
    channel: int | None = None


def _pairs(tree: SourceTree, name: str) -> list[tuple[int, str, str]]:
    if not (tree.root / name).exists():
        return []
    # A key is separated from its value by any whitespace.
    split = ((number, line.split(None, 1)) for number, line in read_lines(tree.find(name), name))
    return [(number, words[0], words[1] if len(words) > 1 else "") for number, words in split]


def _items(tree: SourceTree, settings: Settings) -> Found:
    if not (tree.root / _SCP).is_file():
        raise CorpusError(f"{tree.root}: contains no {_SCP}, so it is not a Kaldi data folder; give one.")
    text_lines = _pairs(tree, "text")
    texts = {key: text for _, key, text in text_lines}
    speakers = {key: speaker for _, key, speaker in _pairs(tree, "utt2spk")}
    recordings = {key: (number, entry) for number, key, entry in _pairs(tree, _SCP)}
    segments = _segments(tree) if (tree.root / "segments").exists() else _whole(recordings)

    def item(segment: _KaldiSegment) -> Item:
        if segment.recording not in recordings or segment.start_s is None:
            raise CorpusError(
                f"{segment.name}: does not name a recording of {_SCP} with a start and an end in seconds (-1: to its "
                "end), and then at most a channel; correct it."
            )
        scp_line, entry = recordings[segment.recording]
        if entry.startswith("|") or entry.rstrip().endswith("|"):
            raise CorpusError(
                f"{_SCP}:{scp_line}: is a command, and commands are never run; write its output to a file."
            )
        audio = tree.find(entry)
        return Item(
            name=segment.name,
            audio=audio,
            shown=tree.shown(audio),
            text=texts.get(segment.name) or None,
            speaker=speakers.get(segment.name) or None,
            start_s=segment.start_s,
            end_s=segment.end_s,
            channel=segment.channel,
        )

    yield from each(((segment.where, segment) for segment in segments), item)
    names = {segment.name for segment in segments}
    for line, key, _ in text_lines:
        if key not in names:
            yield Skipped(f"text:{line}: the text of {key} is not used because no recording or segment has this name.")


def _whole(recordings: dict[str, tuple[int, str]]) -> list[_KaldiSegment]:
    return [_KaldiSegment(f"{_SCP}:{line}", name, name, 0.0, None) for name, (line, _) in recordings.items()]


def _segments(tree: SourceTree) -> list[_KaldiSegment]:
    found: list[_KaldiSegment] = []
    for line, name, rest in _pairs(tree, "segments"):
        cells = rest.split()
        start_s, end_s, channel = _times(cells[1:])
        found.append(_KaldiSegment(f"segments:{line}", name, cells[0] if cells else "", start_s, end_s, channel))
    return found


def _times(cells: list[str]) -> tuple[float | None, float | None, int | None]:
    """Start, end and channel of a segment; a start of None if they are invalid. Kaldi writes -1 for the end of the
    recording."""
    try:
        start_s, end_s = (float(cell) for cell in cells[:2])
        channel = int(cells[2]) if len(cells) > 2 else None
    except ValueError:
        return None, None, None
    to_end = end_s == _TO_THE_END_S
    valid = 0.0 <= start_s < (_LONGEST_S if to_end else end_s) <= _LONGEST_S and (channel is None or channel >= 0)
    return (start_s, None if to_end else end_s, channel) if valid and len(cells) <= 3 else (None, None, None)


def _fits(tree: SourceTree) -> bool:
    return tree.file is None and (tree.root / _SCP).is_file()


KALDI = Layout("kaldi", _fits, _items)
