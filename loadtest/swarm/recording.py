"""The turns of one call on their way to telemetry: each is recorded once, whatever ends the caller."""

from collections.abc import Callable

import gevent.queue

from loadtest.conversation.exchange import Exchange
from loadtest.engine.call import Call


class Recording:
    """Records the exchanges of a call.

    Nothing of `rest` waits, so that it can be the last thing that a greenlet does which is being ended, and what is
    done for the greenlets that are not there any more when a process ends.
    """

    def __init__(self, record: Callable[[Call, Exchange], None], end: Callable[[Call | None], None]) -> None:
        self._record, self._end = record, end
        self._call: Call | None = None
        self._in_hand: Exchange | None = None

    def began(self, call: Call) -> None:
        """The call whose exchanges these are."""
        self._call = call

    def take(self, exchange: Exchange) -> None:
        """An exchange has ended; it is to be recorded, by `record` or with the rest."""
        self._in_hand = exchange

    def record(self) -> None:
        """Record the exchange in hand."""
        exchange, self._in_hand = self._in_hand, None
        if exchange is not None and self._call is not None:
            self._record(self._call, exchange)

    def rest(self) -> None:
        """Record what is left, and end. Can be said more than once."""
        self.record()
        while self._call is not None:
            try:
                exchange = self._call.exchanges.get_nowait()
            except gevent.queue.Empty:
                break
            if exchange is not None:
                self._record(self._call, exchange)
        self._end(self._call)
