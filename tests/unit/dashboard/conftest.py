"""The store that the pages of these tests are about."""

from pathlib import Path

import pytest

from dashboard.source import ENV_SLO, ENV_STORE


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is named as the dashboard's store, and not there yet."""
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "store"))
    monkeypatch.delenv(ENV_SLO, raising=False)
    return tmp_path / "store"
