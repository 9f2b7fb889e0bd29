"""What the list of runs is made from: objectives that are parsed once for each state of their file."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard import runs_source
from dashboard.source_names import ENV_RUNS, ENV_SLO, ENV_STORE
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, load_objectives, objectives_text

TARGET = "target: 0.95"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from one test to another."""
    yield
    runs_source._objectives_of.cache_clear()
    runs_source._catalog.cache_clear()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """The files that were parsed, one after the other."""
    seen: list[Path | None] = []

    def watched(path: Path | None) -> list[Objective]:
        seen.append(path)
        return load_objectives(path)

    monkeypatch.setattr(runs_source, "load_objectives", watched)
    runs_source._objectives_of.cache_clear()
    return seen


def test_the_default_objectives_are_parsed_once(monkeypatch: pytest.MonkeyPatch, parsed: list[Path | None]) -> None:
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert [list(runs_source.objectives()) for _ in range(3)] == [default_objectives()] * 3
    assert parsed == [None]


def test_a_file_of_objectives_is_parsed_again_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[Path | None]
) -> None:
    file, text = tmp_path / "objectives.yaml", objectives_text(None)
    assert TARGET in text
    file.write_text(text)
    monkeypatch.setenv(ENV_SLO, str(file))
    first = [runs_source.objectives() for _ in range(3)]
    assert (first, parsed) == ([tuple(default_objectives())] * 3, [file])
    # The same size and another moment; another size at the same moment; another file of both.
    changed = text.replace(TARGET, "target: 0.96")
    for content in (changed, changed + "\n", text + "\n"):
        before = file.stat()
        beside = tmp_path / "beside.yaml"
        beside.write_text(content)
        if len(content) != before.st_size or content.startswith(text):
            os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
        beside.replace(file)
        parsed.clear()
        assert list(runs_source.objectives()) == load_objectives(file)
        assert list(runs_source.objectives()) == load_objectives(file)
        assert parsed == [file], content[-40:]


def test_a_fault_in_the_objectives_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[Path | None]
) -> None:
    file = tmp_path / "objectives.yaml"
    monkeypatch.setenv(ENV_SLO, str(file))
    for content in (None, "apiVersion: [", None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        for _ in range(2):
            with pytest.raises(ConfigError):
                runs_source.objectives()
    file.write_text(objectives_text(None))
    assert list(runs_source.objectives()) == default_objectives()
    file.unlink()
    with pytest.raises(ConfigError):
        runs_source.objectives()


def test_a_change_of_the_objectives_makes_another_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, places = tmp_path / "objectives.yaml", tmp_path / "runs"
    places.mkdir()
    file.write_text(objectives_text(None))
    monkeypatch.setenv(ENV_SLO, str(file))
    monkeypatch.setenv(ENV_RUNS, f'["{places}"]')
    monkeypatch.delenv(ENV_STORE, raising=False)
    assert runs_source.run_listing().entries == []
    first = runs_source._catalog(runs_source.places(), runs_source.objectives())
    assert runs_source._catalog(runs_source.places(), runs_source.objectives()) is first
    file.write_text(objectives_text(None).replace(TARGET, "target: 0.9"))
    assert runs_source._catalog(runs_source.places(), runs_source.objectives()) is not first
