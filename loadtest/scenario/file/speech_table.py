"""The section `[speech]` with its profiles and its mix, as pydantic models."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, get_args

from pydantic import Field

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import LengthClass
from corpora.rendering.mix import mix_from_text
from corpora.rendering.profiles.parsing import KEYS, profile_from_table
from loadtest.scenario.file import fields
from loadtest.scenario.file.fields import LARGEST_WEIGHT, Text, TomlTable
from loadtest.scenario.file.speech import Speech
from telemetry.model.file_faults import Path, shown
from telemetry.model.foreign_text import one_line

_LENGTHS: Final = get_args(LengthClass)
_PARTS: Final = ("noise", "snr", "room", "channel")
_LONGEST_SENTENCE_CHARS: Final = 300
_Weight = Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)]


class ProfileTable(TomlTable):
    """One line that callers speak over, and its share. The keys are those of `corpora.rendering.profiles.parsing`."""

    share: float | None = Field(
        default=None,
        gt=0,
        le=LARGEST_WEIGHT,
        title=f"number above 0 to {LARGEST_WEIGHT:g}",
        description=f"a number above 0, at most {LARGEST_WEIGHT:g}, is expected",
    )
    noise: object = None
    snr: object = None
    speed: object = None
    pitch: object = None
    level: object = None
    gain: object = None
    clip: object = None
    dc: object = None
    room: object = None
    channel: object = None
    loss: object = None
    jitter: object = None

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """What the parts of a profile say has to go together."""
        del faulty
        yield from _profile_faults(table, KEYS)

    def words(self) -> str:
        """The profile as the flag takes it."""
        given = {key: value for key in KEYS if (value := getattr(self, key)) is not None}
        parts = ["" if self.share is None else f"share={self.share:g}"]
        parts += [f"{key}={shlex.quote(str(value))}" for key, value in given.items()]
        return " ".join(part for part in parts if part) or "clean"


class MixTable(TomlTable):
    """Weights of length classes, domains and speakers."""

    short: float | None = fields.number(0, LARGEST_WEIGHT)
    medium: float | None = fields.number(0, LARGEST_WEIGHT)
    long: float | None = fields.number(0, LARGEST_WEIGHT)
    domain: dict[str, _Weight] = Field(default={}, title="table", description="weights by name are expected")
    speaker: dict[str, _Weight] = Field(default={}, title="table", description="weights by name are expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """A mix in words has to be one."""
        sound = {key: value for key, value in table.items() if key not in faulty}
        try:
            mix_from_text(_mix_words(sound))
        except CorpusError as error:
            yield (), "; ".join(line.removesuffix(".") for line in str(error).splitlines())

    def words(self) -> str | None:
        """The mix as the flag takes it."""
        return _mix_words(self.model_dump(exclude_none=True)) or None


class SpeechTable(TomlTable):
    """What callers say, and over what line."""

    corpus: Text | None = fields.text()
    length: Annotated[str, fields.one_of(_LENGTHS)] | None = fields.choice(_LENGTHS)
    noise: object = None
    snr: object = None
    room: object = None
    channel: object = None
    profiles: list[ProfileTable] = fields.tables("speech.profiles")
    mix: MixTable | None = fields.table()
    clips: int | None = fields.whole(1, 1_000_000)
    variants: int | None = fields.whole(1, 1_000)

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """The parts of a profile go together, and not with whole profiles."""
        yield from _profile_faults(table, _PARTS)
        parts = [key for key in _PARTS if key in table]
        if "profiles" in table and "profiles" not in faulty and parts:
            yield ("profiles",), f"each says all of itself; write {', '.join(parts)} into them"

    def speech(self) -> Speech:
        """What the file says of the speech."""
        return Speech(
            corpus=self.corpus,
            length=self.length,
            noise=_as_text(self.noise),
            snr_db=None if self.snr is None else float(str(self.snr)),
            room=_as_text(self.room),
            channel=_as_text(self.channel),
            profiles="; ".join(profile.words() for profile in self.profiles) or None,
            mix=None if self.mix is None else self.mix.words(),
            clips=self.clips,
            variants=self.variants,
        )


def _profile_faults(table: Mapping[str, Any], keys: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """What is wrong with the keys of a profile, each with the key that it is about."""
    given = {key: table[key] for key in keys if key in table}
    for key in [key for key, value in given.items() if not _is_writable(value)]:
        yield (key,), f"is {shown(given.pop(key))}; a smaller one is expected"
    try:
        profile_from_table(given)
    except CorpusError as error:
        for line in str(error).splitlines():
            key, colon, rest = line.partition(": ")
            named = [each for each in given if each in line.lower()]
            place, sentence = (key, rest) if colon and key in keys else ((named or list(given))[0], line)
            yield (place,), one_line(sentence.removesuffix("."), _LONGEST_SENTENCE_CHARS)


def _is_writable(value: object) -> bool:
    """Whether a value can stand in a sentence and be a float: a whole number of thousands of digits cannot."""
    try:
        repr(value)
        if isinstance(value, int):
            float(value)
    except (ValueError, OverflowError):
        return False
    return True


def _mix_words(weights: Mapping[str, Any]) -> str:
    words = [f"{name}={weights[name]:g}" for name in _LENGTHS if name in weights]
    for kind in ("domain", "speaker"):
        words += [f"{kind}.{name}={weight:g}" for name, weight in weights.get(kind, {}).items()]
    return " ".join(words)


def _as_text(value: object) -> str | None:
    return None if value is None else f"{value:g}s" if isinstance(value, float | int) else str(value)
