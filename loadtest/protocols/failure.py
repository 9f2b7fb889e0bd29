"""Why a call or a turn failed, as a value: made where it happens, and never read out of a sentence. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from telemetry.model.semconv import FailureKind

SECOND_NS: Final = 1_000_000_000
# A wait that somebody asks for is stored as it was said, up to here.
LONGEST_RETRY_NS: Final = 30 * 86_400 * SECOND_NS
MAX_CODE_CHARS: Final = 64
_NOT_IN_CODES: Final = re.compile(r"[^A-Za-z0-9_.:-]")
# Refusals that are over after a while, also where nobody says how long: by kind, their codes.
_LATER: Final[Mapping[str, frozenset[str]]] = {
    "http_status": frozenset({"429", "503"}),
    "close_code": frozenset({"1012", "1013"}),  # service restart, try again later (RFC 6455's registry)
    "endpoint_error": frozenset({"rate_limit_exceeded", "session_limit_reached"}),
}
# What endpoints call the wait in an error object, and ns in one of its units.
_RETRY_FIELDS: Final = {"retry_after_ms": 1_000_000, "retry_after": SECOND_NS, "retry_after_seconds": SECOND_NS}


class Failure(msgspec.Struct, frozen=True, gc=False):
    """One cause. `code` is the status, close code, error code or errno name; `retry_after_ns` the wait that the
    endpoint asked for before the next call, None where it did not say."""

    kind: FailureKind
    code: str | None = None
    retry_after_ns: int | None = None

    @property
    def asks_to_wait(self) -> bool:
        """Whether the endpoint wants the next call later, also where it does not say when."""
        return self.retry_after_ns is not None or self.code in _LATER.get(self.kind, ())


def code_of(*candidates: object) -> str | None:
    """The first usable one of several codes that an endpoint gave, without anything that is no part of a code."""
    for value in candidates:
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return _NOT_IN_CODES.sub("_", str(value).strip()[:MAX_CODE_CHARS])
    return None


def retry_after_of_fields(fields: Mapping[str, object]) -> int | None:
    """The wait in ns that an error object asks for in a field of its own, None where it has none."""
    for name, unit_ns in _RETRY_FIELDS.items():
        value = fields.get(name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                return _bounded(float(value) * unit_ns)
            except ValueError:
                continue
    return None


def retry_after_of_headers(headers: Iterable[tuple[str, str]], now_unix_ns: int) -> int | None:
    """The wait in ns that a response's Retry-After asks for: seconds, or a date, which is held against the response's
    own Date (so that no clock but the endpoint's counts) and only without one against `now_unix_ns`."""
    known = {name.lower(): value.strip() for name, value in headers}
    asked = known.get("retry-after", "")
    if asked.isascii() and asked.isdecimal():
        return _bounded(float(asked) * SECOND_NS)
    until = _date(asked)
    if until is None:
        return None
    since = _date(known.get("date", "")) or datetime.fromtimestamp(now_unix_ns / 1e9, UTC)
    return _bounded((until - since).total_seconds() * SECOND_NS)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _bounded(wait_ns: float) -> int:
    """Raises ValueError for what is no number."""
    if math.isnan(wait_ns):
        raise ValueError("not a number")
    return round(min(max(wait_ns, 0.0), float(LONGEST_RETRY_NS)))
