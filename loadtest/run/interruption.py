"""Ctrl-C and SIGTERM as something to wait for, so that a command can end its children and keep the results."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """While entered, SIGINT and SIGTERM set it instead of ending the process. Use it in the main thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._event.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether it came within the time. Each is reported once."""
        came = self._event.wait(timeout_s)
        self._event.clear()
        return came
