"""Items that an import reads from a source, and the settings of an import."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corpora.manifest.manifest import CorpusKind, Edges

Channel = int | Literal["mix"] | None  # None: the only channel
Loudness = Literal["asl", "bs1770", "none"]

LEVELS: dict[Loudness, float] = {"asl": -26.0, "bs1770": -23.0, "none": 0.0}
DEFAULT_MAX_S = 120.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a list: where it is, its columns, and the folder that its file name is relative to."""

    where: str
    row: Mapping[str, Any] | None  # None: it is not an object
    below: str = ""
    transforms: tuple["Transform", ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an utterance in a conversation; items of a conversation are in its order."""

    conversation: str
    think_s: float | None = None
    intent: str | None = None
    barge_in_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Transform:
    """One transform of a recording after it is cut: speed (a factor), resample (a rate in Hz) or gain (a factor)."""

    kind: Literal["speed", "resample", "gain"]
    value: float

    @property
    def label(self) -> str:
        """The text in the manifest."""
        return f"{self.kind} {self.value:g}{' Hz' if self.kind == 'resample' else ''}"


@dataclass(frozen=True, slots=True)
class Item:
    """One utterance to import. None means that the source has no value."""

    name: str  # from which its id is made
    audio: Path
    shown: str  # the name of the audio file in the source
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    domain: str | None = None
    license: str | None = None
    consent: str | None = None
    start_s: float = 0.0
    end_s: float | None = None
    channel: int | None = None
    place: Place | None = None
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sentence about something valid in the source that is not imported."""

    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A sentence about something in the source that cannot be imported, and the conversation it belongs to."""

    text: str
    conversation: str | None = None


Found = Iterator[Line | Item | Fault | Skipped]


@dataclass(frozen=True, slots=True)
class RawFormat:
    """The format of a file without a header, in libsndfile's terms."""

    subtype: str
    endian: str
    rate_hz: int
    channels: int


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an import. Values that the source has for an utterance take precedence."""

    license: str
    consent: str
    label: str  # the name of the source in the manifest
    speaker: str = "unknown"
    language: str = "und"
    domain: str = "imported"
    kind: CorpusKind = "recorded human"
    edges: Edges | None = None  # None: exact, or those of the corpus that is appended to
    rate_hz: int | None = None
    loudness: Loudness = "asl"
    level_db: float = LEVELS["asl"]
    channel: Channel = None
    raw: RawFormat | None = None
    max_s: float = DEFAULT_MAX_S
    caller_channel: int | None = None
    pause_s: float = 0.7
    min_s: float = 0.2
