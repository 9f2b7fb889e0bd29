"""Messages of a sidecar on standard error: one line each, as text or as JSON.

No message contains a secret or the content of a request. That is why a foreign exception is shown by its type and
place, without its own message, which may quote data.
"""

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from telemetry.model.errors import TelemetryError
from telemetry.model.foreign_text import one_line

MESSAGE_CHARS_MAX: Final = 2000
_FRAMES_MAX: Final = 8
_PROCESS: Final = "sidecar"
# Loggers whose messages repeat those of the sidecar.
_QUIET: Final = ("asyncio", "grpc", "uvicorn")

_log = logging.getLogger(__name__)


def log_event(log: logging.Logger, level: int, event: str, sentence: str, **details: object) -> None:
    """Log an event: in JSON, its name and details are separate members; the sentence contains all of it."""
    log.log(level, "%s", sentence, extra={"event": event, "details": details})


class LineFormatter(logging.Formatter):
    """Formats a record of the sidecar on one line."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message = one_line(record.getMessage(), MESSAGE_CHARS_MAX)
        exception = _described(record.exc_info) if record.exc_info and record.exc_info[0] else None
        time_ = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level = record.levelname.lower()
        if not self._as_json:
            why = "" if exception is None else f" ({one_line(_in_words(exception), MESSAGE_CHARS_MAX)})"
            return f"{time_} {level} {_PROCESS}: {message}{why}"
        content: dict[str, object] = {"time": time_, "level": level, "process": _PROCESS}
        content |= {"pid": record.process, "logger": record.name, "message": message}
        if (event := getattr(record, "event", None)) is not None:
            content |= {"event": event, **getattr(record, "details", {})}
        if exception is not None:
            content["exception"] = exception
        return json.dumps(content, default=str)


def _described(raised: Any) -> dict[str, Any]:
    kind, error, at = raised
    frames = traceback.extract_tb(at)[-_FRAMES_MAX:]
    description: dict[str, Any] = {
        "type": kind.__name__,
        "at": [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames],  # noqa: PTH119
    }
    if isinstance(error, TelemetryError):
        description["message"] = one_line(str(error), MESSAGE_CHARS_MAX)
    elif isinstance(error, OSError) and error.strerror:
        description["message"] = error.strerror
    return description


def _in_words(exception: Mapping[str, Any]) -> str:
    words = f": {exception['message']}" if "message" in exception else ""
    return f"{exception['type']}{words} at {' < '.join(reversed(exception['at'])) or 'an unknown place'}"


def start_logging(log_format: str, log_level: str) -> None:
    """Write this process's log to standard error, including uncaught exceptions and warnings."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    logging.basicConfig(level=log_level.upper(), handlers=[handler], force=True)
    logging.raiseExceptions = False  # a closed standard error must not cause a traceback
    logging.captureWarnings(True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda raised: _log_uncaught(
        raised.exc_type, raised.exc_value or raised.exc_type(), raised.exc_traceback
    )


def _log_uncaught(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    if not issubclass(kind, SystemExit | KeyboardInterrupt):
        _log.critical("an unexpected fault ends this thread or process", exc_info=(kind, error, at))
