"""The voice webhook, signatures, TwiML and callers against Pipecat's serializers and the providers' packages.

Recorders of the fixtures: tests/integration/recorders/record_telephony.py and record_telephony_packages.py.
"""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest

from loadtest.audio import pcm
from loadtest.errors import UsageError
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import CallerOptions, EventKind, Message, OpenRequest
from loadtest.protocols.failure import OpeningRefused
from loadtest.protocols.http_items import HttpAnswer
from loadtest.protocols.telephony.caller import TelephonyCaller
from loadtest.protocols.telephony.webhook import MAX_BYTES, PLIVO_XML, WEBHOOKS, StreamTarget, stream_of
from loadtest.protocols.telephony.wires import WIRES, StreamedCall, plivo_signature, twilio_signature
from tests.unit.loadtest.protocols.telephony.calls import (
    PARAMETERS,
    TRACE_ID,
    TRACEPARENT,
    VARIANTS,
    as_json,
    make,
    messages,
    spoken,
)

URL = "https://agent.example/voice?tenant=1"
CALL = StreamedCall(
    digits="0" * 32,
    stream_id="MZ0",
    call_id="CA0",
    account_id="AC0",
    from_number="+15005550006",
    to_number="+15005550001",
    encoding="audio/x-mulaw",
    format=AudioFormat("pcmu", 8000),
    parameters={},
)
GOOD = b'<Response><Connect><Stream url="wss://agent.example/media"/></Connect></Response>'


ONLY_LISTENS = ("protocol_violation", "stream_only_listens")
NO_STREAM = ("protocol_violation", "no_stream")
BAD_ADDRESS = ("protocol_violation", "bad_address")


def twiml(inside: str) -> bytes:
    return f"<?xml version='1.0'?><Response>{inside}</Response>".encode()


def stream(url: str) -> bytes:
    return twiml(f'<Connect><Stream url="{url}"/></Connect>')


def answer(status: int, kind: str, body: bytes) -> HttpAnswer:
    return HttpAnswer(status, (("content-type", kind),) if kind else (), body)


def stream_from(status: int, kind: str, body: bytes) -> StreamTarget:
    return WEBHOOKS["twilio"].stream(answer(status, kind, body), URL)


def test_the_request_is_a_form_signed_with_the_token() -> None:
    request = WEBHOOKS["twilio"].request(URL, CALL, "12345", "00-1-2-01")
    assert (request.method, request.url) == ("POST", URL)
    form = dict(parse_qsl(request.body.decode(), strict_parsing=True))
    assert form["CallSid"] == "CA0"
    assert (form["From"], form["To"], form["Direction"]) == ("+15005550006", "+15005550001", "inbound")
    headers = dict(request.headers)
    assert headers["Content-Type"].startswith("application/x-www-form-urlencoded")
    assert headers["X-Twilio-Signature"] == twilio_signature("12345", URL, form)
    assert headers["traceparent"] == "00-1-2-01"
    assert "X-Twilio-Signature" not in dict(WEBHOOKS["twilio"].request(URL, CALL, None, None).headers)


@pytest.mark.parametrize("kind", ["text/xml", "application/xml; charset=utf-8", "text/html", ""])
def test_an_answer_that_opens_a_stream(kind: str) -> None:
    assert stream_from(200, kind, GOOD).url == "wss://agent.example/media"


@pytest.mark.parametrize(
    ("status", "kind", "body", "expected", "cause"),
    [
        (403, "text/plain", b"bad signature", "HTTP 403: bad signature", ("http_status", "403")),
        (302, "text/html", b"", "HTTP 302, a redirect", ("http_status", "302")),
        (200, "application/json", GOOD, "'application/json'", ("protocol_violation", "content_type")),
        (200, "text/xml", b"", "did not answer with TwiML", ("protocol_violation", "malformed_xml")),
        (200, "text/xml", b"<Response>", "did not answer with TwiML", ("protocol_violation", "malformed_xml")),
        (200, "text/xml", twiml("<Reject/>"), "refused the call", ("endpoint_error", "call_reject")),
        (200, "text/xml", twiml("<Hangup/>"), "refused the call", ("endpoint_error", "call_hangup")),
        (200, "text/xml", twiml('<Start><Stream url="wss://x/"/></Start>'), "needs <Connect>", ONLY_LISTENS),
        (200, "text/xml", twiml("<Say>hello</Say>"), "it has <Say>", NO_STREAM),
        (200, "text/xml", twiml(""), "no verb", NO_STREAM),
        (200, "text/xml", b"<Connect><Stream url='wss://x/'/></Connect>", "no <Connect><Stream", NO_STREAM),
        (200, "text/xml", stream(""), "must begin with wss://", BAD_ADDRESS),
        (200, "text/xml", stream("https://agent.example/media"), "must begin with wss://", BAD_ADDRESS),
        (200, "text/xml", stream("http://agent.example/media?token=abc"), "must begin with wss://", BAD_ADDRESS),
        (200, "text/xml", stream("wss://[bad/"), "must begin with wss://", BAD_ADDRESS),
        (200, "text/xml", stream("wss://agent.example/media?token=abc"), "use <Parameter> instead", BAD_ADDRESS),
    ],
)
def test_an_answer_that_opens_none_is_explained(
    status: int, kind: str, body: bytes, expected: str, cause: tuple[str, str]
) -> None:
    with pytest.raises(OpeningRefused) as raised:
        stream_from(status, kind, body)
    assert expected in str(raised.value)
    assert "token=abc" not in str(raised.value)
    assert (raised.value.failure.kind, raised.value.failure.code) == cause


def test_a_relative_address_is_the_webhooks() -> None:
    assert stream_of(stream("/media"), URL).url == "wss://agent.example/media"
    assert stream_of(stream("media"), "http://127.0.0.1:5/a/voice").url == "ws://127.0.0.1:5/a/media"


def test_only_the_first_stream_counts() -> None:
    two = twiml(
        '<Connect><Stream url="wss://a/"><Parameter name="p" value="1"/></Stream></Connect>'
        '<Connect><Stream url="wss://b/"><Parameter name="p" value="2"/></Stream></Connect>'
    )
    parsed = stream_of(two, URL)
    assert (parsed.url, parsed.parameters) == ("wss://a/", {"p": "1"})


LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<Response><Say>&b;</Say><Connect><Stream url="wss://a/"/></Connect></Response>"""
OUTSIDE = b"""<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><Response>&a;</Response>"""


@pytest.mark.parametrize("document", [LAUGHS, OUTSIDE])
def test_a_document_with_entities_is_refused(document: bytes) -> None:
    with pytest.raises(OpeningRefused, match="DOCTYPE"):
        stream_of(document, URL)


def test_size_and_depth_are_limited() -> None:
    with pytest.raises(OpeningRefused, match="at most 65536"):
        stream_of(GOOD + b" " * MAX_BYTES, URL)
    with pytest.raises(OpeningRefused, match="nested"):
        stream_of(b"<a>" * 1000, URL)


def plivo(inside: str, attributes: str = 'bidirectional="true"') -> bytes:
    return f"<Response><Stream {attributes}>{inside}</Stream></Response>".encode()


def test_plivos_stream_has_its_address_in_its_text() -> None:
    document = plivo("\n wss://agent.example/media?a=1\n", 'bidirectional="true" extraHeaders="tier=gold;user=7"')
    parsed = stream_of(document, URL, PLIVO_XML)
    assert (parsed.url, parsed.parameters) == ("wss://agent.example/media?a=1", {"tier": "gold", "user": "7"})
    with pytest.raises(OpeningRefused, match='needs bidirectional="true"'):
        stream_of(plivo("wss://agent.example/media", ""), URL, PLIVO_XML)
    with pytest.raises(OpeningRefused, match="no <Stream>; it has <Speak>"):
        stream_of(twiml("<Speak>hello</Speak>"), URL, PLIVO_XML)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def caller(wire: str, **settings: object) -> tuple[TelephonyCaller, OpenRequest]:
    made = TelephonyCaller(WIRES[wire], CallerOptions(token="12345", settings={"webhook": URL, **settings}))
    return made, made.upgrade("ws://127.0.0.1:1/unused", TRACE)


def test_caller_asks_webhook_and_opens_the_stream_it_names() -> None:
    made, request = caller("twilio", parameters={"tier": "silver", "own": "1"})
    assert request.prior is not None
    assert (request.prior.request.method, request.prior.request.url) == ("POST", URL)
    inside = '<Connect><Stream url="wss://agent.example/media"><Parameter name="tier" value="gold"/></Stream></Connect>'
    opening = request.prior.opening(answer(200, "text/xml", twiml(inside)))
    assert (opening.url, opening.prior) == ("wss://agent.example/media", None)
    headers = dict(opening.headers)
    assert headers["X-Twilio-Signature"] == twilio_signature("12345", "wss://agent.example/media")
    assert headers["traceparent"] == TRACE
    start = json.loads(made.opened()[1])["start"]
    assert start["customParameters"] == {"tier": "gold", "own": "1", "traceparent": TRACE}
    form = dict(parse_qsl(request.prior.request.body.decode(), strict_parsing=True))
    assert form["CallSid"] == start["callSid"] == "CA0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("wire", ["exotel", "vonage"])
def test_webhook_of_unsupported_provider_is_refused(wire: str) -> None:
    with pytest.raises(UsageError, match="this provider's webhook is not supported; those of twilio, telnyx, plivo"):
        caller(wire)


@pytest.mark.parametrize("url", ["ws://h/", "not an address", "http:///voice", "http://u@h/", "https://h/#f"])
def test_invalid_webhook_address_is_fault_and_is_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="'webhook' is not valid: give the address of a voice webhook") as raised:
        caller("twilio", webhook=url)
    assert url not in str(raised.value)


FIXTURES = Path(__file__).parents[4] / "fixtures" / "telephony"
PACKAGES = json.loads((FIXTURES / "packages.json").read_text())


def recorded(variant: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what Pipecat recognized, and the lines after it."""
    _, known, *lines = [json.loads(line) for line in (FIXTURES / f"{variant}.jsonl").read_text().splitlines()]
    return known, lines


def whole(message: Any) -> Message:
    return base64.b64decode(message["binary"]) if isinstance(message, dict) else message


@pytest.mark.parametrize("variant", VARIANTS)
def test_agent_messages_are_decoded_as_recorded(variant: str) -> None:
    caller = make(variant)
    for line in (line for line in recorded(variant)[1] if "agent" in line):
        events = list(caller.receive(whole(line["message"])))
        if line["agent"] == "audio":
            (event,) = events
            assert (event.kind, event.rate_hz) == (EventKind.AUDIO, line["rate_hz"])
            assert event.audio == base64.b64decode(line["pcm"]), "decoded by Python's audioop in the recording"
        elif line["agent"] == "mark":
            assert [(event.kind, event.text) for event in events] == [(EventKind.MARK, line["name"])]
        else:
            assert [event.kind for event in events] == [EventKind.CLEAR]


@pytest.mark.parametrize("variant", VARIANTS)
def test_pipecat_hears_the_whole_call(variant: str) -> None:
    caller = make(variant)
    lines = [line for line in recorded(variant)[1] if "caller" in line]
    assert [as_json(message) for message in messages(caller)] == [line["caller"] for line in lines], (
        "the messages are no longer those that Pipecat was given; record the fixture again"
    )
    heard = [line["heard"] for line in lines if line["heard"] is not None]
    assert [message["key"] for message in heard if "key" in message] == ["5"]
    audio = b"".join(base64.b64decode(message["audio"]) for message in heard if "audio" in message)
    assert {message["rate_hz"] for message in heard if "audio" in message} == {caller.capabilities.input_rate_hz}
    difference = pcm.from_bytes(audio).astype(int) - spoken(caller)
    # G.711 keeps 13 or 14 bits of a loud sample: its steps near half of full scale are 1024 wide at most.
    assert np.abs(difference).max() <= (0 if VARIANTS[variant][0] in ("exotel", "vonage") else 512)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "vonage"])
def test_pipecat_recognizes_the_provider_and_the_call(variant: str) -> None:
    known, _ = recorded(variant)
    assert known["detected"] == VARIANTS[variant][0]
    call = known["call"]
    assert TRACE_ID in call["call_id"].replace("-", "")
    assert TRACE_ID in call["stream_id"].replace("-", "")
    carried = {**PARAMETERS, "traceparent": TRACEPARENT}
    if variant == "twilio":
        assert call["body"] == carried
    elif variant.startswith("exotel"):
        assert call["custom_parameters"] == carried
        assert (call["from"], call["to"]) == ("+15005550006", "+15005550001")
    elif variant.startswith("telnyx"):
        assert call["outbound_encoding"] == ("PCMA" if variant == "telnyx-alaw" else "PCMU")


@pytest.mark.parametrize("vector", PACKAGES["twilio"])
def test_the_signature_is_that_of_twilios_package(vector: dict[str, Any]) -> None:
    assert twilio_signature(PACKAGES["recorded"]["token"], vector["url"], vector["form"]) == vector["signature"]


@pytest.mark.parametrize("vector", PACKAGES["plivo"])
def test_the_signature_is_that_of_plivos_package(vector: dict[str, Any]) -> None:
    token, url, nonce = PACKAGES["recorded"]["token"], vector["url"], vector["nonce"]
    assert plivo_signature(token, url, nonce, vector.get("form")) == vector["signature"]


def test_twiml_of_twilios_package_is_read() -> None:
    parsed = stream_of(PACKAGES["twiml"]["connect"].encode(), "https://agent.example/voice")
    assert parsed.url == "wss://agent.example/media"
    assert parsed.parameters == {"customer": 'Ada & "Bob" <x>', "tier": "gold"}
    assert parsed.skipped == ()
    after = stream_of(PACKAGES["twiml"]["after"].encode(), "https://agent.example/voice")
    assert (after.url, after.skipped) == ("wss://agent.example/media", ("Say", "Pause"))
