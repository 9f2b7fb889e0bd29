"""One after the other, with room for audio between: for work that many callers bring at the same moment.

The hub lets all greenlets that are ready go on before it looks at its clock again. Ten turns that end together would
hold up every caller's frames for as long as it takes to record ten.
"""

from collections.abc import Callable
from typing import Final

import gevent
from gevent.lock import BoundedSemaphore

_PAUSE_S: Final = 0.0003


class GreenletThrottle:
    """Lets one piece of work through at a time."""

    def __init__(self) -> None:
        self._free = BoundedSemaphore(1)

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
            gevent.sleep(_PAUSE_S)
        finally:
            self._free.release()
