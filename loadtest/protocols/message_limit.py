"""The sentence for a message that exceeds the caller's limit: ours, not a fault of the endpoint. Pure.

Sizes are in KiB, MiB and so on: the store hides a run of seven digits in a text, which may be somebody's number.
"""

from typing import Final

from loadtest.protocols.failure import Failure

_CODE: Final = "message_over_"
_UNITS: Final = tuple((2 ** (10 * power), f"{prefix}iB") for power, prefix in reversed([*enumerate("KMGTPE", start=1)]))


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def over_limit(limit: int, count: int | None = None, what: str = "a message") -> str:
    """Return the sentence about a message of `count` bytes, None where not even that is known."""
    stated_size = "" if count is None else f" of {size(count)}"
    return f"{what}{stated_size} is longer than voiceprobe takes: its own limit is {size(limit)}"


def message_limit(limit: int) -> Failure:
    """Return the cause of a call that ends because of such a message."""
    return Failure("generator", _CODE + size(limit).replace(" ", "_"))


def invalid_reason(failure: Failure) -> str | None:
    """Return the short phrase by which a turn is invalid that ended so, None for any other cause."""
    code = failure.code or ""
    if failure.kind != "generator" or not code.startswith(_CODE):
        return None
    return f"message over {code.removeprefix(_CODE).replace('_', ' ')}, voiceprobe's own limit"
