"""The way out of a session, without saying what it leads to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


class CallerGone(Exception):  # noqa: N818 - reads as what happened
    """The connection has ended; nothing can be sent any more."""


@dataclass(frozen=True, slots=True)
class Sink:
    """`text` sends a text message, `binary` a binary one (both raise CallerGone), `cut` ends the connection at once."""

    text: Callable[[str | bytes], Awaitable[None]]
    binary: Callable[[bytes], Awaitable[None]]
    cut: Callable[[], None]
