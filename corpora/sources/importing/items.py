"""What an importer finds, and what the user asked to be done with it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import CorpusKind

if TYPE_CHECKING:
    from corpora.sources.importing.tree import SourceTree

Channel = int | Literal["mix"] | None  # None: the one there is
Loudness = Literal["asl", "bs1770", "none"]

LEVELS: dict[Loudness, float] = {"asl": -26.0, "bs1770": -23.0, "none": 0.0}
DEFAULT_MAX_S = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an utterance stands in a conversation; items of one conversation come in its order."""

    conversation: str
    think_s: float | None = None
    intent: str | None = None
    barge_in_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Transform:
    """One thing to do to a recording after it is cut: speed (a factor), resample (to so many Hz) or gain (a factor)."""

    kind: Literal["speed", "resample", "gain"]
    value: float

    @property
    def label(self) -> str:
        """As it is written into the manifest."""
        return f"{self.kind} {self.value:g}{' Hz' if self.kind == 'resample' else ''}"


@dataclass(frozen=True, slots=True)
class Item:
    """One utterance to import. None means that the source does not say."""

    name: str  # what its id is made of
    audio: Path
    shown: str  # the audio's name as the source has it
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
    """One sentence on something in the source that is not imported, though nothing is wrong with it."""

    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One sentence on something in the source that cannot be imported, and the conversation that misses it."""

    text: str
    conversation: str | None = None


Found = Iterator[Item | Fault | Skipped]
Row = TypeVar("Row")


def each(rows: Iterable[tuple[str, Row]], make: Callable[[Row], Item]) -> Found:
    """An item of every row, or one sentence that begins with where the row stands."""
    for where, row in rows:
        try:
            yield make(row)
        except CorpusError as error:
            yield Fault(f"{where}: {error}")


@dataclass(frozen=True, slots=True)
class RawFormat:
    """What a file without a header holds, in the words of libsndfile."""

    subtype: str
    endian: str
    rate_hz: int
    channels: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for. A value that the source gives for an utterance goes before the one here."""

    license: str
    consent: str
    label: str  # what the source is called in the manifest
    speaker: str = "unknown"
    language: str = "und"
    domain: str = "imported"
    kind: CorpusKind = "recorded human"
    rate_hz: int | None = None
    loudness: Loudness = "asl"
    level_db: float = LEVELS["asl"]
    channel: Channel = None
    raw: RawFormat | None = None
    max_s: float = DEFAULT_MAX_S
    caller_channel: int | None = None
    pause_s: float = 0.7
    min_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which teams keep their recordings."""

    name: str
    fits: Callable[["SourceTree"], bool]
    items: Callable[["SourceTree", Settings], Found]
    license: str | None = None  # what its publisher is known to have chosen
    consent: str | None = None
