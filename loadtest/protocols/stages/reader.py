"""One response of a stage service as it arrives: its head, its body in pieces, its end. Pure.

A response whose status is no success is read as an error, whatever stage sends it; what a success contains is decoded
by the subclass of each stage.
"""

from typing import Final

import orjson

from loadtest.protocols.address import public_target
from loadtest.protocols.error_objects import error_message
from loadtest.protocols.failure import Failure, code_of, retry_after_of_fields, retry_after_of_headers
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpHead, HttpItem
from loadtest.protocols.json_fields import Json, MalformedError, as_object, parse_object
from loadtest.protocols.message_limit import message_limit, over_limit
from loadtest.protocols.refusals import refused_request
from loadtest.protocols.stages.gateway import served_by
from loadtest.protocols.stages.parts import Broken, Malformed, Part, Served, StageName, Unknown
from loadtest.protocols.stages.sse import MAX_EVENT_BYTES, SseEvent, SseParser, SseTooLongError
from telemetry.model.foreign_text import one_line

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
        """Decode a piece of a body that is neither a stream of events nor JSON."""
        raise NotImplementedError

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
        """How many comments the stream had, with which services keep connections alive."""
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
