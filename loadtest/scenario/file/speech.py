"""The section `[speech]`: what callers say, and over what line."""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import LengthClass
from corpora.rendering.mix import mix_from_text
from corpora.rendering.profiles.parsing import KEYS, profile_from_table
from loadtest.scenario.file.section import Section

PARTS: Final = frozenset({"noise", "snr", "room", "channel"})


@dataclass(frozen=True, slots=True)
class Speech:
    """What the file says of the speech; None where it says nothing and the flag's default holds."""

    corpus: str | None = None
    length: str | None = None
    noise: str | None = None
    snr_db: float | None = None
    room: str | None = None
    channel: str | None = None
    profiles: str | None = None  # in words, as the flag takes them
    mix: str | None = None  # likewise
    clips: int | None = None
    variants: int | None = None

    def settings(self) -> dict[str, Any]:
        """What is also a flag, by the names that SwarmSettings gives it; None where the file says nothing."""
        return {
            "corpus": self.corpus,
            "length": self.length,
            "noise": self.noise,
            "snr": self.snr_db,
            "room": self.room,
            "channel": self.channel,
            "speech_profiles": self.profiles,
            "mix": self.mix,
            "clips": self.clips,
            "variants": self.variants,
        }


def without_overruled(settings: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """What a file says, without what flags overrule: whole profiles and parts of one are two ways to say the same."""
    overruled = {*given}
    if "speech_profiles" in given:
        overruled |= PARTS
    if PARTS & overruled:
        overruled.add("speech_profiles")
    return {name: value for name, value in settings.items() if name not in overruled}


def read_speech(section: Section) -> Speech:
    """Read the section. Faults go to the section."""
    corpus, length = section.text("corpus"), section.text("length", one_of=get_args(LengthClass))
    parts = _profile_table(section, ("noise", "snr", "room", "channel"))
    profiles = _profiles(section)
    if profiles is not None and parts:
        section.fault("profiles", f"each says all of itself: write {', '.join(parts)} into them")
    found = Speech(
        corpus=corpus,
        length=length,
        noise=_text_of(parts, "noise"),
        snr_db=None if "snr" not in parts else float(str(parts["snr"])),
        room=_text_of(parts, "room"),
        channel=_text_of(parts, "channel"),
        profiles=profiles,
        mix=_mix(section),
        clips=section.integer("clips", 1, 1_000_000),
        variants=section.integer("variants", 1, 1_000),
    )
    section.close()
    return found


def _profile_table(section: Section, keys: Sequence[str]) -> dict[str, object]:
    """The keys of a profile that a table has, if they make one; its faults go to the section."""
    table = {key: value for key in keys if (value := section.get(key)) is not None}
    try:
        profile_from_table(table)
    except CorpusError as error:
        for line in str(error).splitlines():
            key, colon, rest = line.partition(": ")
            named = [each for each in table if each in line.lower()]
            section.fault(*(key, rest) if colon and key in keys else ((named or list(table))[0], line))
        return {}
    return table


def _profiles(section: Section) -> str | None:
    """The tables under `profiles`, in words."""
    words: list[str] = []
    for table in section.tables("profiles"):
        share = table.number("share", 0.0, 1e9, above=True)
        profile = _profile_table(table, KEYS)
        table.close()
        parts = ["" if share is None else f"share={share:g}", *(f"{key}={_quoted(profile[key])}" for key in profile)]
        words.append(" ".join(part for part in parts if part) or "clean")
    return "; ".join(words) or None


def _mix(section: Section) -> str | None:
    """The table `mix`, in words: weights of length classes, and tables of them for domains and speakers."""
    table = section.table("mix")
    if table is None:
        return None
    words = [f"{name}={weight:g}" for name in get_args(LengthClass) if (weight := _weight(table, name)) is not None]
    for kind in ("domain", "speaker"):
        named = table.table(kind)
        if named is not None:
            weights = {name: _weight(named, name) for name in named}
            words += [f"{kind}.{name}={weight:g}" for name, weight in weights.items() if weight is not None]
    table.close()
    try:
        mix_from_text(" ".join(words))
    except CorpusError as error:
        section.fault("mix", "; ".join(str(error).splitlines()))
    return " ".join(words) or None


def _weight(section: Section, key: str) -> float | None:
    return section.number(key, 0.0, 1e9)


def _text_of(parts: dict[str, object], key: str) -> str | None:
    value = parts.get(key)
    return None if value is None else f"{value:g}s" if isinstance(value, float | int) else str(value)


def _quoted(value: object) -> str:
    return shlex.quote(str(value))
