"""The cause of a failed call or turn, as a value: created where it happens, never parsed from a sentence. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from loadtest.errors import EndpointError, EndpointUnreachable
from telemetry.model.semconv import FailureKind

SECOND_NS: Final = 1_000_000_000
# A requested wait is stored as it was received, up to this limit.
LONGEST_RETRY_NS: Final = 30 * 86_400 * SECOND_NS
MAX_CODE_CHARS: Final = 64
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NOT_IN_CODES: Final = re.compile(r"[^A-Za-z0-9_.:-]")
# The names that endpoints use for the wait in an error object, and their units in ns.
_RETRY_FIELDS: Final = {"retry_after_ms": 1_000_000, "retry_after": SECOND_NS, "retry_after_seconds": SECOND_NS}


class Failure(msgspec.Struct, frozen=True, gc=False):
    """One cause of a failure.

    `code` is the status, close code, error code or errno name. `retry_after_ns` is the wait before the next call that
    the endpoint requested, None if it did not request any.
    """

    kind: FailureKind
    code: str | None = None
    retry_after_ns: int | None = None


class OpeningRefused(EndpointError):  # noqa: N818 - reads as what happened
    """The endpoint answered, before there was a connection, in a way that opens none; `failure` is the cause."""

    def __init__(self, sentence: str, failure: Failure) -> None:
        super().__init__(sentence)
        self.failure = failure


class SessionRefused(EndpointUnreachable):
    """The endpoint opened no session; `failure` is the cause, as far as it is known."""

    def __init__(self, sentence: str, failure: Failure | None) -> None:
        super().__init__(sentence)
        self.failure = failure


def code_of(*candidates: object) -> str | None:
    """Return the first usable one of an endpoint's codes, with characters that are not valid in codes replaced."""
    for value in candidates:
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return _NOT_IN_CODES.sub("_", str(value).strip()[:MAX_CODE_CHARS])
    return None


def retry_after_of_fields(fields: Mapping[str, object]) -> int | None:
    """Return the wait in ns that an error object requests in one of its fields, or None."""
    for name, unit_ns in _RETRY_FIELDS.items():
        value = fields.get(name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                return _bounded(float(value) * unit_ns)
            except ValueError:
                continue
    return None


def retry_after_of_headers(headers: Iterable[tuple[str, str]], now_unix_ns: int | None = None) -> int | None:
    """Return the wait in ns that a response's Retry-After header requests, or None.

    The header holds seconds, with a fraction from some services, or a date; OpenAI's services also send one of ms. A
    date is compared with the response's own Date header, so that only the endpoint's clock matters, or with
    `now_unix_ns` if there is no Date header; without both it says nothing.
    """
    known = {name.lower(): value.strip() for name, value in headers}
    asked = known.get("retry-after", "")
    for text, unit_ns in ((known.get("retry-after-ms", ""), 1_000_000), (asked, SECOND_NS)):
        if _SECONDS.fullmatch(text):
            return _bounded(float(text) * unit_ns)
    until, since = _date(asked), _date(known.get("date", ""))
    if since is None and now_unix_ns is not None:
        since = datetime.fromtimestamp(now_unix_ns / 1e9, UTC)
    if until is None or since is None:
        return None
    return _bounded((until - since).total_seconds() * SECOND_NS)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _bounded(wait_ns: float) -> int:
    """Limit a wait to 0 … LONGEST_RETRY_NS. Raises ValueError for NaN."""
    if math.isnan(wait_ns):
        raise ValueError("not a number")
    return round(min(max(wait_ns, 0.0), float(LONGEST_RETRY_NS)))
