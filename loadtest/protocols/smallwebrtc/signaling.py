"""The HTTP requests of Pipecat's SmallWebRTC: offer and answer, perhaps with a session started first. Pure.

An address that ends in `/start` first gets `POST …/start`, and the offer goes to `…/sessions/ID/api/offer`, as on
Pipecat Cloud and its development runner; the offer goes to any other address as it is. Source: pipecat 1.14.0,
transports/smallwebrtc/request_handler.py and runner/run.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import orjson

from loadtest.protocols.base import EventKind, Outgoing, VoiceEvent
from loadtest.protocols.failure import Failure, retry_after_of_headers
from loadtest.protocols.http_items import HttpData, HttpFailed, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    parse_object,
    required_text,
)
from loadtest.protocols.refusals import refused_request
from loadtest.protocols.webrtc_items import IceServer, MakeOffer, RemoteAnswer

START_ID: Final = "start"
OFFER_ID: Final = "offer"
_START_PATH: Final = "/start"
_LONGEST_BODY_BYTES: Final = 2**20
_ASKED: Final = {START_ID: "the start of a session", OFFER_ID: "the offer"}
_JSON: Final = ("Content-Type", "application/json")


class Signaling:
    """The exchange of one call. `pending` are the messages to send next; `failed` once it has failed."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]], data: Mapping[str, Any]) -> None:
        """Take the address, the headers of each request, and what the bot's code is to get."""
        self._url = url
        self._headers = (_JSON, *headers)
        self._data = data
        self._ice_servers: tuple[IceServer, ...] = ()
        self._offer_url = url
        self._sdp: str | None = None
        self._head: HttpHead | None = None
        self._body = bytearray()
        self._running: str | None = None
        self._done = False
        self.pending: list[Outgoing] = []

    def begin(self, ice_servers: tuple[IceServer, ...]) -> Sequence[Outgoing]:
        """Return the first message: a session is started where the address says so, then an offer is made."""
        self._ice_servers = ice_servers
        if urlsplit(self._url).path.endswith(_START_PATH):
            return [self._post(START_ID, self._url, {"transport": "webrtc", "body": self._data})]
        return [MakeOffer(ice_servers)]

    def offer(self, sdp: str) -> None:
        """Post the offer."""
        body: dict[str, Any] = {"sdp": sdp, "type": "offer"}
        if self._offer_url == self._url:  # a session that was started has its data already
            body["request_data"] = self._data
        self.pending.append(self._post(OFFER_ID, self._offer_url, body))

    def receive(self, item: HttpItem) -> list[VoiceEvent]:
        """Decode one part of a response; never raises."""
        if item.request_id != self._running:
            return [VoiceEvent(EventKind.OTHER, item.request_id)]
        if isinstance(item, HttpHead):
            self._head = item if item.status >= 200 else self._head
        elif isinstance(item, HttpData):
            if len(self._body) < _LONGEST_BODY_BYTES:
                self._body += item.data
        elif isinstance(item, HttpFailed):
            return self._fatal(f"{_ASKED[item.request_id]} failed: {item.reason}", item.failure)
        else:
            return self._ended(item.request_id)
        return [VoiceEvent(EventKind.OTHER, item.request_id)]

    def _post(self, request_id: str, url: str, body: Mapping[str, Any]) -> HttpRequest:
        self._running, self._head = request_id, None
        self._body.clear()
        return HttpRequest(request_id, "POST", url, self._headers, orjson.dumps(body))

    def _ended(self, asked: str) -> list[VoiceEvent]:
        head, body, self._running = self._head, bytes(self._body), None
        if head is None:
            return self._fatal(f"{_ASKED[asked]}: a response without a head", Failure("protocol_violation", "not_http"))
        if not 200 <= head.status < 300:
            failure = Failure("http_status", str(head.status), retry_after_of_headers(head.headers))
            who = f"the endpoint, for {_ASKED[asked]},"
            url = self._url if asked == START_ID else self._offer_url
            return self._fatal(
                refused_request(who, head.status, body.decode(errors="replace"), head.headers, url), failure
            )
        try:
            fields = parse_object(body)
            if asked == START_ID:
                self._started(fields)
            else:
                self._answered(fields)
        except MalformedError as error:
            sentence = f"the response to {_ASKED[asked]}: {error}"
            return self._fatal(sentence, Failure("protocol_violation", "malformed_message"))
        return [VoiceEvent(EventKind.OTHER, asked)]

    def _started(self, fields: Json) -> None:
        session = required_text(fields, "sessionId")
        parts = urlsplit(self._url)
        path = f"{parts.path.removesuffix(_START_PATH)}/sessions/{quote(session, safe='')}/api/offer"
        self._offer_url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        self.pending.append(MakeOffer((*self._ice_servers, *_ice_servers(fields))))

    def _answered(self, fields: Json) -> None:
        if required_text(fields, "type") != "answer":
            raise MalformedError(f"'type' is {excerpt(required_text(fields, 'type'))}; it should be 'answer'")
        self.pending.append(RemoteAnswer(required_text(fields, "sdp")))

    def _fatal(self, message: str, failure: Failure) -> list[VoiceEvent]:
        self._running = None
        return [VoiceEvent(EventKind.ERROR, "signaling", message=message, fatal=True, failure=failure)]


def _ice_servers(fields: Json) -> tuple[IceServer, ...]:
    """Return the servers of a started session; entries that are none are left out."""
    config = as_object(fields.get("iceConfig")) or {}
    found: list[IceServer] = []
    for each in as_list(config.get("iceServers")) or ():
        entry = as_object(each) or {}
        urls = entry.get("urls")
        named = [urls] if isinstance(urls, str) else as_list(urls) or []
        texts = tuple(url for url in named if isinstance(url, str))
        username, credential = entry.get("username"), entry.get("credential")
        if texts:
            found.append(
                IceServer(
                    texts,
                    username if isinstance(username, str) else None,
                    credential if isinstance(credential, str) else None,
                )
            )
    return tuple(found)
