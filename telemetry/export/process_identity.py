"""Which incarnation of a process emitted a turn, and where in its sequence of turns: what makes loss countable."""

import os
import secrets
import threading
from collections.abc import Callable


def _new_process_id() -> str:
    # A pid alone is reused, and two hosts share them.
    return f"{os.getpid()}-{secrets.token_hex(8)}"


class ProcessIdentity:
    """A process id unique to this incarnation, and its sequence of turns: from 0, without gaps.

    After a fork the child is another process: it gets an id and a sequence of its own. Threads and greenlets may ask
    at once.
    """

    def __init__(self, new_id: Callable[[], str] = _new_process_id) -> None:
        self._new_id = new_id
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._process_id = self._new_id()
        self._sequence = 0
        self._emitted_by_run: dict[str, int] = {}
        self._pid = os.getpid()

    @property
    def process_id(self) -> str:
        """Unique per incarnation of the process."""
        if os.getpid() != self._pid:
            self._renew()
        return self._process_id

    def next_turn(self, run_id: str) -> tuple[str, int]:
        """The process id and the next sequence number; counts the turn for its run."""
        process_id = self.process_id
        with self._lock:
            sequence = self._sequence
            self._sequence += 1
            self._emitted_by_run[run_id] = self._emitted_by_run.get(run_id, 0) + 1
        return process_id, sequence

    def emitted_by_run(self) -> dict[str, int]:
        """Turns emitted so far by run."""
        if os.getpid() != self._pid:
            self._renew()
        with self._lock:
            return dict(self._emitted_by_run)
