"""The turns of one call on their way to telemetry: each is recorded once, whatever ends the caller.

A turn is recorded when it is over. One whose transcript may still come is recorded when it has come, with the next turn
that is over, or at the end of the call without it.
"""

from collections.abc import Callable

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.state import State
from loadtest.engine.call import Call


class Recording:
    """Records the exchanges of a call.

    Nothing of `rest` waits, so that it can be the last thing that a greenlet does which is being ended, and what is
    done for the greenlets that are not there any more when a process ends.
    """

    def __init__(self, record: Callable[[Call, Exchange], None], end: Callable[[Call | None], None]) -> None:
        self._record, self._end = record, end
        self._call: Call | None = None
        self._in_hand: list[Exchange] = []

    def began(self, call: Call) -> None:
        """The call whose exchanges these are."""
        self._call = call

    def take(self, exchange: Exchange) -> None:
        """An exchange has ended; it is to be recorded, by `record` or with the rest."""
        self._in_hand.append(exchange)

    def record(self) -> None:
        """Record the exchanges in hand about which nothing more may come."""
        call = self._call
        if call is None:
            return
        is_over = call.conversation.state is State.OVER
        for exchange in [each for each in self._in_hand if is_over or not each.awaits_more]:
            self._in_hand = [each for each in self._in_hand if each is not exchange]
            self._record(call, exchange)

    def rest(self) -> None:
        """Record what is left, and end. Idempotent."""
        call = self._call
        if call is not None:
            while not call.exchanges.empty():
                exchange = call.exchanges.get_nowait()
                if exchange is not None:
                    self._in_hand.append(exchange)
            in_hand, self._in_hand = self._in_hand, []
            for exchange in in_hand:
                self._record(call, exchange)
        self._end(call)
