"""A provider's voice webhook: the form that it is sent, and the XML in which it says which stream to open. Pure.

Twilio calls it TwiML, Telnyx TeXML; Plivo's own has other elements. A document from an endpoint is not trusted: its
size is limited, and a document type, which entities need, is refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit
from xml.parsers import expat

from loadtest.protocols.error_objects import redirected_to, refusal_text
from loadtest.protocols.failure import Failure, OpeningRefused
from loadtest.protocols.http_items import HttpAnswer, HttpRequest
from loadtest.protocols.telephony.wires import (
    TWILIO_HEADER,
    Headers,
    StreamedCall,
    plivo_headers,
    twilio_signature,
)

MAX_BYTES: Final = 65_536  # Twilio's own limit
MAX_DEPTH: Final = 32
# Verbs after which a call cannot reach an agent.
_REFUSALS: Final = frozenset({"Reject", "Hangup"})


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The stream to open: its address, its custom parameters, and the verbs before it, which are not carried out."""

    url: str
    parameters: dict[str, str]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Markup:
    """One provider's XML. `stream` is the path of the element with the stream's address.

    The address is the attribute `url`, and the custom parameters are elements below it; or the address is the element's
    text, and the parameters are in its attribute `extraHeaders`.
    """

    name: str
    provider: str
    stream: tuple[str, ...]
    url_is_text: bool = False
    takes_query: bool = False  # whether the provider opens an address with a query


TWIML: Final = Markup("TwiML", "Twilio", ("Response", "Connect", "Stream"))
TEXML: Final = Markup("TeXML", "Telnyx", ("Response", "Connect", "Stream"), takes_query=True)
PLIVO_XML: Final = Markup("Plivo XML", "Plivo", ("Response", "Stream"), url_is_text=True, takes_query=True)


def stream_of(document: bytes, webhook_url: str, markup: Markup = TWIML) -> StreamTarget:
    """Return the first stream of a document that carries audio in both directions.

    A relative address is resolved as the webhook's. Raises OpeningRefused, with a sentence and a code, for a document
    that is not the provider's XML, that refuses the call, or whose stream a provider could not open.
    """
    if len(document) > MAX_BYTES:
        sentence = f"the webhook answered with {len(document)} bytes; {markup.name} has at most {MAX_BYTES}"
        raise _violation(sentence, "answer_too_long")
    reader = _Reader(markup)
    try:
        reader.read(document)
    except expat.ExpatError as error:
        raise _violation(f"the webhook did not answer with {markup.name}: {error}", "malformed_xml") from None
    if reader.url is None:
        raise _why_none(reader)
    return StreamTarget(_address(reader.url, webhook_url, markup), reader.parameters, tuple(reader.skipped))


def _violation(sentence: str, code: str) -> OpeningRefused:
    return OpeningRefused(sentence, Failure("protocol_violation", code))


@dataclass(slots=True)
class _Reader:
    markup: Markup
    url: str | None = None
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    skipped: list[str] = field(default_factory=list[str])
    path: list[str] = field(default_factory=list[str])
    unidirectional: bool = False
    _closed: bool = False

    def read(self, document: bytes) -> None:
        """Raises expat.ExpatError, and OpeningRefused for XML that is not safe to read."""
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.Parse(document, True)

    def _refuse_doctype(self, *declaration: object) -> None:
        del declaration
        sentence = f"the webhook's document has a document type (<!DOCTYPE>), which {self.markup.name} has not"
        raise _violation(sentence, "document_type")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name)
        if len(self.path) > MAX_DEPTH:
            what = self.markup.name
            sentence = f"the webhook's document is nested more than {MAX_DEPTH} deep, which {what} is not"
            raise _violation(sentence, "nested_too_deep")
        path, stream = tuple(self.path), self.markup.stream
        if path == stream:
            self._begin_stream(attributes)
        elif path == (*stream, "Parameter") and not self._closed:
            self.parameters[attributes.get("name", "")] = attributes.get("value", "")
        elif path == ("Response", "Start", "Stream"):
            self.unidirectional = True
        elif len(path) == 2 and name != stream[1] and self.url is None:
            self.skipped.append(name)

    def _begin_stream(self, attributes: dict[str, str]) -> None:
        if self.url is not None:
            return
        if not self.markup.url_is_text:
            self.url = attributes.get("url", "")
        elif attributes.get("bidirectional", "").lower() != "true":
            self.unidirectional = True
        else:
            self.url = ""
            for pair in re.split("[;,]", attributes.get("extraHeaders", "")):
                name, sign, value = pair.strip().partition("=")
                if sign:
                    self.parameters[name] = value

    def _text(self, text: str) -> None:
        in_stream = tuple(self.path) == self.markup.stream
        if self.markup.url_is_text and in_stream and self.url is not None and not self._closed:
            self.url += text

    def _end(self, name: str) -> None:
        del name
        if tuple(self.path) == self.markup.stream and self.url is not None:
            self._closed = True
        self.path.pop()


def _why_none(reader: _Reader) -> OpeningRefused:
    markup = reader.markup
    if refusals := [verb for verb in reader.skipped if verb in _REFUSALS]:
        sentence = f"the webhook refused the call: its {markup.name} says <{refusals[0]}>"
        return OpeningRefused(sentence, Failure("endpoint_error", f"call_{refusals[0].lower()}"))
    if reader.unidirectional and markup.url_is_text:
        sentence = f'the stream in the webhook\'s {markup.name} only listens; it needs bidirectional="true"'
        return _violation(sentence, "stream_only_listens")
    if reader.unidirectional:
        sentence = f"the webhook's {markup.name} opens a stream in <Start>, which only listens"
        return _violation(f"{sentence}; an agent that speaks needs <Connect>", "stream_only_listens")
    verbs = ", ".join(f"<{verb}>" for verb in reader.skipped) or "no verb"
    path = "".join(f"<{element}>" for element in markup.stream[1:-1])
    element = "<Stream>" if markup.url_is_text else "<Stream url=…>"
    return _violation(f"the webhook's {markup.name} has no {path}{element}; it has {verbs}", "no_stream")


def _address(url: str, webhook_url: str, markup: Markup) -> str:
    """Return the absolute address of a stream. Raises OpeningRefused for one that the provider would not open."""
    try:
        absolute = urljoin(webhook_url, url.strip())
        parts = urlsplit(absolute)
        host = parts.hostname
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme in ("http", "https") and "://" not in url:
        parts = parts._replace(scheme="wss" if parts.scheme == "https" else "ws")
    shown = urlsplit(url)._replace(query="", fragment="").geturl() if host else url
    if not url.strip() or parts.scheme not in ("ws", "wss") or not host:
        sentence = f"the stream's url in the webhook's {markup.name} is {shown[:200]!r}; it must begin with wss://"
        raise _violation(sentence, "bad_address")
    if (parts.query and not markup.takes_query) or parts.fragment:
        sentence = f"the stream's url {shown[:200]!r} has a query or a fragment, which {markup.provider} refuses"
        raise _violation(f"{sentence}; use <Parameter> instead", "bad_address")
    return parts.geturl()


REQUEST_ID: Final = "webhook"
API_VERSION: Final = "2010-04-01"
_EXCERPT_CHARS: Final = 200
_XML: Final = frozenset({"text/xml", "application/xml", "text/html"})


@dataclass(frozen=True, slots=True)
class Webhook:
    """One provider's webhook: the form that it sends, its proof of who it is, and the XML that it understands.

    `proof(token, url, form, call)` returns headers.
    """

    markup: Markup
    form: Callable[[StreamedCall], dict[str, str]]
    proof: Callable[[str, str, Mapping[str, str], StreamedCall], Headers]

    def request(self, url: str, call: StreamedCall, token: str | None, traceparent: str | None) -> HttpRequest:
        """Return the request, with the provider's proof if there is a token."""
        form = self.form(call)
        headers = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), ("Accept", "text/xml, */*")]
        if token is not None:
            headers += self.proof(token, url, form, call)
        if traceparent is not None:
            headers.append(("traceparent", traceparent))
        return HttpRequest(REQUEST_ID, "POST", url, tuple(headers), urlencode(form).encode())

    def stream(self, answer: HttpAnswer, url: str) -> StreamTarget:
        """Return the stream that the answer says to open.

        Raises OpeningRefused, with a sentence and a code, for an answer that opens none. Redirects are not followed.
        """
        if not 200 <= answer.status < 300:
            raise OpeningRefused(_refusal(answer, url), Failure("http_status", str(answer.status)))
        kind = answer.header("content-type").partition(";")[0].strip().lower()
        if kind and kind not in _XML:
            sentence = f"the webhook answered with {kind[:_EXCERPT_CHARS]!r}; {self.markup.name} comes as text/xml"
            raise OpeningRefused(sentence, Failure("protocol_violation", "content_type"))
        return stream_of(answer.body, url, self.markup)


def _refusal(answer: HttpAnswer, url: str) -> str:
    if 300 <= answer.status < 400:
        where = redirected_to(answer.headers, url, is_websocket=False)
        leads = "a redirect" if where is None else f"a redirect to {where}"
        return f"the webhook answered with HTTP {answer.status}, {leads}; give the address that it leads to"
    text = refusal_text(answer.body.decode(errors="replace"), answer.headers)
    return f"the webhook answered with HTTP {answer.status}{f': {text}' if text else ''}"


def _ringing(call: StreamedCall, call_key: str, **further: str) -> dict[str, str]:
    called = {"From": call.from_number, "To": call.to_number, call_key: call.call_id, "CallStatus": "ringing"}
    return {**called, **further}


def _twilio_form(call: StreamedCall) -> dict[str, str]:
    further = {"ApiVersion": API_VERSION, "Called": call.to_number, "Caller": call.from_number, "Direction": "inbound"}
    return _ringing(call, "CallSid", AccountSid=call.account_id, **further)


def _texml_form(call: StreamedCall) -> dict[str, str]:
    return _ringing(call, "CallSid", AccountSid=call.account_id)


def _plivo_form(call: StreamedCall) -> dict[str, str]:
    numbers = {"From": call.from_number.removeprefix("+"), "To": call.to_number.removeprefix("+")}
    return {**_ringing(call, "CallUUID", Direction="inbound", Event="StartApp"), **numbers}


def _twilio_proof(token: str, url: str, form: Mapping[str, str], call: StreamedCall) -> Headers:
    del call
    return ((TWILIO_HEADER, twilio_signature(token, url, form)),)


def _plivo_proof(token: str, url: str, form: Mapping[str, str], call: StreamedCall) -> Headers:
    return plivo_headers(token, url, call.digits, form)


def _no_proof(token: str, url: str, form: Mapping[str, str], call: StreamedCall) -> Headers:
    """Return nothing: Telnyx signs with a key that only it has."""
    del token, url, form, call
    return ()


# Vonage asks for JSON, and Exotel's applet has the stream's address in its settings.
WEBHOOKS: Final[Mapping[str, Webhook]] = {
    "twilio": Webhook(TWIML, _twilio_form, _twilio_proof),
    "telnyx": Webhook(TEXML, _texml_form, _no_proof),
    "plivo": Webhook(PLIVO_XML, _plivo_form, _plivo_proof),
}
