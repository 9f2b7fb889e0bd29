"""Parsing of profiles: `noise=babble snr=10 channel=telephone loss=5%/3`, or the same keys as a table in a file.

All faults are reported at once, each with its key.
"""

import difflib
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.impairments import PacketLoss
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.profiles.values import (
    ValueFault,
    read_channel,
    read_jitter,
    read_loss,
    read_number,
    read_room,
    read_text,
)

# Keys with numeric values, and the fields of a profile that they set.
NUMBERS: Final = {
    "snr": "snr_db",
    "speed": "speed",
    "pitch": "pitch",
    "level": "level_dbov",
    "gain": "gain_db",
    "clip": "clip_dbov",
    "dc": "dc",
}
KEYS: Final = ("noise", *NUMBERS, "room", "channel", "loss", "jitter")


def profile_from_text(text: str) -> Profile:
    """Parse a profile; `clean` and the empty text are the clean one. Raises CorpusError with one line per fault."""
    return profile_from_table(split(text))


def profiles_from_text(text: str) -> tuple[tuple[Profile, float], ...]:
    """Parse profiles separated by `;` with their shares of the total: `share=60 clean; share=40 room=far-field`.

    Without shares, all are equal. Raises CorpusError with one line per fault.
    """
    faults: list[str] = []
    profiles: list[tuple[Profile, float]] = []
    texts = [part for part in text.split(";") if part.strip()] or [""]
    for number, part in enumerate(texts, 1):
        try:
            table: dict[str, object] = dict(split(part))
            share = _read_positive(table.pop("share", 1.0))
            profiles.append((profile_from_table(table), share))
        except (CorpusError, ValueFault) as error:
            prefix = f"profile {number}: " if len(texts) > 1 else ""
            faults += [f"{prefix}{line}" for line in str(error).splitlines()]
    labels = [profile.label for profile, _ in profiles]
    faults += [f"The profile {label} is given twice; give it once." for label in set(labels) if labels.count(label) > 1]
    if faults:
        raise CorpusError("\n".join(faults))
    total = sum(share for _, share in profiles)
    return tuple((profile, share / total) for profile, share in profiles)


def text_of(profile: Profile) -> str:
    """Format a profile so that `profile_from_text` reads it back; `clean` for the clean one."""
    default = Profile()
    table: dict[str, str] = {}
    for key in KEYS:
        value = getattr(profile, NUMBERS.get(key, key))
        if value != getattr(default, NUMBERS.get(key, key)):
            table[key] = _WRITERS.get(key, str)(value)
    return " ".join(f"{key}={shlex.quote(value)}" for key, value in table.items()) or "clean"


def split(text: str) -> dict[str, str]:
    """Split a text into keys and values, in their order. Raises CorpusError for words that are not `key=value`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CorpusError(f"{text!r}: cannot be read ({error}); close the quotes.") from error
    table: dict[str, str] = {}
    faults: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if word == "clean":
            continue
        if not equals or not key or not value:
            faults.append(f"{word!r} is not part of a profile; write key=value, as in noise=babble snr=10.")
        elif key in table:
            faults.append(f"{key}: is given twice; give it once.")
        else:
            table[key] = value
    if faults:
        raise CorpusError("\n".join(faults))
    return table


def profile_from_table(table: Mapping[str, object]) -> Profile:
    """Build a profile from a table of texts or numbers. Raises CorpusError with one line per fault."""
    faults = [_unknown(key) for key in table if key not in KEYS]
    fields: dict[str, object] = {}
    for key, value in table.items():
        try:
            if key in NUMBERS:
                fields[NUMBERS[key]] = read_number(value)
            elif key in KEYS:
                fields[key] = _READERS[key](value)
        except ValueFault as fault:
            faults.append(f"{key}: {fault}")
    try:
        profile = Profile(**fields)  # pyright: ignore[reportArgumentType] - keyword arguments of different types
    except CorpusError as error:
        raise CorpusError("\n".join([*faults, str(error)])) from error
    if faults:
        raise CorpusError("\n".join(faults))
    return profile


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, 1)
    hint = f"did you mean {near[0]}?" if near else f"use any of {', '.join(KEYS)}."
    return f"{key}: is not a key of a profile; {hint}"


def _read_positive(value: object) -> float:
    number = read_number(value, "%")
    if number <= 0.0:
        raise ValueFault(f"share: {number:g} is out of range; give a number above 0.")
    return number


def _loss_text(loss: PacketLoss) -> str:
    if loss.burst_packets is None:
        return repr(loss.ratio)
    return f"{loss.ratio!r}/{loss.burst_packets!r}/{loss.bad_loss!r}"


_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "channel": "+".join,
    "loss": _loss_text,
    "jitter": lambda jitter: f"{jitter.mean_ms!r}/{jitter.buffer_ms!r}",
}
_READERS: Final = {
    "noise": read_text,
    "room": read_room,
    "channel": read_channel,
    "loss": read_loss,
    "jitter": read_jitter,
}
