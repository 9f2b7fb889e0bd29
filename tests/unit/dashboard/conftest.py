"""The store that the pages of these tests are about, and how Streamlit opens them."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner

from dashboard.source import ENV_LOCUST, ENV_SLO, ENV_STORE


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is named as the dashboard's store, and not there yet."""
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "store"))
    for name in (ENV_SLO, ENV_LOCUST):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "store"


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
