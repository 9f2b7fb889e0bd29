"""Parsing of the values of a profile, as text or as Python values: `telephone`, `0.4`, `5%/3`, `20ms/60ms`.

Each function takes a text or a number and raises ValueFault with a sentence that says what to write.
"""

import math
from collections.abc import Sequence
from typing import Final, cast

from corpora.rendering.profiles.impairments import Jitter, PacketLoss

# Names of groups of codecs, and their codecs; `opus` may be followed by `:` and a bitrate in kbit/s.
CHANNEL_WORDS: Final = {"telephone": ("band", "g711u"), "telephone-a": ("band", "g711a")}
CODECS: Final = ("band", "g711u", "g711a", "g722", "gsm", "opus")
KNOWN_NOISES = ("white", "pink", "brown", "babble", "hum", "hum-60", "music")


class ValueFault(Exception):  # noqa: N818 - never leaves the package: callers collect its sentences
    """A value cannot be read; the message is one sentence."""


def read_text(value: object) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueFault(f"{value!r} is not a text; write a name.")
    return value.strip()


def read_room(value: object) -> str:
    """Read a room: a name, a file or a reverberation time; a number is a time in seconds."""
    text = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else read_text(value)
    try:
        return f"{float(text):g}s"
    except ValueError:
        return text


def read_channel(value: object) -> tuple[str, ...]:
    """Read codecs joined with `+`, or a sequence of them; `clean` is no codec."""
    given = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
    words = [word for text in given for word in read_text(text).split("+")]
    return tuple(word for word in (word.strip() for word in words) if word != "clean")


def read_number(value: object, unit: str = "") -> float:
    """Read a finite number, optionally followed by its unit."""
    text = value.strip().removesuffix(unit) if isinstance(value, str) else value
    try:
        number = math.nan if isinstance(text, bool) or not isinstance(text, int | float | str) else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueFault(f"{value!r} is not a number; write one{f' in {unit}' if unit else ''}.")
    return number


def read_share(value: object) -> float:
    """Read a share such as `5%` or `0.05`."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return read_number(value, "%") / 100.0
    return read_number(value)


def read_loss(value: object) -> PacketLoss:
    """Read a loss: a share, optionally with the mean length of its bursts and the loss inside them."""
    if isinstance(value, PacketLoss):
        return value
    parts = value.split("/") if isinstance(value, str) else [value]
    if len(parts) > 3:
        raise ValueFault(f"{value!r} has too many parts; write loss/burst length/loss in bursts, as in 5%/3/80%.")
    burst = read_number(parts[1]) if len(parts) > 1 else None
    return PacketLoss(read_share(parts[0]), burst, read_share(parts[2]) if len(parts) > 2 else 1.0)


def read_jitter(value: object) -> Jitter:
    """Read a jitter: a mean delay and the receiver's buffer."""
    if isinstance(value, Jitter):
        return value
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2:
        raise ValueFault(f"{value!r} is not a jitter; write mean delay and buffer, as in 20ms/60ms.")
    return Jitter(read_number(parts[0], "ms"), read_number(parts[1], "ms"))
