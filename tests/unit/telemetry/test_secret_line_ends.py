"""Every place that takes a secret: the line end after it is not part of it, and what no header carries is not shown."""

import asyncio
import os
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from corpora.manifest.errors import CorpusError
from corpora.sources.synthesis.voices import OpenAiSpeech, speech_token
from loadtest.cli.guard import guarded
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.stages.settings import stage_settings
from loadtest.run.report import opened_store
from loadtest.scenario.access import headers_from_environment
from loadtest.scenario.settings import SwarmSettings
from loadtest.targets.assistant import engines
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import build_config
from telemetry.client_tls import sidecar_token
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.export.sdk import SdkOptions
from telemetry.model.addresses import without_credentials
from telemetry.model.errors import TelemetryError
from telemetry.sidecar.configuration import options_of, read_configuration
from telemetry.sidecar.forwarding.destinations import Header, SecretError
from telemetry.sidecar.scraping import Scraper, ScrapeTarget, targets_from
from telemetry.sidecar_client import SidecarClient

TOKEN = "tok-0a1b2c3d4e5f"
VARIABLE = "A_SECRET"
REFUSALS = (TelemetryError, UsageError, CorpusError, SecretError)


@pytest.fixture
def server() -> Any:
    """A server that answers every request with nothing, and what it was given as Authorization."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization"))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", seen
        running.shutdown()


def _sdk(_: Path) -> str | None:
    return SdkOptions(None, "service").token


def _sidecar_flag(_: Path) -> str | None:
    return options_of(read_configuration({"store": "data"}, dict(os.environ))).token


def _sidecar_file(folder: Path) -> str | None:
    file = folder / "token"
    file.write_bytes(os.environb[VARIABLE.encode()])
    file.chmod(0o600)
    return options_of(read_configuration({"store": "data", "token_file": str(file)}, {})).token


def _run_token(_: Path) -> str | None:
    settings = SwarmSettings()
    assert headers_from_environment((), settings.token) == ()
    return settings.token


def _run_header(_: Path) -> str | None:
    return headers_from_environment((f"X-Key={VARIABLE}",), None)[0][1]


def _stage_key(_: Path) -> str | None:
    settings = stage_settings(
        CallerOptions(settings={"asr_key": VARIABLE, "asr_model": "a"}), "asr", frozenset({"asr"})
    )
    return settings.key("asr", None)


def _assistant_token(_: Path) -> str | None:
    return build_config({"token": os.environ[VARIABLE]}).token


def _assistant_llm(_: Path) -> str | None:
    config = build_config({"llm_url": "http://127.0.0.1:1/v1", "llm_token_env": VARIABLE})
    # `build_engines` would read all speech of the corpus before.
    engines._llm(config, None, Clock())
    return os.environ[VARIABLE].strip()


def _forward_header(_: Path) -> str | None:
    return Header("authorization", env=VARIABLE).read()


PLACES: dict[str, tuple[str, Callable[[Path], str | None]]] = {
    "those that ask a sidecar": ("VOICEPROBE_SIDECAR_TOKEN", lambda _: sidecar_token()),
    "the SDK of a service": ("VOICEPROBE_SIDECAR_TOKEN", _sdk),
    "a sidecar": ("VOICEPROBE_SIDECAR_TOKEN", _sidecar_flag),
    "a sidecar's token file": (VARIABLE, _sidecar_file),
    "a run": ("VOICEPROBE_TOKEN", _run_token),
    "a header of a run": (VARIABLE, _run_header),
    "a stage's key": (VARIABLE, _stage_key),
    "the assistant": (VARIABLE, _assistant_token),
    "the assistant's model": (VARIABLE, _assistant_llm),
    "a destination's header": (VARIABLE, _forward_header),
    "synthesized speech": ("VOICEPROBE_SAY_TOKEN", lambda _: speech_token()),
}
named = pytest.mark.parametrize("place", PLACES)


@named
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n\n"])
def test_the_end_of_the_line_is_no_part_of_a_secret(
    place: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, read = PLACES[place]
    monkeypatch.setenv(variable, TOKEN + end)
    assert read(tmp_path) == TOKEN


@named
@pytest.mark.parametrize("text", [f"{TOKEN}\nmore", f"{TOKEN}\r\nX-Injected: 1", f"{TOKEN}é", f"{TOKEN}\udcff"])
def test_secret_that_no_header_can_carry_is_refused_and_hidden(
    place: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, read = PLACES[place]
    monkeypatch.setenv(variable, text)
    with pytest.raises(REFUSALS) as caught:
        read(tmp_path)
    sentence = str(caught.value)
    assert TOKEN not in sentence
    assert "\n" not in sentence


def test_a_sidecar_is_asked_with_the_token_alone(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, seen = server
    monkeypatch.setenv("VOICEPROBE_SIDECAR_TOKEN", f"{TOKEN}\n")
    SidecarClient(address, sidecar_token()).ask("GET", "/v1/state")
    assert seen == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(("text", "sent"), [(f"{TOKEN}\n", True), (f"{TOKEN}\nmore", False)])
def test_a_model_server_is_scraped_with_the_token_alone(
    server: Any, text: str, sent: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address, seen = server
    monkeypatch.setenv(VARIABLE, text)

    async def scraped() -> str:
        stored = asyncio.Event()

        async def take(_body: bytes) -> None:
            stored.set()

        scraper = Scraper([ScrapeTarget("vllm", f"{address}/metrics", 1.0, VARIABLE)], take)
        scraper.start()
        await asyncio.wait_for(stored.wait(), 60)
        faults = scraper.faults
        await scraper.stop()
        return str(faults)

    faults = asyncio.run(scraped())
    assert seen == ([f"Bearer {TOKEN}"] if sent else [])
    assert TOKEN not in faults + caplog.text
    assert sent or f"{VARIABLE} holds no token" in faults


def test_a_command_with_a_broken_token_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICEPROBE_SIDECAR_TOKEN", f"{TOKEN}\nmore")
    assert guarded(lambda: opened_store("http://127.0.0.1:9") and None) == 2
    output = capsys.readouterr().err
    assert output.startswith("voiceprobe: VOICEPROBE_SIDECAR_TOKEN: a token has 1 to 4096 ASCII characters")
    assert TOKEN not in output


WITH_PASSWORD = "htp://ursula:pw-0c9d@host"


@pytest.mark.parametrize(
    "make",
    [
        lambda: SidecarClient(WITH_PASSWORD, None),
        lambda: SidecarClient(WITH_PASSWORD + ":port", None),
        lambda: SidecarClient("http://ursula:pw-0c9d@host:4318", None),
        lambda: OtlpHttpExporter(WITH_PASSWORD, None),
        lambda: targets_from([{"name": "a", "url": WITH_PASSWORD}], "sidecar.toml"),
        lambda: OpenAiSpeech(WITH_PASSWORD, "m", None),
    ],
)
def test_refused_address_is_shown_without_its_password(make: Callable[[], object]) -> None:
    with pytest.raises(REFUSALS) as caught:
        make()
    assert "pw-0c9d" not in str(caught.value)
    assert "host" in str(caught.value)


def test_an_address_loses_user_and_password_alone() -> None:
    assert without_credentials("http://u:p@h:1/a") == "http://h:1/a"
    assert without_credentials("http://h:1/a?b=c") == "http://h:1/a?b=c"
    assert without_credentials("u:p@h") == "h"
