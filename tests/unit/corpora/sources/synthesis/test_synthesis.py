"""Tests of synthesizing a corpus with the real flite and espeak-ng, and an endpoint with the OpenAI speech API."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from corpora.annotation.lint import diagnostics
from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.library import open_corpus
from corpora.sources.synthesis.texts import name_for, read_texts
from tests.programs import needed
from tests.unit.corpora.conftest import Ran

Command = Callable[..., Ran]
CSV = 'text,id,domain,voice\n"Turn on the lights, please.",lights,home,\nWhere is my order?,,,\n'


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.csv").write_text(CSV)
    return tmp_path / "texts.csv"


@pytest.mark.parametrize(("engine", "speaker"), [("flite", "flite-slt"), ("espeak-ng", "espeak-ng-en-us")])
def test_a_local_engine_synthesizes(command: Command, texts: Path, tmp_path: Path, engine: str, speaker: str) -> None:
    if engine == "flite":
        needed(engine)
    into = tmp_path / "spoken"
    assert command("say", texts, "--into", into, "--engine", engine, "--license", "CC0-1.0").code == 0
    corpus = open_corpus(into)
    assert [(u.id, u.text, u.domain) for u in corpus.utterances] == [
        ("lights", "Turn on the lights, please.", "home"),
        (name_for("Where is my order?"), "Where is my order?", "general"),
    ]
    assert {u.speaker for u in corpus.utterances} == {speaker}
    assert {(u.license, u.sample_rate_hz) for u in corpus.utterances} == {("CC0-1.0", 24_000)}
    assert all(0.5 < u.speech_s < 4.0 for u in corpus.utterances)
    assert [finding for finding in diagnostics(into) if "4.3 kHz" not in finding] == []


@pytest.mark.slow
def test_the_same_text_is_the_same_clip(command: Command, texts: Path, tmp_path: Path) -> None:
    needed("flite")
    for name in ("one", "two"):
        assert command("say", texts, "--into", tmp_path / name, "--license", "CC0-1.0").code == 0
    one, two = (open_corpus(tmp_path / name).utterances for name in ("one", "two"))
    assert [u.sha256 for u in one] == [u.sha256 for u in two]


def tone(seconds: float, rate_hz: int = 24_000, *, streamed: bool = False) -> bytes:
    samples = 0.3 * np.sin(2 * np.pi * 500 * np.arange(round(seconds * rate_hz)) / rate_hz)
    file = io.BytesIO()
    soundfile.write(file, np.concatenate((np.zeros(2400), samples, np.zeros(2400))), rate_hz, format="WAV")
    content = bytearray(file.getvalue())
    if streamed:
        data_offset = content.find(b"data")
        content[data_offset + 4 : data_offset + 8] = b"\xff\xff\xff\xff"
        content[4:8] = b"\xff\xff\xff\xff"
    return bytes(content)


@contextmanager
def endpoint(status: int = 200, content: bytes | None = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A speech endpoint that returns a tone for every text, longer for longer texts."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request | {"path": self.path, "authorization": self.headers["authorization"]})
            body = tone(0.08 * len(request["input"]), streamed=True) if content is None else content
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_openai_compatible_endpoint_synthesizes(
    command: Command, monkeypatch: pytest.MonkeyPatch, texts: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("VOICEPROBE_SAY_TOKEN", "s3cret-token")
    into = tmp_path / "spoken"
    with endpoint() as (url, requests):
        model = ("--engine", "openai", "--url", url, "--model", "m", "--voice", "nova")
        ran = command("say", texts, "--into", into, *model, "--license", "MIT", "--rate", "16000")
    assert ran.code == 0
    assert [
        (request["path"], request["model"], request["voice"], request["response_format"]) for request in requests
    ] == [("/v1/audio/speech", "m", "nova", "wav")] * 2
    assert {request["authorization"] for request in requests} == {"Bearer s3cret-token"}
    (first, _) = open_corpus(into).utterances
    assert (first.sample_rate_hz, first.source) == (16_000, "m voice nova")
    assert first.speech_s == pytest.approx(0.08 * len(first.text), abs=0.01)
    assert not any(b"s3cret" in file.read_bytes() for file in into.rglob("*") if file.is_file())
    assert "s3cret" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (401, b"wrong key", "responded with 401 (wrong key)"),
        (200, b"{}", "is not audio that can be read"),
        (200, tone(0.0), "contains no speech"),
    ],
)
def test_a_failing_endpoint_is_one_sentence_per_text(
    command: Command, texts: Path, tmp_path: Path, status: int, content: bytes, expected: str
) -> None:
    with endpoint(status, content) as (url, _):
        ran = command("say", texts, "--into", tmp_path / "spoken", "--engine", "openai", "--license", "x", "--url", url)
    assert ran.code == 2
    assert ran.err.count(expected) == 2
    assert "Traceback" not in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.csv"], "nothing half-written is left"


def test_an_existing_corpus_is_replaced_only_with_force(command: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "spoken").mkdir()
    ran = command("say", texts, "--into", tmp_path / "spoken", "--license", "x")
    assert ran.code == 2
    assert "already exists" in ran.err
    assert command("say", texts, "--into", tmp_path / "spoken", "--license", "x", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--engine", "parrot"), "--engine 'parrot' is unknown"),
        (("--voice", "nobody"), "The flite voice 'nobody' is not supported"),
        (("--engine", "espeak-ng", "--voice", "xx-nobody"), "espeak-ng has no voice 'xx-nobody'"),
        (("--engine", "openai", "--url", "nowhere"), "--url 'nowhere' is not a URL"),
        (("--engine", "openai", "--url", "http://127.0.0.1:9/v1"), "did not respond (ConnectError)"),
        (("--rate", "1"), "--rate 1: must be from 8000"),
        (("--edges", "sharp"), "--edges 'sharp' is unknown; use exact or recorded."),
    ],
)
def test_a_wrong_argument_of_say_is_one_sentence(
    command: Command, texts: Path, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    ran = command("say", texts, "--into", tmp_path / "spoken", "--license", "x", *arguments)
    assert ran.code == 2
    assert expected in ran.err
    assert not (tmp_path / "spoken").exists()


def test_all_faults_of_the_texts_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text(f"text\tid\tmood\n\tone\tsad\nhello\ttwo\t\nhello again\tTWO\t\n{'x' * 3000}\t..\t\n")
    with pytest.raises(ManifestError) as caught:
        read_texts(file, domain="d", language="en")
    faults = "\n".join(caught.value.faults)
    for fault in (
        "texts.tsv:2: the column 'mood' is unknown",
        "texts.tsv:2: has no text",
        "texts.tsv:4: the id 'TWO' is already used in line 3",
        "texts.tsv:5: its text must be one line",
        "texts.tsv:5: the id '..' must be",
    ):
        assert fault in faults


def test_json_lines_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "Bonjour.", "language": "fr-FR", "voice": "fr"}\n')
    (text,) = read_texts(file, domain="d", language="en")
    assert (text.text, text.language, text.voice, text.domain) == ("Bonjour.", "fr-FR", "fr", "d")
    file.write_text("nothing\n")
    with pytest.raises(CorpusError, match=r"texts.jsonl:1: is not a JSON object"):
        read_texts(file, domain="d", language="en")


@pytest.mark.slow
def test_edges_of_synthesized_speech_are_exact_or_as_requested(command: Command, texts: Path, tmp_path: Path) -> None:
    for name, flags, edges in (("plain", (), "exact"), ("asked", ("--edges", "recorded"), "recorded")):
        into = tmp_path / name
        assert command("say", texts, "--into", into, "--engine", "espeak-ng", "--license", "x", *flags).code == 0
        assert open_corpus(into).edges == edges
