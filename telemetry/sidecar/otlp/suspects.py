"""Which requests the store process was decoding when it ended, so that none of them ends it again and again.

A request that was being decoded then is suspect: sent again, it is decoded alone. One that was being decoded at
`ENDINGS_MAX` endings is refused; a neighbor, or a request that met with an operator's kill, is answered before that.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

ENDINGS_MAX: Final = 3
_REMEMBERED_MAX: Final = 1000


class Suspects:
    """The bodies of suspect requests, by their digests; the oldest are forgotten when there are too many."""

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._endings: OrderedDict[tuple[int, bytes], int] = OrderedDict()
        self._lengths: frozenset[int] = frozenset()

    def blame(self, bodies: Iterable[bytes]) -> None:
        """Note that the store process ended while it decoded these bodies."""
        for body in bodies:
            key = _key(body)
            self._endings[key] = self._endings.get(key, 0) + 1
            self._endings.move_to_end(key)
        while len(self._endings) > self._remembered_max:
            self._endings.popitem(last=False)
        self._lengths = frozenset(length for length, _ in self._endings)

    def endings(self, body: bytes) -> int:
        """How many endings the body met with."""
        # Only bodies of a length that was seen are digested: usually none.
        return self._endings.get(_key(body), 0) if len(body) in self._lengths else 0

    def clear(self, body: bytes) -> None:
        """Note that the body was decoded."""
        if self._endings.pop(_key(body), 0):
            self._lengths = frozenset(length for length, _ in self._endings)


def _key(body: bytes) -> tuple[int, bytes]:
    return len(body), hashlib.blake2b(body, digest_size=16).digest()
