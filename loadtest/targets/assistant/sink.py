"""How a session sends messages, independent of the transport."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


class CallerGone(Exception):  # noqa: N818 - reads as what happened
    """The connection has ended; nothing more can be sent."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A session's output: `text` and `binary` send a message, `cut` ends the connection at once.

    `text` and `binary` raise CallerGone.
    """

    text: Callable[[str | bytes], Awaitable[None]]
    binary: Callable[[bytes], Awaitable[None]]
    cut: Callable[[], None]
