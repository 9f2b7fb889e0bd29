"""One sentence that helps: what is wrong and what to do, for each wire and each mistake that people make first.

The services are doubles that refuse as the services do. A case names words that its sentence must have; none may be
missing, whatever else it says.
"""

import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loadtest.conversation.plan import Limits
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.run import job
from loadtest.run.job import first_turn, preflight
from loadtest.run.request import RunRequest, check
from loadtest.scenario.access import TOKEN_VARIABLE
from loadtest.scenario.options import settings_from
from loadtest.scenario.sections import RunLoad
from telemetry.model.durations import Duration
from tests.integration.calling import CORPUS
from tests.integration.cli.service_doubles import GEMINI, RIGHT_KEY, RIGHT_MODEL, services
from tests.integration.raw_endpoint import close, raw_endpoint, refusing, saying, text, upgraded

WRONG_KEY = "sk-a-wrong-key-9876543210"
SHORT_NS = 400_000_000
CHECK_PATH = ("HTTP 403", "check the path", "first", TOKEN_VARIABLE, "--protocol")
NO_KEY = ("no key was sent", TOKEN_VARIABLE)
KEY = ("it does not accept the key", TOKEN_VARIABLE)


@dataclass(frozen=True)
class Case:
    """An address, further flags, and words of the sentence."""

    name: str
    address: str
    words: tuple[str, ...]
    key: str | None = RIGHT_KEY
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _realtime() -> list[Case]:
    wire, url = "openai-realtime", "ws://HOST/v1/realtime"
    return [
        Case(f"{wire}: path", "ws://HOST/v2/realtime", (*CHECK_PATH, "/v2/realtime", "openai-realtime was guessed")),
        Case(f"{wire}: protocol", "ws://HOST/waiting", ("sent no session.created", "check the path and --protocol")),
        Case(f"{wire}: no key", url, (*NO_KEY, "HTTP 401", "Missing bearer"), None),
        Case(f"{wire}: wrong key", url, (*KEY, "invalid_api_key", "Incorrect API key"), WRONG_KEY),
        Case(f"{wire}: model", url, ("You must provide a model", "--model NAME")),
        Case(f"{wire}: audio", url, ("'audio/pcmu'", "16-bit PCM at 24 kHz", "dialect"), given={"model": RIGHT_MODEL}),
    ]


def _http() -> list[Case]:
    url, cases = "http://HOST/v1", list[Case]()
    paths = {"llm": "chat/completions", "asr": "audio/transcriptions", "tts": "audio/speech"}
    for wire, path in paths.items():
        by = {"protocol": wire}
        cases += [
            Case(f"{wire}: path", "http://HOST/v2", (f"/v2/{path}: Not Found", "check the path"), given=by),
            Case(f"{wire}: no key", url, (*NO_KEY, "No api key passed in", f"/v1/{path}"), None, by),
            Case(f"{wire}: wrong key", url, (*KEY, "Invalid proxy server token"), WRONG_KEY, by),
            Case(
                f"{wire}: no model",
                url,
                ("HTTP 422", "body.model: Field required", "no model was named", "--model NAME"),
                given=by,
            ),
        ]
    by = {"protocol": "llm", "model": "another"}
    asr = {"protocol": "asr", "transcription_model": RIGHT_MODEL}
    tts = {"protocol": "tts", "protocol_option": [f"tts_model={RIGHT_MODEL}"]}
    return [
        *cases,
        Case("http-cascade: path", "http://HOST/v2/v1", ("/v2/v1/audio/transcriptions: Not Found", "was guessed")),
        Case("http-cascade: no model", url, ("the asr service", "for asr with --transcription-model")),
        Case("llm: model", url, ("The model `another` does not exist", "asked for is 'another'", "--model"), given=by),
        Case(
            "llm: protocol",
            "ws://HOST/v1/realtime",
            ("is not an HTTP address", "--protocol"),
            given={"protocol": "llm"},
        ),
        Case("asr: audio", url, ("sample rate is not supported", "asr_rate_hz"), given=asr),
        Case("tts: audio", url, ("it sent MP3", "tts_format"), given=tts),
    ]


def _deepgram() -> list[Case]:
    wire, url = "deepgram-agent", "ws://HOST/v1/agent/converse"
    by = {"protocol": wire}
    return [
        Case(f"{wire}: path", "ws://HOST/v1/agents", (*CHECK_PATH, "/v1/agents"), given=by),
        Case(f"{wire}: protocol", "ws://HOST/v1/realtime", ("--protocol openai-realtime",), given=by),
        Case(f"{wire}: no key", url, (*NO_KEY, "Invalid credentials. (INVALID_AUTH)"), None),
        Case(f"{wire}: wrong key", url, (*KEY, "Invalid credentials. (INVALID_AUTH)"), WRONG_KEY),
        Case(f"{wire}: model", url, ("Failed to think", "--model NAME")),
        Case(f"{wire}: audio", url, ("audio.input.encoding", "input_rate_hz"), given={"model": RIGHT_MODEL}),
    ]


def _gemini() -> list[Case]:
    wire, url = "gemini-live", f"ws://HOST{GEMINI}"
    model, right = {"model": "gemini-of-old"}, {"model": RIGHT_MODEL}
    waiting = {"protocol": wire}
    return [
        Case(f"{wire}: path", f"{url}s", (*CHECK_PATH, "BidiGenerateContents"), given=waiting),
        Case(f"{wire}: protocol", "ws://HOST/waiting", ("no setupComplete", "--protocol"), given=waiting),
        Case(f"{wire}: no key", url, (*NO_KEY, "unregistered callers", "policy violation"), None),
        Case(f"{wire}: wrong key", url, (*KEY, "API key not valid"), WRONG_KEY),
        Case(f"{wire}: no model", url, ("invalid argument", "could not read what the caller sent", "--model NAME")),
        Case(f"{wire}: model", url, ("is not found for API version", "'gemini-of-old'", "--model NAME"), given=model),
        Case(f"{wire}: audio", url, ("sample rate 16000 is not supported", "16-bit PCM at 16 kHz"), given=right),
    ]


def _elevenlabs() -> list[Case]:
    wire, url = "elevenlabs", "ws://HOST/v1/convai/conversation"
    by = {"protocol": wire}
    return [
        Case(f"{wire}: path", "ws://HOST/v1/convai", (*CHECK_PATH, "/v1/convai"), given=by),
        Case(f"{wire}: protocol", "ws://HOST/waiting", ("no conversation_initiation_metadata", "--protocol"), given=by),
        Case(f"{wire}: no key", url, (*NO_KEY, "requires conversation authorization"), None),
        Case(f"{wire}: wrong key", url, (*KEY, "Invalid API key"), WRONG_KEY),
        Case(f"{wire}: agent", url, ("agent_id", "name the agent in the address")),
        Case(f"{wire}: audio", f"{url}?agent_id=a", ("'ulaw_8000'", "--protocol-option user_input_audio_format")),
    ]


def _agents() -> list[Case]:
    rtvi, twilio = {"protocol": "pipecat-eval"}, {"protocol": "twilio"}
    return [
        Case("pipecat-eval: path", "ws://HOST/evil", (*CHECK_PATH, "/evil"), given=rtvi),
        Case("pipecat-eval: protocol", "ws://HOST/waiting", ("sent no bot-ready", "--protocol"), given=rtvi),
        Case("pipecat-eval: no key", "ws://HOST/eval", (*CHECK_PATH, "none was sent"), None, rtvi),
        Case("pipecat-eval: wrong key", "ws://HOST/eval", CHECK_PATH, WRONG_KEY, rtvi),
        Case(
            "pipecat-eval: model", "ws://HOST/eval?f=1", ("the model is unknown", "configuration names it"), given=rtvi
        ),
        Case("pipecat-eval: audio", "ws://HOST/eval?f=2", ("sample rate", "input_rate_hz"), given=rtvi),
        Case("twilio: path", "ws://HOST/twilios", (*CHECK_PATH, "/twilios"), given=twilio),
        Case("twilio: protocol", "ws://HOST/openai", ("session.created", "--protocol openai-realtime"), given=twilio),
        Case("twilio: no key", "ws://HOST/twilio", (*CHECK_PATH, "none was sent"), None, twilio),
        Case("twilio: wrong key", "ws://HOST/twilio", (*KEY, "signature validation failed"), WRONG_KEY, twilio),
        Case("twilio: audio", "ws://HOST/twilio?f=2", ("sample rate", "encoding"), given=twilio),
        Case(
            "wyoming: protocol", "tcp://HOST", ("sent no info", "check the port and --protocol", "wyoming was guessed")
        ),
    ]


CASES = [*_realtime(), *_http(), *_deepgram(), *_gemini(), *_elevenlabs(), *_agents()]


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    with services() as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Nothing that a double has to say takes longer."""
    monkeypatch.setattr(job, "Limits", lambda **given: Limits(ready_ns=SHORT_NS, **given))


def sentence_of(url: str, folder: Path, given: Mapping[str, Any]) -> str:
    """Return what a terminal shows for a target that cannot be used, before any load."""
    values = {"corpus": CORPUS, "length": "short", "clips": 2, **given}
    settings = settings_from({"host": url, **values})
    request = RunRequest(
        settings, RunLoad(users=1, run_time=Duration.of_s(5)), None, folder, None, given=frozenset(given)
    )
    with pytest.raises((EndpointUnreachable, UsageError)) as refused:
        _try(request)
    return str(refused.value)


def _try(request: RunRequest) -> None:
    checked = check(request)
    preflight(checked)
    first_turn(checked)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_mistake_is_named_with_what_to_do(
    case: Case, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    if case.key is not None:
        monkeypatch.setenv(TOKEN_VARIABLE, case.key)
    sentence = sentence_of(case.address.replace("HOST", f"127.0.0.1:{port}"), tmp_path / "run", case.given)
    assert len(sentence.splitlines()) == 1
    assert [word for word in case.words if word not in sentence] == [], sentence
    assert f"127.0.0.1:{port}" in sentence
    assert case.key is None or case.key not in sentence
    assert sentence.count("--protocol ") + sentence.count("--protocol:") < 4  # nothing is repeated


REALTIME = {"protocol": "openai-realtime"}


@pytest.mark.parametrize(
    "status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("https://other.example/v1/realtime?key=secret", "wss://other.example/v1/realtime"),
        ("/v2/realtime", "ws://127.0.0.1:PORT/v2/realtime"),
        ("http://user:password@other.example/", "ws://other.example/"),
    ],
)
def test_a_redirect_shows_where_it_leads(status: str, location: str, leads_to: str, tmp_path: Path) -> None:
    with raw_endpoint(refusing(status, f"Location: {location}")) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "run", REALTIME)
    assert (
        f"redirects the connection to {leads_to.replace('PORT', str(endpoint.port))} with HTTP {status[:3]}" in sentence
    )
    assert "give the address that it leads to" in sentence
    assert "secret" not in sentence
    assert "password" not in sentence


def test_missing_opening_message_is_named(tmp_path: Path) -> None:
    created = text(b'{"type":"session.created","session":{}}')
    with raw_endpoint(upgraded()) as endpoint:
        assert "sent no session.created within" in sentence_of(endpoint.url, tmp_path / "1", REALTIME)
    with raw_endpoint(upgraded(created)) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "2", REALTIME)
    assert "sent no session.updated in answer to session.update within" in sentence
    with raw_endpoint(upgraded(text(b'{"type":"Welcome","request_id":"r"}'))) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "3", {"protocol": "deepgram-agent"})
    assert "sent no SettingsApplied in answer to Settings within" in sentence


@pytest.mark.parametrize(
    ("greeting", "protocol"),
    [
        (b'{"type":"Welcome","request_id":"r"}', "deepgram-agent"),
        (b'{"setupComplete":{}}', "gemini-live"),
        (b'{"type":"conversation_initiation_metadata","conversation_initiation_metadata_event":{}}', "elevenlabs"),
        (b'{"label":"rtvi-ai","type":"bot-ready","id":"1","data":{}}', "pipecat-eval"),
        (b'{"event":"media","media":{"payload":""}}', "twilio"),
    ],
)
def test_a_greeting_of_another_protocol_is_recognized(greeting: bytes, protocol: str, tmp_path: Path) -> None:
    with raw_endpoint(upgraded(text(greeting))) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "run", REALTIME)
    assert f"a message of the protocol {protocol}: use --protocol {protocol}" in sentence


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (1007, "", ("invalid data", "could not read what the caller sent", "--model")),
        (1008, "", ("policy violation", "check the key")),
        (1011, "", ("internal error", "see its log")),
        (1013, "", ("try again later",)),
        (3000, "", ("unauthorized", TOKEN_VARIABLE)),
        (4001, "", ("look it up",)),
        (4403, "", ("check the path",)),
        (4404, "", ("check the path",)),
        (4429, "concurrency limit reached", ("concurrency limit reached", "--users")),
        (4000, "unknown model", ("unknown model", "--model NAME")),
    ],
)
def test_a_close_code_says_what_to_do(code: int, reason: str, words: tuple[str, ...], tmp_path: Path) -> None:
    with raw_endpoint(upgraded(close(code, reason))) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "run", REALTIME)
    assert [word for word in words if word not in sentence] == [], sentence


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ("does not speak Wyoming", "HTTP/1.1 400 Bad Request", "--protocol")),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ("does not speak Wyoming", "SSH-2.0-OpenSSH_9.6", "--protocol")),
        (b'{"event":"connected"}\n', ("sent no info", """it sent '{"event":"connected"}""", "--protocol twilio")),
        (b'{"type":"error","data":{}}\n', ("does not say what is wrong", "its own log", "--protocol")),
        (b'{"type":"info","data":{"asr":[]}}\n', ("offers no asr", "set --protocol-option stages")),
    ],
)
def test_other_server_in_place_of_wyoming_is_shown(answer: bytes, words: tuple[str, ...], tmp_path: Path) -> None:
    def behave(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(answer)
        while peer.recv(65_536):
            pass

    with raw_endpoint(behave) as endpoint:
        sentence = sentence_of(f"tcp://127.0.0.1:{endpoint.port}", tmp_path / "run", {})
    assert [word for word in words if word not in sentence] == [], sentence
    assert "1007" not in sentence


def test_a_page_in_the_place_of_an_answer_is_shown_by_its_words(tmp_path: Path) -> None:
    page = (
        b"<!DOCTYPE html><html><head><title>x</title></head><body><h1>Error 404</h1><p>No such page.</p></body></html>"
    )
    head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page)
    with raw_endpoint(saying(head + page)) as endpoint:
        sentence = sentence_of(endpoint.url, tmp_path / "run", REALTIME)
    assert "Error 404 No such page." in sentence
    assert "<" not in sentence


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://api.openai.com/v1/realtime", ("openai-realtime was guessed", "or write wss:// if it is")),
        ("sip:1000@example.com", ("sip: addresses cannot be called", "--protocol twilio")),
        ("sips:1000@example.com", ("sips: addresses cannot be called", "--protocol twilio")),
        ("tel:+15005550006", ("tel: addresses cannot be called", "--protocol twilio")),
        (
            "http://127.0.0.1:8000",
            ("openai-realtime was guessed", "--protocol http-cascade, asr, llm, tts", "or write ws://"),
        ),
    ],
)
def test_address_of_other_kind_gets_list_of_protocols(address: str, words: tuple[str, ...], tmp_path: Path) -> None:
    sentence = sentence_of(address, tmp_path / "run", {})
    assert [word for word in words if word not in sentence] == [], sentence
    assert "credentials" not in sentence
