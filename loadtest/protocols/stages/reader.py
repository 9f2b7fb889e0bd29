"""One response of a stage service as it arrives: its head, its body in pieces, its end. Pure.

The head says who answered: cache, route, fallback, request ids, the service's own times. LiteLLM's names are the best
known; those of other gateways that say the same are read too. A header that is missing says nothing: a cache hit is
then not reported, never "no". Server-sent events follow the event stream of the HTML standard, however the bytes are
split: lines end with CR, LF or CRLF, comments begin with a colon, an empty line ends an event, and text after the last
empty line is not an event.

A response whose status is no success is read as an error, whatever stage sends it; what a success contains is decoded
by the subclass of each stage.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
import orjson

from loadtest.protocols.address import public_target
from loadtest.protocols.error_objects import error_message, refused_request
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields, retry_after_of_headers
from loadtest.protocols.headers import kept_headers
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem
from loadtest.protocols.json_fields import Json, MalformedError, as_object, excerpt, parse_object
from loadtest.protocols.message_limit import message_limit, over_limit
from loadtest.protocols.stages.parts import Broken, Malformed, Part, Served, StageName, Unknown
from telemetry.model import semconv
from telemetry.model.foreign_text import one_line

MAX_EVENT_BYTES: Final = 16 * 2**20
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its type, `message` where the stream names none, and its data with lines joined by LF."""

    event: str
    data: str


class SseTooLongError(ValueError):
    """An event is longer than MAX_EVENT_BYTES."""


class SseParser:
    """Decodes one stream. After an error it must not be fed again."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0  # how much of the buffer contains no end of a line
        self._skip_lf = False  # the last line ended with a CR at the end of a piece: an LF after it belongs to it
        self._at_start = True
        self._event = ""
        self._data: list[str] = []
        self._held_bytes = 0
        self.comments = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete. Raises SseTooLongError."""
        if not data:
            return []
        if self._skip_lf and data[:1] == b"\n":
            data = data[1:]
        self._skip_lf = False
        buffer = self._buffer
        buffer += data
        events: list[SseEvent] = []
        begin = 0
        for end in _LINE_END.finditer(buffer, self._scanned):
            self._line(bytes(buffer[begin : end.start()]), events)
            begin = end.end()
        self._skip_lf = begin == len(buffer) and buffer.endswith(b"\r")
        del buffer[:begin]
        self._scanned = len(buffer)
        if len(buffer) + self._held_bytes > MAX_EVENT_BYTES:
            raise SseTooLongError
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._event or "message", "\n".join(self._data)))
            self._event, self._data, self._held_bytes = "", [], 0
            return
        name, _, value = line.partition(b":")
        self.comments += not name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value.decode(errors="replace"))
            self._held_bytes += len(value) + 1
        elif name == b"event":
            self._event = value.decode(errors="replace")


# The service's own latencies in ms, and our names for them.
LATENCY_HEADERS: Final[Mapping[str, str]] = {
    "openai-processing-ms": "processing",
    "x-litellm-response-duration-ms": "response",
    "x-litellm-overhead-duration-ms": "gateway_overhead",
    "x-envoy-upstream-service-time": "upstream",
}
# Caches that answer with a word, and the number that names the target that answered (0: the first one).
CACHE_HEADERS: Final = ("x-portkey-cache-status", "cf-aig-cache-status", "helicone-cache", "x-cache")
FALLBACK_HEADERS: Final = ("x-litellm-attempted-fallbacks", "cf-aig-step")

_LONGEST_MS: Final = 86_400_000.0
_METRIC: Final = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)((?:\s*;[^,]*)?)")
_DURATION: Final = re.compile(r';\s*dur\s*=\s*"?([0-9.]+)"?', re.IGNORECASE)
_MAX_CHARS: Final = 200


def served_by(headers: tuple[tuple[str, str], ...], stage: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the metadata and the service's own latencies (ns) that the headers of a response contain.

    Facts about the turn have the names of `telemetry.model.semconv`; headers that are kept have their own, after the
    stage's: `llm.x-request-id`.
    """
    by_name = {name.lower(): value.strip() for name, value in headers}
    metadata = kept_headers(headers, stage)
    hit = _cache_hit(by_name)
    if hit is not None:
        metadata[semconv.META_CACHE_HIT] = "true" if hit else "false"
    if (route := "cache" if hit else _route(by_name.get("x-litellm-model-api-base", ""))) is not None:
        metadata[semconv.META_ROUTE] = route
    if by_name.get("x-litellm-model-name"):
        metadata[semconv.META_MODEL] = by_name["x-litellm-model-name"][:_MAX_CHARS]
    if any((_count(by_name.get(name)) or 0) > 0 for name in FALLBACK_HEADERS):
        metadata[semconv.META_FALLBACK] = "model"
    return metadata, _latencies(by_name, stage)


def _cache_hit(by_name: Mapping[str, str]) -> bool | None:
    if by_name.get("x-litellm-cache-key"):
        return True  # LiteLLM sends it with an answer from its cache, and with no other
    for name in CACHE_HEADERS:
        words = by_name.get(name, "").upper().split()
        if "HIT" in words:
            return True
        if "MISS" in words:
            return False
    # LiteLLM without that header: a miss, or no cache at all, which cannot be distinguished.
    return None


def _route(api_base: str) -> semconv.Route | None:
    """Return whether the model behind a gateway runs in a private network or elsewhere; None if that is not said."""
    try:
        host = urlsplit(api_base).hostname
    except ValueError:
        return None
    if not host:
        return None
    try:
        return "local" if ipaddress.ip_address(host).is_private else "cloud"
    except ValueError:
        return "cloud" if "." in host and not host.endswith((".local", ".internal", ".localhost")) else "local"


def _latencies(by_name: Mapping[str, str], stage: str) -> dict[str, int]:
    latencies = {
        f"{stage}.{name}": ns
        for header, name in LATENCY_HEADERS.items()
        if (ns := _milliseconds_ns(by_name.get(header))) is not None
    }
    for name, parameters in _METRIC.findall(by_name.get("server-timing", "")):
        duration = _DURATION.search(parameters)
        ns = _milliseconds_ns(duration.group(1)) if duration is not None else None
        if ns is not None:
            latencies[f"{stage}.{name}"] = ns
    return latencies


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _milliseconds_ns(text: str | None) -> int | None:
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return round(value * 1e6) if 0 <= value <= _LONGEST_MS else None


MAX_ERROR_BYTES: Final = 16 * 2**10
MAX_JSON_BYTES: Final = 16 * 2**20
# Statuses that any later request would get as well.
FATAL_STATUSES: Final = frozenset({401, 403})


class ResponseReader:
    """Decodes one response. After `Broken`, `Transcript` or `Finished` it yields nothing more."""

    stage: StageName

    def __init__(self) -> None:
        self.url = ""  # where the request went
        self.over = False
        self._refused: HttpHead | None = None
        self._is_compressed = False  # no request asks for it, and what is compressed is held back
        self._whole: bytearray | None = None  # a JSON object instead of a stream
        self._sse: SseParser | None = None
        self._body = bytearray()

    def receive(self, item: HttpItem) -> list[Part]:
        """Decode one part of the response; never raises."""
        if self.over:
            return []
        parts: list[Part]
        if isinstance(item, HttpHead):
            parts = self._head(item)
        elif isinstance(item, HttpData):
            parts = self._data(item.data)
        elif isinstance(item, HttpEnd):
            parts = self._end()
        else:
            parts = [Broken(f"{self.stage}: {item.reason}", item.failure)]
        if any(isinstance(part, Broken) for part in parts):
            self.over = True
        return parts

    # What the subclasses decode.

    def event(self, event: SseEvent) -> list[Part]:
        """Decode one server-sent event. May raise MalformedError."""
        raise NotImplementedError

    def whole(self, fields: Json) -> list[Part]:
        """Decode a response that came as one JSON object. May raise MalformedError."""
        raise NotImplementedError

    def raw(self, data: bytes) -> list[Part]:
        """Decode a piece of a body that is neither a stream of events nor JSON: it is refused."""
        sentence = f"the {self.stage} service sent neither an event stream nor JSON: {excerpt(data)}"
        return [Broken(sentence, Failure("protocol_violation", "content_type"))]

    def ended(self) -> list[Part]:
        """Return what the end of the body means, where nothing before it said that the response is complete."""
        raise NotImplementedError

    # The same for all stages.

    def _head(self, head: HttpHead) -> list[Part]:
        if head.status < 200:
            return []
        metadata, service_ns = served_by(head.headers, self.stage)
        known = dict(head.headers)
        encoding = known.get("content-encoding", "identity").strip().lower()
        self._is_compressed = encoding not in ("identity", "")
        if head.status >= 300:
            self._refused = head
            return [Served(metadata, service_ns)] if service_ns else []
        if self._is_compressed:
            sentence = (
                f"the {self.stage} service compressed its response ({one_line(encoding, 20)}) without being asked to"
            )
            return [Broken(sentence, Failure("protocol_violation", "content_encoding"))]
        kind = known.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/html":
            sentence = f"the {self.stage} service answered with a web page at {public_target(self.url)}"
            return [Broken(f"{sentence}: check the path", Failure("protocol_violation", "content_type"))]
        if kind == "text/event-stream":
            self._sse = SseParser()
        elif kind == "application/json":
            self._whole = bytearray()
        return [Served(metadata, service_ns)]

    def _data(self, data: bytes) -> list[Part]:
        if self._refused is not None:
            self._body += b"" if self._is_compressed else data[: MAX_ERROR_BYTES - len(self._body)]
            return []
        if self._whole is not None:
            self._whole += data
            return self._too_long("a JSON response", MAX_JSON_BYTES) if len(self._whole) > MAX_JSON_BYTES else []
        return self.raw(data) if self._sse is None else self._events(self._sse, data)

    def read_as_events(self, data: bytes) -> list[Part]:
        """Decode a body as a stream of events, from this piece on."""
        self._sse = SseParser()
        return self._events(self._sse, data)

    @property
    def comments(self) -> int:
        """Number of comments in the stream, with which services keep connections alive."""
        return 0 if self._sse is None else self._sse.comments

    def _events(self, sse: SseParser, data: bytes) -> list[Part]:
        parts: list[Part] = []
        try:
            events = sse.feed(data)
        except SseTooLongError:
            return self._too_long("an event", MAX_EVENT_BYTES)
        for event in events:
            if self.over or (parts and isinstance(parts[-1], Broken)):
                break
            try:
                parts += self.event(event)
            except MalformedError as error:
                parts.append(Malformed(f"{self.stage}: {error}", "malformed_message"))
        return parts

    def _end(self) -> list[Part]:
        if self._refused is not None:
            return [self._refusal(self._refused)]
        if self._whole is not None:
            try:
                return self.whole(parse_object(bytes(self._whole)))
            except MalformedError as error:
                return [Broken(f"{self.stage}: {error}", Failure("protocol_violation", "malformed_message"))]
        return self.ended()

    def _too_long(self, what: str, limit: int) -> list[Part]:
        return [Broken(f"{self.stage}: {over_limit(limit, what=what)}", message_limit(limit))]

    def _refusal(self, head: HttpHead) -> Broken:
        body = bytes(self._body)
        try:
            decoded: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            decoded = None
        fields = as_object(decoded) or {}
        error = fields.get("error", fields)
        wait_ns = retry_after_of_headers(head.headers)
        if wait_ns is None:
            wait_ns = retry_after_of_fields(as_object(error) or {})
        failure = Failure("http_status", str(head.status), wait_ns)
        asked = f"the {self.stage} service"
        sentence = refused_request(asked, head.status, body.decode(errors="replace"), head.headers, self.url)
        return Broken(sentence, failure, fatal=head.status in FATAL_STATUSES)


class TypedEventReader(ResponseReader):
    """Responses whose events say in their data of what type they are."""

    def event(self, event: SseEvent) -> list[Part]:
        """Decode one event by its type. May raise MalformedError."""
        if event.data == "[DONE]":
            return []
        fields = parse_object(event.data)
        kind = fields.get("type", event.event)
        parts = self.typed(kind, fields)
        if parts is not None:
            return parts
        if "error" in (kind, event.event) or "error" in fields:
            return [error_in_stream(self.stage, fields)]
        return [Unknown(str(kind))]

    def typed(self, kind: object, fields: Json) -> list[Part] | None:
        """Decode an event of this type; None for a type that this stage does not have. May raise MalformedError."""
        raise NotImplementedError


def error_in_stream(stage: StageName, fields: Json) -> Broken:
    """Return the failure that a service reports inside a stream that began well."""
    error = fields.get("error")
    inner = as_object(error) or fields
    failure = Failure("endpoint_error", code_of(inner.get("code"), inner.get("type")), retry_after_of_fields(inner))
    return Broken(f"the {stage} service reported an error: {error_message(error or fields)}", failure)


def cut_short(stage: StageName) -> Broken:
    """Return the failure of a response whose body ended before it was complete."""
    sentence = f"the {stage} service ended its response before it was complete"
    return Broken(sentence, Failure("protocol_violation", "cut_short"))
