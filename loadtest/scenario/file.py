"""The scenario file: who calls, what they say and how much load there is, in TOML; every fault is reported at once.

Its sections are those of `sections`, with what only a file can say: interruptions of several kinds, profiles and a mix
as tables, the settings of a protocol, and phases.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, cast

from pydantic import Field

from corpora.manifest.errors import CorpusError
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.scenario import fields
from loadtest.scenario.behavior import CallerBehavior
from loadtest.scenario.fields import LARGEST_WEIGHT, Meaning, Option, TomlTable
from loadtest.scenario.phases import Phase, PhaseTable, read_phases, rules_between
from loadtest.scenario.sections import LENGTHS, KeepSection, RunSection, SpeechSection
from loadtest.toml_text import parse_toml
from telemetry.model.file_faults import Path, shown
from telemetry.model.foreign_text import one_line
from telemetry.model.validation import validated

PARTS: Final = ("noise", "snr", "room", "channel")
_LONGEST_SENTENCE_CHARS: Final = 300
_NAME: Final = "name"  # of the protocol; every other key of the table is a setting of it
_Weight = Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)]


class ProfileTable(TomlTable):
    """Several profiles, each a table, instead of noise, snr, room and channel."""

    share: Annotated[float | None, Meaning("weight of this profile; without weights, all are equal")] = (
        fields.more_than_0(None, LARGEST_WEIGHT)
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
        """The parts of a profile have to go together."""
        del faulty
        yield from _profile_faults(table, [key for key in cls.model_fields if key != "share"])

    def words(self) -> str:
        """The profile as the flag takes it."""
        given = {key: value for key in type(self).model_fields if (value := getattr(self, key)) is not None}
        share = given.pop("share", None)
        parts = ["" if share is None else f"share={share:g}"]
        parts += [f"{key}={shlex.quote(str(value))}" for key, value in given.items()]
        return " ".join(part for part in parts if part) or "clean"


class MixTable(TomlTable):
    """Weights of the utterances."""

    short: Annotated[float | None, Meaning("weight of utterances with less than 2 s of speech")] = fields.number(
        None, 0, LARGEST_WEIGHT
    )
    medium: Annotated[float | None, Meaning("weight of utterances with 2 s to 6 s of speech")] = fields.number(
        None, 0, LARGEST_WEIGHT
    )
    long: Annotated[float | None, Meaning("weight of utterances with more than 6 s of speech")] = fields.number(
        None, 0, LARGEST_WEIGHT
    )
    domain: Annotated[dict[str, _Weight], Meaning("weights of domains, by name")] = Field(
        default={}, title="table", description="weights by name are expected"
    )
    speaker: Annotated[dict[str, _Weight], Meaning("weights of speakers, by name")] = Field(
        default={}, title="table", description="weights by name are expected"
    )

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """A mix in words has to be one."""
        from corpora.rendering.mix import mix_from_text

        sound = {key: value for key, value in table.items() if key not in faulty}
        try:
            mix_from_text(_mix_words(sound))
        except CorpusError as error:
            yield (), "; ".join(line.removesuffix(".") for line in str(error).splitlines())


class SpeechTable(SpeechSection):
    """The speech of the callers, and how it is degraded."""

    noise: object = None
    snr: object = None
    room: object = None
    channel: object = None
    profiles: list[ProfileTable] = fields.tables("speech.profiles")
    mix: MixTable | None = Field(default=None, title="table")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """The parts of a profile go together, and not with whole profiles."""
        yield from _profile_faults(table, PARTS)
        parts = [key for key in PARTS if key in table]
        if "profiles" in table and "profiles" not in faulty and parts:
            yield ("profiles",), f"each says all of itself; write {', '.join(parts)} into them"

    def words(self) -> dict[str, Any]:
        """The profiles and the mix as flags take them, by the names of the settings; None where there is none."""
        return {
            "noise": _as_text(self.noise),
            "snr": None if self.snr is None else float(str(self.snr)),
            "room": _as_text(self.room),
            "channel": _as_text(self.channel),
            "speech_profiles": "; ".join(profile.words() for profile in self.profiles) or None,
            "mix": None if self.mix is None else _mix_words(self.mix.model_dump(exclude_none=True)) or None,
        }


class Scenario(RunSection):
    """Everything that a scenario file may hold; without a file, nothing."""

    protocol_table: Annotated[
        dict[str, Any],
        Meaning(
            "`name` of the protocol, and its settings by their names; --protocol-option takes precedence over them"
        ),
    ] = Field(default={}, alias="protocol", title="table", description="write it as a table, under [protocol]")
    callers: CallerBehavior = Field(default_factory=CallerBehavior, title="table")
    speech: SpeechTable = Field(default_factory=SpeechTable, title="table")
    keep: Annotated[KeepSection, Meaning("what is kept of calls next to the store")] = Field(
        default_factory=KeepSection, title="table"
    )
    phase_tables: list[PhaseTable] = fields.tables("phases")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Rules between phases, and for the types of a protocol's settings."""
        protocol, phases = table.get("protocol"), table.get("phases")
        if isinstance(protocol, Mapping) and "protocol" not in faulty:
            name = cast("Mapping[str, Any]", protocol).get(_NAME)
            if name is not None and name not in registry.names():
                yield ("protocol", _NAME), f"is {shown(name)}; one of {', '.join(registry.names())} is expected"
            yield from _no_json(cast("object", protocol), ("protocol",))
        if isinstance(phases, list):
            faults = rules_between(cast("Sequence[Any]", phases))
            yield from ((("phases", *path), sentence) for path, sentence in faults)

    @property
    def protocol(self) -> str | None:
        """The protocol that the settings are for, if the file names it."""
        return self.protocol_table.get(_NAME)

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """The settings of the protocol, without its name."""
        return {name: value for name, value in self.protocol_table.items() if name != _NAME}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases, each beginning where the one before it ends."""
        return read_phases(self.phase_tables)

    def settings(self) -> dict[str, Any]:
        """Return what the file says of things that are also flags, by the names of the settings."""
        settings: dict[str, Any] = {"protocol": self.protocol, **self.speech.words()}
        for table in (self, self.callers, self.speech, self.keep):
            for name, field in type(table).model_fields.items():
                if name in table.model_fields_set and any(
                    isinstance(annotation, Option) for annotation in field.metadata
                ):
                    settings[name] = getattr(table, name)
        return {name: value for name, value in settings.items() if value is not None}

    def document(self) -> dict[str, Any]:
        """The scenario as the table of its file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def load_scenario(path: FilePath) -> Scenario:
    """Read a scenario file. Raises UsageError with one line for each fault."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--scenario {path} cannot be read: {reason}") from None
    return parse_scenario(text, file=path.name, name=path.stem)


def parse_scenario(text: str, *, file: str = "scenario", name: str | None = None) -> Scenario:
    """Read the text of a scenario file; `name` is its name where it does not say one. Raises UsageError."""
    toml = parse_toml(text, file)
    scenario, faults = validated(Scenario, toml.table)
    if scenario is None:
        raise UsageError("\n".join(toml.sentences(faults)))
    return scenario if scenario.scenario_name or not name else scenario.model_copy(update={"scenario_name": name})


def without_overruled(settings: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return what a file says, without what flags overrule: whole profiles and parts of one are two ways to say the
    same."""
    overruled = {*given}
    if "speech_profiles" in given:
        overruled |= {*PARTS}
    if overruled & {*PARTS}:
        overruled.add("speech_profiles")
    return {name: value for name, value in settings.items() if name not in overruled}


def _profile_faults(table: Mapping[str, Any], keys: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with the keys of a profile, each with the key that it is about."""
    from corpora.rendering.profiles.parsing import profile_from_table

    given = {key: table[key] for key in keys if key in table}
    for key in [key for key, value in given.items() if not _is_writable(value)]:
        yield (key,), f"is {shown(given.pop(key))}; a smaller one is expected"
    try:
        profile_from_table(given)
    except CorpusError as error:
        for line in str(error).splitlines():
            key, colon, rest = line.partition(": ")
            named = [key for key in given if key in line.lower()]
            place, sentence = (key, rest) if colon and key in keys else ((named or list(given))[0], line)
            yield (place,), one_line(sentence.removesuffix("."), _LONGEST_SENTENCE_CHARS)


def _is_writable(value: object) -> bool:
    """Return whether a value can be printed and be a float: a whole number of thousands of digits cannot."""
    try:
        repr(value)
        if isinstance(value, int):
            float(value)
    except (ValueError, OverflowError):
        return False
    return True


def _mix_words(weights: Mapping[str, Any]) -> str:
    words = [f"{name}={weights[name]:g}" for name in LENGTHS if name in weights]
    for kind in ("domain", "speaker"):
        words += [f"{kind}.{name}={weight:g}" for name, weight in weights.get(kind, {}).items()]
    return " ".join(words)


def _as_text(value: object) -> str | None:
    return None if value is None else f"{value:g}s" if isinstance(value, float | int) else str(value)


def _no_json(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Find dates and times, which TOML has and no protocol does."""
    if isinstance(value, date | time):
        yield path, f"is {shown(value)}; write a date or a time as a text in quotes"
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from _no_json(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _no_json(inner, (*path, number))
