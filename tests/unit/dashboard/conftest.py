"""The stores that the pages of these tests are about, and how Streamlit opens them."""

import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner

from dashboard.source import ENV_LOCUST, ENV_RUNS, ENV_SLO, ENV_STORE
from tests.unit.dashboard.scenes import Scene, fill


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is named as the dashboard's store, and not there yet."""
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "store"))
    for name in (ENV_SLO, ENV_LOCUST):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "store"


@pytest.fixture(scope="session")
def full_scene() -> Scene:
    """A run of two cohorts that has just ended."""
    return Scene(turns=240, newest_unix_ns=time.time_ns(), ended=True, invalid_share=0.0)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, full_scene: Scene) -> Path:
    """A store with that run, which no test writes to."""
    store = tmp_path_factory.mktemp("full") / "store"
    fill(store, full_scene)
    return store


@pytest.fixture
def full(store: Path, filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dashboard's store is the full one."""
    del store
    monkeypatch.setenv(ENV_STORE, str(filled))
    return filled


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A dashboard of no place; a test says where its runs are."""
    for name in (ENV_STORE, ENV_SLO, ENV_LOCUST):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ENV_RUNS, "[]")
    return monkeypatch


@pytest.fixture(scope="session", autouse=True)
def packages_scanned_once() -> Iterator[None]:
    """Streamlit reads the metadata of every installed package, for components, each time that a test runs a page; its
    server does so once when it starts. What is installed is the same for all tests, and takes longer than the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True)
def main_module_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit puts the script that it runs in the place of the main module, which the processes that later tests
    start would run."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
