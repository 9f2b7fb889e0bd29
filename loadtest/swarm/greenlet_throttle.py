"""One after the other, with room for audio between: for work that many callers bring at the same moment.

The hub lets all greenlets that are ready go on before it looks at its clock again. Ten turns that end together would
hold up every caller's frames for as long as it takes to record ten.

Where a thread of its own sends the frames, a few of them hold nothing up, and a busy loop, which comes round every
few milliseconds, could not record as many turns as end.
"""

import time
from collections.abc import Callable
from typing import Final

import gevent
from gevent.lock import BoundedSemaphore

_PAUSE_S: Final = 0.0003


class GreenletThrottle:
    """Lets one piece of work through at a time.

    It pauses after each that ends later than `busy_s` after the pause before.
    """

    def __init__(self, busy_s: float = 0.0) -> None:
        self._free = BoundedSemaphore(1)
        self._busy_s = busy_s
        self._paused_s = time.monotonic()

    def wait(self) -> None:
        """Pass, with nothing in hand."""
        with self._free:
            gevent.sleep(_PAUSE_S)

    def through(self, work: Callable[[], None]) -> None:
        """Do it when nobody else does any. It is also done when the greenlet that waits is killed: nothing is lost."""
        try:
            self._free.acquire()
        except BaseException:
            work()
            raise
        try:
            work()
            if time.monotonic() - self._paused_s >= self._busy_s:
                gevent.sleep(_PAUSE_S)
                self._paused_s = time.monotonic()
        finally:
            self._free.release()
