"""Profiles in words: `noise=babble snr=10 channel=telephone loss=5%/3`, or the same keys as a table of a file.

Everything that is wrong is said at once, with the key it is about.
"""

import difflib
import math
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from corpora.errors import CorpusError
from corpora.profiles.profile import Jitter, Loss, Profile

# Key in words -> field of a profile, and what may be written there.
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


class _Fault(Exception):  # noqa: N818 - a sentence on its way to the others
    """One sentence about one value."""


def profile_from_text(text: str) -> Profile:
    """The profile that a text describes; `clean` or nothing is the clean one. Raises CorpusError, a line a fault."""
    return profile_from_table(split(text))


def profiles_from_text(text: str) -> tuple[tuple[Profile, float], ...]:
    """Several profiles, parted by `;`, each with its share of the whole: `share=60 clean; share=40 room=far-field`.

    Without shares all have the same. Raises CorpusError with a line for each fault.
    """
    faults: list[str] = []
    found: list[tuple[Profile, float]] = []
    texts = [part for part in text.split(";") if part.strip()] or [""]
    for number, part in enumerate(texts, 1):
        try:
            table: dict[str, object] = dict(split(part))
            share = _positive(table.pop("share", 1.0))
            found.append((profile_from_table(table), share))
        except (CorpusError, _Fault) as error:
            begin = f"profile {number}: " if len(texts) > 1 else ""
            faults += [f"{begin}{line}" for line in str(error).splitlines()]
    labels = [profile.label for profile, _ in found]
    faults += [f"The profile {label} is there twice; give it once." for label in set(labels) if labels.count(label) > 1]
    if faults:
        raise CorpusError("\n".join(faults))
    whole = sum(share for _, share in found)
    return tuple((profile, share / whole) for profile, share in found)


def text_of(profile: Profile) -> str:
    """The text that `profile_from_text` reads as this profile; `clean` for the clean one."""
    plain = Profile()
    table: dict[str, str] = {}
    for key in KEYS:
        value = getattr(profile, NUMBERS.get(key, key))
        if value != getattr(plain, NUMBERS.get(key, key)):
            table[key] = _WRITERS.get(key, str)(value)
    return " ".join(f"{key}={shlex.quote(value)}" for key, value in table.items()) or "clean"


def split(text: str) -> dict[str, str]:
    """The keys and values of a text, in its order. Raises CorpusError for what is not `key=value`."""
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
            faults.append(f"{word!r} is no part of a profile; write key=value, as in noise=babble snr=10.")
        elif key in table:
            faults.append(f"{key}: is given twice; give it once.")
        else:
            table[key] = value
    if faults:
        raise CorpusError("\n".join(faults))
    return table


def profile_from_table(table: Mapping[str, object]) -> Profile:
    """The profile of a table; values are texts or numbers. Raises CorpusError with a line for each fault."""
    faults = [_unknown(key) for key in table if key not in KEYS]
    fields: dict[str, object] = {}
    for key, value in table.items():
        try:
            if key in NUMBERS:
                fields[NUMBERS[key]] = _number(value)
            elif key in KEYS:
                fields[key] = _READERS[key](value)
        except _Fault as fault:
            faults.append(f"{key}: {fault}")
    try:
        profile = Profile(**fields)  # pyright: ignore[reportArgumentType] - by name, each of its own type
    except CorpusError as error:
        raise CorpusError("\n".join([*faults, str(error)])) from error
    if faults:
        raise CorpusError("\n".join(faults))
    return profile


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KEYS)}."
    return f"{key}: is no part of a profile; {hint}"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Fault(f"{value!r} is no text; write a name.")
    return value.strip()


def _room(value: object) -> str:
    """A number is a time in seconds."""
    text = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else _text(value)
    try:
        return f"{float(text):g}s"
    except ValueError:
        return text


def _channel(value: object) -> tuple[str, ...]:
    """Codecs joined with `+`; `clean` is none."""
    words = _text(value).split("+")
    return tuple(word for word in (word.strip() for word in words) if word != "clean")


def _number(value: object, unit: str = "") -> float:
    text = value.strip().removesuffix(unit) if isinstance(value, str) else value
    try:
        number = math.nan if isinstance(text, bool) or not isinstance(text, int | float | str) else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _Fault(f"{value!r} is no number; write one{f' in {unit}' if unit else ''}.")
    return number


def _positive(value: object) -> float:
    number = _number(value, "%")
    if number <= 0.0:
        raise _Fault(f"share: {number:g} is out of range; give a number above 0.")
    return number


def _share(value: object) -> float:
    """A share as `5%` or `0.05`."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return _number(value, "%") / 100.0
    return _number(value)


def _loss(value: object) -> Loss:
    parts = value.split("/") if isinstance(value, str) else [value]
    if len(parts) > 3:
        raise _Fault(f"{value!r} has too many parts; write share/burst/share in bursts, as in 5%/3/80%.")
    burst = _number(parts[1]) if len(parts) > 1 else 1.0
    return Loss(_share(parts[0]), burst, _share(parts[2]) if len(parts) > 2 else 1.0)


def _jitter(value: object) -> Jitter:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2:
        raise _Fault(f"{value!r} is no jitter; write mean and buffer, as in 20ms/60ms.")
    return Jitter(_number(parts[0], "ms"), _number(parts[1], "ms"))


_WRITERS: Final[dict[str, Callable[[Any], str]]] = {
    "channel": "+".join,
    "loss": lambda loss: f"{loss.ratio!r}/{loss.burst_packets!r}/{loss.bad_loss!r}",
    "jitter": lambda jitter: f"{jitter.mean_ms!r}/{jitter.buffer_ms!r}",
}
_READERS: Final = {"noise": _text, "room": _room, "channel": _channel, "loss": _loss, "jitter": _jitter}
