"""Tests of the review page: who may send which requests, and what it saves."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from corpora.annotation.boundary_uncertainty import REVIEWED_MS
from corpora.manifest.edges import set_edges
from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import read_manifest
from corpora.review.app import build_app
from corpora.review.bounds_file import Review

TOKEN = "token-of-the-page"


@pytest.fixture
def folder(workshop: Any) -> Path:
    workshop.add("sure", seed=1, bounds_confidence_db=60.0)
    workshop.add("unsure", seed=2, bounds_confidence_db=60.0, speech_end_uncertainty_ms=20.0)
    workshop.add("worse", seed=3, bounds_confidence_db=60.0, speech_start_uncertainty_ms=90.0)
    workshop.add("by-hand", seed=4)
    return workshop.with_edges("recorded").save()


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(build_app(Review(folder), TOKEN), base_url="http://127.0.0.1")


def save(client: TestClient, name: str, body: object, token: str = TOKEN) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/clips/{name}", content=content, headers={"X-Review-Token": token})


def test_doubtful_bounds_are_listed_with_the_worst_first(client: TestClient, folder: Path) -> None:
    assert [row["id"] for row in client.get("/clips").json()] == ["worse", "unsure"]
    assert [row.id for row in Review(folder, everything=True).listed()] == ["worse", "unsure", "by-hand", "sure"]


def test_moved_bounds_are_saved_and_rest_of_manifest_is_kept(client: TestClient, folder: Path) -> None:
    before = read_manifest(folder).utterances
    assert save(client, "unsure", {"start": 4_000, "end": 15_000}).json()["reviewed"] is True
    after = read_manifest(folder).utterances
    assert read_manifest(folder).edges == "recorded"
    assert [old for old, new in zip(before, after, strict=True) if old != new] == [before[1]]
    changed = after[1]
    assert (changed.speech_start_sample, changed.speech_end_sample, changed.bounds_confidence_db) == (
        4_000,
        15_000,
        None,
    )
    assert (changed.speech_start_uncertainty_ms, changed.speech_end_uncertainty_ms) == (REVIEWED_MS, REVIEWED_MS)
    # A reviewed clip stays in the list, so that it can be reviewed again.
    assert [(row["id"], row["reasons"]) for row in client.get("/clips").json()][1] == ("unsure", [])


def test_with_exact_edges_only_the_beginnings_are_listed(folder: Path) -> None:
    set_edges(folder, "exact")
    assert [(row.id, len(row.reasons)) for row in Review(folder).listed()] == [("worse", 1)]
    assert Review(folder, everything=True).listed()[0].id == "worse"


def test_uncertain_bounds_are_listed_until_they_are_reviewed(workshop: Any) -> None:
    workshop.add("unknown", seed=1, speech_end_uncertainty_ms=None)
    workshop.add("wide", seed=2, speech_start_uncertainty_ms=75.0)
    review = Review(workshop.with_edges("recorded").save())
    assert [(row.id, len(row.reasons)) for row in review.listed()] == [("unknown", 1), ("wide", 1)]
    for row in review.listed():
        saved = review.save(row.id, row.start, row.end)
        assert (saved.start_uncertainty_ms, saved.end_uncertainty_ms) == (REVIEWED_MS, REVIEWED_MS)
        assert saved.reasons == ()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"start": 5, "end": 5}, 422),
        ({"start": -1, "end": 50}, 422),
        ({"start": 0, "end": 10**9}, 422),
        ({"start": 0, "end": 1_000}, 422),  # digital silence
        ({"start": 0.5, "end": 50}, 400),
        ({"start": 0}, 400),
        ({"start": 0, "end": 50, "path": "x"}, 400),
        (b"\xff{", 400),
        (b"[" * 20_000, 413),
    ],
)
def test_invalid_bounds_change_nothing(client: TestClient, folder: Path, body: object, status: int) -> None:
    before = (folder / "manifest.jsonl").read_bytes()
    response = save(client, "unsure", body)
    assert response.status_code == status
    assert response.json()["error"].endswith((".", ")"))
    assert (folder / "manifest.jsonl").read_bytes() == before


def test_only_the_page_may_save(client: TestClient, folder: Path) -> None:
    before = (folder / "manifest.jsonl").read_bytes()
    for token in ("", "guessed", TOKEN.upper()):
        assert save(client, "unsure", {"start": 4_000, "end": 15_000}, token).status_code == 403
    assert (folder / "manifest.jsonl").read_bytes() == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.5"])
@pytest.mark.parametrize("path", ["/", "/clips", "/clips/unsure"])
def test_another_host_name_is_not_served(client: TestClient, host: str, path: str) -> None:
    assert client.get(path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("name", ["..%2f..%2fmanifest.jsonl", "manifest.jsonl", "clips%2funsure.flac", "%2e%2e"])
def test_only_utterances_of_the_manifest_are_served(client: TestClient, name: str) -> None:
    response = client.get(f"/clips/{name}")
    assert response.status_code in (404, 422)
    assert b"sha256" not in response.content


def test_the_page_runs_only_its_own_script(workshop: Any) -> None:
    workshop.add("unsure", bounds_confidence_db=10.0)
    folder = workshop.save()
    named = folder.rename(folder.with_name("<script>alert(1)"))
    response = TestClient(build_app(Review(named), TOKEN), base_url="http://localhost").get("/")
    assert "<script>alert" not in response.text
    assert "{{" not in response.text
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "src=" not in response.text.replace("-src=", "")


def test_a_folder_that_is_not_a_corpus_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"contains no manifest\.jsonl"):
        Review(tmp_path)
