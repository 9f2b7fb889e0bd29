"""What to do about a refusal: by its cause, and before that by what the endpoint says."""

import pytest

from loadtest.protocols.advice import Attempt, Topic, advice, topic_of
from loadtest.protocols.failure import Failure
from loadtest.protocols.registry import names

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
    found = advice(failure, sentence, WEBSOCKET) or ""
    assert [word for word in words if word not in found] == [], found


def test_nothing_is_advised_twice_and_nothing_without_a_cause() -> None:
    assert advice(Failure("http_status", "404"), "it sent x: use --protocol twilio", WEBSOCKET) is None
    assert advice(None, "no such model", WEBSOCKET) is None
    assert advice(Failure("tcp", "ECONNREFUSED"), "", WEBSOCKET) is None


@pytest.mark.parametrize("protocol", names())
@pytest.mark.parametrize(
    "sentence", ["no such model", "wrong sample rate", "bad API key", "unknown agent", "Not Found"]
)
def test_every_protocol_has_advice_of_each_kind(protocol: str, sentence: str) -> None:
    found = advice(Failure("endpoint_error"), sentence, Attempt(protocol, "ws://h/", has_key=True, model="m"))
    assert found
    assert "{" not in found


def test_a_key_that_was_sent_is_to_be_checked_and_one_that_was_not_is_to_be_given() -> None:
    unauthorized = Failure("http_status", "401")
    assert "does not accept the key" in (advice(unauthorized, "", Attempt("llm", "http://h/v1", has_key=True)) or "")
    assert "no key was sent" in (advice(unauthorized, "", Attempt("llm", "http://h/v1", has_key=False)) or "")
