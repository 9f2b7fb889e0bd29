"""Refusals and failures: causes, sentences, advice, and the endpoint's headers that are kept."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.outcome import fault_of
from loadtest.protocols.advice import Attempt, Topic, advice, topic_of
from loadtest.protocols.error_objects import (
    answer_message,
    closed_connection,
    error_message,
    redirected_to,
    refused_request,
    refused_upgrade,
)
from loadtest.protocols.failure import (
    LONGEST_RETRY_NS,
    MAX_CODE_CHARS,
    Failure,
    OpeningRefused,
    code_of,
    retry_after_of_fields,
    retry_after_of_headers,
)
from loadtest.protocols.foreign import protocol_of, sent_instead
from loadtest.protocols.headers import KEPT, MAX_VALUE_CHARS, kept_headers
from loadtest.protocols.http_items import HttpAnswer, HttpData, HttpEnd, HttpHead
from loadtest.protocols.message_limit import message_limit, over_limit, size
from loadtest.protocols.registry import names
from loadtest.protocols.smallwebrtc.caller import Signaling
from loadtest.protocols.telephony.webhook import WEBHOOKS
from loadtest.protocols.transports.websocket import Closed, Rejected
from telemetry.model.personal_data import text_without_personal_data

_MEMBERS = st.sampled_from(["message", "detail", "error", "loc", "msg", "code", "type", "x"])
ERRORS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_MEMBERS, inner),
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"detail":"Not Found"}', "Not Found"),
        ('{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required"}]}', "body.model: Field required"),
        ('{"error":{"message":"Invalid URL","type":"invalid_request_error"}}', "Invalid URL (invalid_request_error)"),
        ('{"err_code":"INVALID_AUTH","err_msg":"Invalid credentials."}', "Invalid credentials. (INVALID_AUTH)"),
        ('{"detail":{"status":"invalid_api_key","message":"Invalid API key"}}', "Invalid API key"),
        ('{"object":"error","message":"No such model.","code":404}', "No such model."),
        ('{"errors":[{"message":"a"},{"message":"b"}]}', "a; b"),
        ('{"title":"Forbidden","status":"403"}', "Forbidden (403)"),
        (
            "<html><head><title>t</title><style>p{}</style></head><body><h1>502</h1>Bad &amp; gone</body>",
            "502 Bad & gone",
        ),
        ("go away", "go away"),
    ],
)
def test_the_body_of_a_refusal_is_read_in_all_its_forms(body: str, message: str) -> None:
    assert answer_message(body) == message


@pytest.mark.slow
@given(ERRORS)
def test_an_error_of_any_form_has_a_sentence(error: object) -> None:
    assert error_message(error)


def test_deeply_nested_error_or_huge_number_has_a_sentence() -> None:
    deep: list[object] = []
    for _ in range(2_000):
        deep = [deep]
    assert "does not say what is wrong" in error_message({"x": deep})
    assert "does not say what is wrong" in error_message({"x": 2**80})
    assert "does not say what is wrong" in answer_message("[" * 500 + "]" * 500)


def test_status_without_body_is_stated_once_and_header_may_add() -> None:
    url = "ws://user:secret@h/p?key=secret"
    assert (
        refused_upgrade(403, "Forbidden", "", (), url)
        == "the endpoint refused the connection with HTTP 403 (Forbidden)"
    )
    assert refused_upgrade(404, "Not Found", "Not Found", (), url).endswith("with HTTP 404 (Not Found)")
    sentence = refused_upgrade(400, "Bad Request", "", (("dg-error", "Bad encoding"),), url)
    assert sentence.endswith("(Bad Request): Bad encoding")
    asked = refused_request("the llm service", 404, '{"detail":"Not Found"}', (), "http://u:secret@h/v1/x?key=secret")
    assert asked == "the llm service answered HTTP 404 at http://h/v1/x: Not Found"


@pytest.mark.parametrize(
    ("location", "url", "leads_to"),
    [
        ("https://other/v1", "ws://h/v1/realtime", "wss://other/v1"),
        ("/v2?token=secret", "wss://h/v1/realtime", "wss://h/v2"),
        ("next", "ws://h/v1/realtime", "ws://h/v1/next"),
        ("//other/x", "ws://h/v1/realtime", "ws://other/x"),
        ("http://[bad", "ws://h/", "http://[bad"),
    ],
)
def test_a_redirect_leads_to_an_address_of_the_same_kind(location: str, url: str, leads_to: str) -> None:
    assert redirected_to((("Location", location),), url, is_websocket=True) == leads_to
    assert redirected_to((), url, is_websocket=True) is None


def test_a_close_code_has_its_name() -> None:
    assert (
        closed_connection(1008, "who are you")
        == "the endpoint closed the call (code 1008, policy violation): who are you"
    )
    assert closed_connection(4711, "") == "the endpoint closed the call (code 4711)"


@pytest.mark.parametrize("limit", [64 * 2**10, 16 * 2**20])
@pytest.mark.parametrize("count", [None, 16 * 2**20 + 1, 20_000_000, 2**40, 2**62])
def test_own_message_limit_is_named_as_ours_with_visible_numbers(limit: int, count: int | None) -> None:
    sentence = over_limit(limit, count)
    assert "voiceprobe" in sentence
    assert size(limit) in sentence
    assert "violat" not in sentence
    assert text_without_personal_data(sentence) == sentence
    assert message_limit(limit).kind == "generator"
    assert size(limit) in (fault_of(message_limit(limit)) or "")


def test_sizes_are_read_as_people_read_them() -> None:
    assert [size(count) for count in (12, 65_536, 16 * 2**20, 20_971_520, 2**62)] == [
        "12 bytes",
        "64 KiB",
        "16 MiB",
        "20 MiB",
        "4 EiB",
    ]


@pytest.mark.parametrize(
    ("message", "protocol"),
    [
        ('{"type":"session.created","session":{}}', "openai-realtime"),
        ('{"type":"session.created","id":"s"}', "vllm-realtime"),
        ('{"type":"error","event_id":"e","error":{"message":"m"}}', "openai-realtime"),
        ('{"type":"Welcome"}', "deepgram-agent"),
        ('{"setupComplete":{}}', "gemini-live"),
        ('{"type":"conversation_initiation_metadata"}', "elevenlabs"),
        ('{"event":"media"}', "twilio"),
        (b'"\x1e\n\x1c{"label":"rtvi-ai","type":"x"}', "pipecat"),
        (b"\x0a\x00\xff", None),
        ('{"event":"playAudio"}', "plivo"),
        ('{"type":"error"}', None),
        ('{"type":7}', None),
        ("[]", None),
        ("hello", None),
    ],
)
def test_a_message_is_known_by_what_only_its_protocol_has(message: str | bytes, protocol: str | None) -> None:
    assert protocol_of(message) == protocol
    assert ("--protocol" in sent_instead(message)) is (protocol is not None)


def test_a_webhook_that_redirects_says_where_it_leads() -> None:
    answer = HttpAnswer(307, (("location", "/voice?token=secret"),))
    with pytest.raises(OpeningRefused) as raised:
        WEBHOOKS["twilio"].stream(answer, "http://127.0.0.1:7860/")
    assert "a redirect to http://127.0.0.1:7860/voice; give the address" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (404, (), b'{"detail":"Not Found"}', "answered HTTP 404 at http://h/api/offer: Not Found"),
        (422, (), b'{"detail":[{"loc":["body","sdp"],"msg":"Field required"}]}', "body.sdp: Field required"),
        (308, (("location", "http://h2/api/offer"),), b"", "redirects to http://h2/api/offer with HTTP 308"),
    ],
)
def test_an_offer_that_is_refused_says_why(
    status: int, headers: tuple[tuple[str, str], ...], body: bytes, words: str
) -> None:
    signaling = Signaling("http://user:secret@h/api/offer?token=secret", (), {})
    signaling.offer("v=0")
    signaling.receive(HttpHead("offer", status, headers))
    signaling.receive(HttpData("offer", body))
    (event,) = signaling.receive(HttpEnd("offer"))
    assert event.fatal
    assert words in (event.message or "")
    assert "secret" not in (event.message or "")


WEBSOCKET = Attempt("openai-realtime", "ws://h/v1/realtime", has_key=False)


@pytest.mark.parametrize(
    ("sentence", "topic"),
    [
        ("You didn't provide an API key.", "key"),
        ("Invalid proxy server token passed.", "key"),
        ("Method doesn't allow unregistered callers. Please use API Key", "key"),
        ("INVALID_AUTH", "key"),
        ("Request had insufficient authentication scopes.", "key"),
        ("You must provide a model parameter.", "model"),
        ("models/x is not found for API version v1beta", "model"),
        ("body.model: Field required", "model"),
        ("The API deployment for this resource does not exist", "model"),
        ("Missing required query parameter: agent_id", "agent"),
        ("The AI agent you are trying to reach does not exist.", "agent"),
        ("Unsupported sample rate 44100", "audio"),
        ("Invalid value: 'audio/pcm'. Supported formats are", "audio"),
        ("Rate limit reached for requests", "limit"),
        ("RESOURCE_EXHAUSTED: quota", "limit"),
        ("Invalid URL (GET /v1/realtimes)", "path"),
        ("Not Found", "path"),
        ("Internal error encountered.", None),
        ("", None),
    ],
)
def test_a_sentence_is_about_one_thing(sentence: str, topic: Topic | None) -> None:
    assert topic_of(sentence) == topic


@pytest.mark.parametrize(
    ("failure", "sentence", "words"),
    [
        (Failure("http_status", "403"), "Forbidden", ("check the path /v1/realtime first", "none was sent")),
        (Failure("http_status", "403"), "Invalid API key", ("no key was sent", "check the path /v1/realtime")),
        (Failure("http_status", "401"), "", ("VOICEPROBE_TOKEN",)),
        (Failure("http_status", "404"), "", ("check the path /v1/realtime", "--protocol")),
        (Failure("http_status", "404"), "model x not found", ("--model NAME",)),
        (Failure("http_status", "400"), "", ("check the path /v1/realtime", "--protocol")),
        (Failure("http_status", "426"), "", ("other requests", "--protocol")),
        (Failure("http_status", "307"), "", ("the address that it leads to",)),
        (Failure("http_status", "502"), "", ("is it running",)),
        (Failure("http_status", "503"), "", ("try again later",)),
        (Failure("close_code", "1007"), "", ("could not read", "none was named: --model NAME")),
        (Failure("close_code", "1007"), "API key not valid", ("no key was sent",)),
        (Failure("close_code", "4401"), "", ("VOICEPROBE_TOKEN",)),
        (Failure("close_code", "4999"), "", ("look it up",)),
        (Failure("bad_audio", "format"), "", ("16-bit PCM",)),
        (Failure("timeout", "session"), "", ("check the path and --protocol",)),
        (Failure("tcp", "EOF"), "", ("check the path and --protocol",)),
        (Failure("close_code", "1000"), "", ("check --protocol",)),
    ],
)
def test_a_cause_has_its_advice(failure: Failure, sentence: str, words: tuple[str, ...]) -> None:
    hint = advice(failure, sentence, WEBSOCKET) or ""
    assert [word for word in words if word not in hint] == [], hint


def test_nothing_is_advised_twice_and_nothing_without_a_cause() -> None:
    assert advice(Failure("http_status", "404"), "it sent x: use --protocol twilio", WEBSOCKET) is None
    assert advice(None, "no such model", WEBSOCKET) is None
    assert advice(Failure("tcp", "ECONNREFUSED"), "", WEBSOCKET) is None


@pytest.mark.parametrize("protocol", names())
@pytest.mark.parametrize(
    "sentence", ["no such model", "wrong sample rate", "bad API key", "unknown agent", "Not Found"]
)
def test_every_protocol_has_advice_of_each_kind(protocol: str, sentence: str) -> None:
    hint = advice(Failure("endpoint_error"), sentence, Attempt(protocol, "ws://h/", has_key=True, model="m"))
    assert hint
    assert "{" not in hint


def test_rejected_key_is_to_be_checked_and_missing_one_given() -> None:
    unauthorized = Failure("http_status", "401")
    assert "does not accept the key" in (advice(unauthorized, "", Attempt("llm", "http://h/v1", has_key=True)) or "")
    assert "no key was sent" in (advice(unauthorized, "", Attempt("llm", "http://h/v1", has_key=False)) or "")


S = 1_000_000_000
NOW = 1_445_412_400 * S  # Wed, 21 Oct 2015 07:26:40 GMT


@pytest.mark.parametrize(
    ("headers", "wait_ns"),
    [
        ((("Retry-After", "7"),), 7 * S),
        ((("retry-after", " 0 "),), 0),
        ((("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"),), 80 * S),  # by our clock: there is no Date header
        (
            (("Date", "Wed, 21 Oct 2015 09:00:00 GMT"), ("Retry-After", "Wed, 21 Oct 2015 09:00:30 GMT")),
            30 * S,  # by the endpoint's own clock, which is 93 minutes fast
        ),
        ((("Date", "nonsense"), ("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")), 80 * S),
        ((("Retry-After", "Wed, 21 Oct 2015 07:00:00 GMT"),), 0),  # in the past: at once
        ((("Retry-After", "9" * 400),), LONGEST_RETRY_NS),
        ((("Retry-After", "-5"),), None),
        ((("Retry-After", "soon"),), None),
        ((("Retry-After", "²"),), None),
        ((("Retry-After", ""),), None),
        ((), None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: tuple[tuple[str, str], ...], wait_ns: int | None) -> None:
    assert retry_after_of_headers(headers, NOW) == wait_ns


@pytest.mark.parametrize(
    ("fields", "wait_ns"),
    [
        ({"retry_after": 1.5}, 1_500_000_000),
        ({"retry_after": "2"}, 2 * S),
        ({"retry_after_ms": 250}, 250_000_000),
        ({"retry_after_seconds": 3}, 3 * S),
        ({"retry_after": True}, None),
        ({"retry_after": "a while"}, None),
        ({"retry_after": float("nan")}, None),
        ({"retry_after": float("inf")}, LONGEST_RETRY_NS),
        ({"retry_after": -1}, 0),
        ({"retry_after": None, "retry_after_ms": "100"}, 100_000_000),
        ({"message": "Please try again in 1.2s."}, None),  # prose is not parsed
    ],
)
def test_an_error_may_request_a_wait_in_a_field(fields: dict[str, object], wait_ns: int | None) -> None:
    assert retry_after_of_fields(fields) == wait_ns


def test_a_code_is_short_and_has_only_plain_characters() -> None:
    assert code_of(None, "", "  ", "rate_limit_exceeded") == "rate_limit_exceeded"
    assert code_of(429, "unused") == "429"
    assert code_of(True, {}, []) is None
    assert code_of("\x1b[31mred\n<b>") == "__31mred__b_"
    assert len(code_of("x" * 1000) or "") == MAX_CODE_CHARS


@pytest.mark.parametrize(
    ("item", "failure"),
    [
        (Rejected(429, "Too Many Requests"), Failure("http_status", "429")),
        (Rejected(None, "not HTTP"), Failure("protocol_violation", "not_http")),
        (Rejected(101, "no key"), Failure("protocol_violation", "bad_upgrade")),
        (Closed(1013, "later", clean=True), Failure("close_code", "1013")),
        (Closed(1006, "gone", clean=False), Failure("tcp", "EOF")),
        (Closed(1007, "not UTF-8", clean=False), Failure("protocol_violation", "bad_utf8")),
        (Closed(1002, "bad frame", clean=False), Failure("protocol_violation", "1002")),
    ],
)
def test_the_end_of_a_websocket_has_a_cause(item: Rejected | Closed, failure: Failure) -> None:
    assert item.failure == failure


SECRET = "s3cr3t-4711"
NAMES = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=30)


def test_headers_that_name_responder_are_kept_by_response() -> None:
    headers = [("Server", " uvicorn "), ("CF-Ray", "8a1"), ("via", "1.1 a"), ("Via", "1.1 b"), ("X-Cache", "")]
    assert kept_headers(headers, "upgrade") == {
        "upgrade.server": "uvicorn",
        "upgrade.cf-ray": "8a1",
        "upgrade.via": "1.1 a, 1.1 b",
    }


def test_secrets_and_cookies_are_not_kept() -> None:
    names = (
        "Set-Cookie",
        "Cookie",
        "Authorization",
        "Proxy-Authorization",
        "WWW-Authenticate",
        "X-Api-Key",
        "Location",
    )
    assert kept_headers([(name, SECRET) for name in names], "upgrade") == {}


@given(st.lists(st.tuples(NAMES, st.just(SECRET))))
def test_no_other_name_is_kept(headers: list[tuple[str, str]]) -> None:
    unknown = [(name, value) for name, value in headers if name.lower() not in KEPT]
    assert SECRET not in repr(kept_headers(unknown, "upgrade"))


def test_address_in_header_is_kept_without_secrets_and_query() -> None:
    value = f"https://user:{SECRET}@llm.example/v1?key={SECRET}"
    assert kept_headers([("x-litellm-model-api-base", value)], "llm") == {
        "llm.x-litellm-model-api-base": "https://llm.example/v1"
    }


def test_a_value_is_one_line_and_bounded() -> None:
    (value,) = kept_headers([("server", "a\x1b[31m\n" + "b" * 9999)], "upgrade").values()
    assert value.isprintable()
    assert len(value) <= MAX_VALUE_CHARS + 1
