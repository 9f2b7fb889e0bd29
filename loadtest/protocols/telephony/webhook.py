"""The voice webhook: the request by which a provider asks what to do with a call, and what its answer means. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from loadtest.protocols.failure import Failure, OpeningRefused
from loadtest.protocols.http_items import HttpAnswer, HttpRequest
from loadtest.protocols.refusals import redirected_to, refusal_text
from loadtest.protocols.telephony.signature import TWILIO_HEADER, Headers, plivo_headers, twilio_signature
from loadtest.protocols.telephony.twiml import PLIVO_XML, TEXML, TWIML, Markup, StreamTarget, stream_of
from loadtest.protocols.telephony.wire import StreamedCall

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


def _twilio_form(call: StreamedCall) -> dict[str, str]:
    return {
        "AccountSid": call.account_id,
        "ApiVersion": API_VERSION,
        "CallSid": call.call_id,
        "CallStatus": "ringing",
        "Called": call.to_number,
        "Caller": call.from_number,
        "Direction": "inbound",
        "From": call.from_number,
        "To": call.to_number,
    }


def _texml_form(call: StreamedCall) -> dict[str, str]:
    return {
        "AccountSid": call.account_id,
        "CallSid": call.call_id,
        "CallStatus": "ringing",
        "From": call.from_number,
        "To": call.to_number,
    }


def _plivo_form(call: StreamedCall) -> dict[str, str]:
    return {
        "CallStatus": "ringing",
        "CallUUID": call.call_id,
        "Direction": "inbound",
        "Event": "StartApp",
        "From": call.from_number.removeprefix("+"),
        "To": call.to_number.removeprefix("+"),
    }


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
