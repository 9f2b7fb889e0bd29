"""The sentences about refusals: what an endpoint wrote, where it was asked, and where a redirect leads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.outcome import fault_of
from loadtest.protocols.error_objects import answer_message, error_message
from loadtest.protocols.failure import OpeningRefused
from loadtest.protocols.foreign import protocol_of, sent_instead
from loadtest.protocols.http_items import HttpAnswer, HttpData, HttpEnd, HttpHead
from loadtest.protocols.message_limit import message_limit, over_limit, size
from loadtest.protocols.refusals import closed_connection, redirected_to, refused_request, refused_upgrade
from loadtest.protocols.smallwebrtc.caller import Signaling
from loadtest.protocols.telephony.webhook import WEBHOOKS
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


@given(ERRORS)
def test_an_error_of_any_form_has_a_sentence(error: object) -> None:
    assert error_message(error)


def test_an_error_that_is_nested_too_deep_or_too_large_a_number_has_a_sentence() -> None:
    deep: list[object] = []
    for _ in range(2_000):
        deep = [deep]
    assert "does not say what is wrong" in error_message({"x": deep})
    assert "does not say what is wrong" in error_message({"x": 2**80})
    assert "does not say what is wrong" in answer_message("[" * 500 + "]" * 500)


def test_a_status_without_a_body_says_nothing_twice_and_a_header_may_say_it() -> None:
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
def test_our_limit_is_named_as_ours_with_numbers_that_no_store_hides(limit: int, count: int | None) -> None:
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
