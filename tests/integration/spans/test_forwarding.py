"""Forwarding of acknowledged requests to the destinations of a sidecar's configuration."""

from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from corpora.manifest.library import open_corpus
from loadtest.audit import framework_telemetry
from loadtest.audit.job import CORPUS
from loadtest.audit.search import Search, needles_of_texts, needles_of_value
from tests import asking
from tests.fixtures_forwarding import (
    UpstreamServer,
    dead_url,
    forwarding_sidecar,
    span_id,
    spans_request,
)
from tests.fixtures_sidecar import SidecarProcess
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after

PROTOBUF = {"content-type": "application/x-protobuf"}
SECRET_TEXT = "my card is 4111 1111 1111 1111"


def send(sidecar: SidecarProcess, body: bytes) -> None:
    assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200


def state(sidecar: SidecarProcess, name: str = "up") -> dict[str, Any]:
    return asking.get(f"{sidecar.http}/v1/state").json()["forwarding"][name]


def up(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "up", "url": url, "text": "redact", **more}


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_all_that_is_acknowledged_arrives(tmp_path: Path, upstream: UpstreamServer) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)]) as sidecar:
        for number in range(0, 100, 5):
            send(sidecar, spans_request(number, 5))
        wait_until(lambda: len(upstream.span_ids()) == 100)
        shown = wait_until(lambda: (current := state(sidecar))["backlog_bytes"] == 0 and current)
        assert shown["forwarded_requests"] == 20
        assert shown["failure"] is None
        metrics = asking.get(f"{sidecar.http}/metrics").text
        assert 'voice_forward_requests_total{destination="up"} 20.0\n' in metrics
        assert 'voice_forward_up{destination="up"} 1.0\n' in metrics
        assert sidecar.terminate() == 0
    assert sorted(upstream.span_ids()) == [span_id(number) for number in range(100)]
    assert set(upstream.paths) == {"/v1/traces"}
    assert upstream.headers[0]["content-encoding"] == "gzip"
    assert not (tmp_path / "forwarding").exists()


@pytest.mark.nightly
def test_spans_missed_by_dead_destination_arrive_when_it_is_back(tmp_path: Path) -> None:
    url = dead_url()
    with forwarding_sidecar(tmp_path, [up(url)]) as sidecar:
        for number in range(20):
            send(sidecar, spans_request(number))
        shown = wait_until(lambda: (current := state(sidecar))["failure"] and current)
        assert (shown["backlog_requests"], shown["backlog_items"]) == (20, 20)
        assert "Connection refused" in shown["failure"]
        wait_until(lambda: "forward:up" in asking.get(f"{sidecar.http}/healthz").json()["faults"])
        assert asking.get(f"{sidecar.http}/readyz").status_code == 200
        assert 'voice_forward_up{destination="up"} 0.0\n' in asking.get(f"{sidecar.http}/metrics").text
        with closing(UpstreamServer(port=int(url.rpartition(":")[2]))) as back:
            wait_until(lambda: len(back.span_ids()) >= 20)
            assert sorted(back.span_ids()) == [span_id(number) for number in range(20)]
            wait_until(lambda: "forward:up" not in asking.get(f"{sidecar.http}/healthz").json()["faults"])


@pytest.mark.parametrize("stored", [False, True])
def test_texts_never_reach_a_destination_that_redacts(tmp_path: Path, upstream: UpstreamServer, stored: bool) -> None:
    with forwarding_sidecar(tmp_path, [up(upstream.url)], keep_transcripts=stored) as sidecar:
        attributes = {"text_output": SECRET_TEXT, "gen_ai.request.model": "m", "count": 3}
        send(sidecar, spans_request(1, attributes=attributes))
        wait_until(upstream.span_ids)
        assert sidecar.terminate() == 0
    assert SECRET_TEXT.encode() not in b"".join(upstream.read)
    (span,) = upstream.spans()
    assert {entry.key for entry in span.attributes} == {"gen_ai.request.model", "count"}


@pytest.mark.parametrize("text", nightly_after(1, ["redact", "keep"]))
def test_leak_corpus_leaks_only_where_texts_are_kept(tmp_path: Path, upstream: UpstreamServer, text: str) -> None:
    corpus = open_corpus(CORPUS)
    utterances = [(utterance.id, utterance.text or "") for utterance in corpus.utterances if utterance.pii_kinds]
    values = [needles_of_value(source, value) for source, value in framework_telemetry.VALUES.items()]
    search = Search(needles_of_texts(utterances).union(*values))
    with forwarding_sidecar(tmp_path, [up(upstream.url, text=text)], keep_transcripts=True) as sidecar:
        sent = framework_telemetry.send(sidecar.http, utterances)
        assert sidecar.terminate() == 0
    assert len(upstream.span_ids()) == sent.spans > 0
    assert upstream.metrics
    sources = {needle.source for body in upstream.read for needle in search.needles_in(body)}
    if text == "redact":
        assert sources == set()
    else:
        assert sources >= {name for name, _ in utterances}, "the search finds what is there"


@pytest.mark.nightly
def test_kept_texts_arrive_and_are_in_no_file(tmp_path: Path) -> None:
    url = dead_url()
    store, log = tmp_path / "store", tmp_path / "log"
    with forwarding_sidecar(store, [up(url, text="keep")], log=log) as sidecar:
        send(sidecar, spans_request(1, attributes={"text_output": SECRET_TEXT}))
        wait_until(lambda: state(sidecar)["failure"] and state(sidecar)["backlog_bytes"])
        assert SECRET_TEXT.encode() not in all_bytes(store)
        with closing(UpstreamServer(port=int(url.rpartition(":")[2]))) as back:
            wait_until(back.span_ids)
            assert back.spans()[0].attributes[0].value.string_value == SECRET_TEXT
        assert sidecar.terminate() == 0
    assert SECRET_TEXT.encode() not in all_bytes(store)
    assert SECRET_TEXT not in log.read_text()


def test_secrets_are_in_no_process_arguments_and_no_log(
    tmp_path: Path, upstream: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AUTHORIZATION", "Bearer hush-hush")
    log = tmp_path / "log"
    table = up(upstream.url, headers_env={"authorization": "TEST_AUTHORIZATION"})
    with forwarding_sidecar(tmp_path / "store", [table], log=log) as sidecar:
        send(sidecar, spans_request(1))
        wait_until(upstream.span_ids)
        assert psutil.Process(sidecar.process.pid).children() == [], "forwarding has no process of its own"
        assert b"hush" not in Path(f"/proc/{sidecar.process.pid}/cmdline").read_bytes()
        assert "hush" not in asking.get(f"{sidecar.http}/v1/state").text
        assert sidecar.terminate() == 0
    assert upstream.headers[0]["authorization"] == "Bearer hush-hush"
    assert "hush" not in log.read_text()
    assert b"hush" not in all_bytes(tmp_path / "store")


def test_json_and_metrics_are_forwarded_in_protobuf(tmp_path: Path, upstream: UpstreamServer) -> None:
    metrics = (
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"depth","gauge":{"dataPoints":'
        b'[{"timeUnixNano":"1700000000000000000","asDouble":2.5}]}}]}]}]}'
    )
    with forwarding_sidecar(
        tmp_path, [up(upstream.url), up(upstream.url, name="traces", signals=["traces"])]
    ) as sidecar:
        headers = {"content-type": "application/json"}
        assert asking.post(f"{sidecar.http}/v1/metrics", content=metrics, headers=headers).status_code == 200
        wait_until(lambda: upstream.metrics)
        assert sidecar.terminate() == 0
    (request,) = upstream.metrics
    assert request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].as_double == 2.5
