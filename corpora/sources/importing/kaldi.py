"""A Kaldi data folder: wav.scp, and text, utt2spk and segments where there are any.

Entries of wav.scp that are commands or places in archives are refused: nothing that a manifest says is ever run.
"""

from dataclasses import dataclass

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.items import Found, Item, Layout, Settings, Skipped, each
from corpora.sources.importing.transcripts import read_lines
from corpora.sources.importing.tree import SourceTree

_SCP = "wav.scp"
_SENSELESS = -1.0  # the end of a segment whose line makes no sense
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class _KaldiSegment:
    """An utterance and where in which recording it is."""

    where: str
    name: str
    recording: str
    start_s: float
    end_s: float | None


def _pairs(tree: SourceTree, name: str) -> list[tuple[int, str, str]]:
    if not (tree.root / name).exists():
        return []
    # Any white space parts a key from what follows: a tab is as good as a space.
    split = ((number, line.split(None, 1)) for number, line in read_lines(tree.find(name), name))
    return [(number, words[0], words[1] if len(words) > 1 else "") for number, words in split]


def _items(tree: SourceTree, settings: Settings) -> Found:
    if not (tree.root / _SCP).is_file():
        raise CorpusError(f"{tree.root}: holds no {_SCP}, so it is not a Kaldi data folder; name one.")
    said = _pairs(tree, "text")
    texts = {key: text for _, key, text in said}
    speakers = {key: speaker for _, key, speaker in _pairs(tree, "utt2spk")}
    recordings = {key: (number, entry) for number, key, entry in _pairs(tree, _SCP)}
    stretches = _segments(tree) if (tree.root / "segments").exists() else _whole(recordings)

    def item(stretch: _KaldiSegment) -> Item:
        if stretch.recording not in recordings or stretch.end_s == _SENSELESS:
            raise CorpusError(
                f"{stretch.name}: names no recording of {_SCP} with a start and an end in seconds; correct it."
            )
        scp_line, entry = recordings[stretch.recording]
        if entry.endswith("|") or entry.startswith("|"):
            raise CorpusError(f"{_SCP}:{scp_line}: is a command, which is never run; write its output to a file.")
        audio = tree.find(entry)
        return Item(
            name=stretch.name,
            audio=audio,
            shown=tree.shown(audio),
            text=texts.get(stretch.name) or None,
            speaker=speakers.get(stretch.name) or None,
            start_s=stretch.start_s,
            end_s=stretch.end_s,
        )

    yield from each(((stretch.where, stretch) for stretch in stretches), item)
    names = {stretch.name for stretch in stretches}
    for line, key, _ in said:
        if key not in names:
            yield Skipped(f"text:{line}: the text of {key} is not used; no recording or segment has this name.")


def _whole(recordings: dict[str, tuple[int, str]]) -> list[_KaldiSegment]:
    return [_KaldiSegment(f"{_SCP}:{line}", name, name, 0.0, None) for name, (line, _) in recordings.items()]


def _segments(tree: SourceTree) -> list[_KaldiSegment]:
    found: list[_KaldiSegment] = []
    for line, name, rest in _pairs(tree, "segments"):
        cells = rest.split()
        try:
            start_s, end_s = (float(cell) for cell in cells[1:3])
        except ValueError:
            start_s, end_s = 0.0, _SENSELESS
        if not 0.0 <= start_s < end_s < _LONGEST_S:
            start_s, end_s = 0.0, _SENSELESS
        found.append(_KaldiSegment(f"segments:{line}", name, cells[0] if cells else "", start_s, end_s))
    return found


def _fits(tree: SourceTree) -> bool:
    return tree.file is None and (tree.root / _SCP).is_file()


KALDI = Layout("kaldi", _fits, _items)
