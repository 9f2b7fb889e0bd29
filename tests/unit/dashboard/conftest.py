"""The store that the pages of these tests are about, and how Streamlit opens them."""

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner

from dashboard import asking_ahead
from dashboard.source_names import ENV_LOCUST, ENV_SLO, ENV_STORE


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


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Callable[[], object]]]:
    """What pages plan to ask for their next refreshes, with the delay in seconds: no browser refreshes these pages, and
    by the time that it would be asked the store of a test is gone."""
    found = list[tuple[float, Callable[[], object]]]()

    def later(delay_s: float, ask: Callable[[], object]) -> Callable[[], None]:
        found.append((delay_s, ask))
        return partial(found.remove, found[-1])

    monkeypatch.setattr(asking_ahead, "later", later)
    return found
