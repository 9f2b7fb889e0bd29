"""One version of the objectives at a time: a changed file is what every page judges by at its next look."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from dashboard import source
from dashboard.components import frame
from dashboard.pages import now
from dashboard.pages.now import NowView
from dashboard.source import ENV_RUNS, ENV_SLO, ENV_STORE, ObjectivesInForce, objectives_in_force, source_of
from telemetry.model.errors import ConfigError
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives, load_objectives, objectives_text
from telemetry.store.run_folders.places import OBJECTIVES_NAME
from tests.fixtures_turns import START_UNIX_NS, fill_store
from tests.run_folders import HOUR_NS, latency_run, run_folder
from tests.unit.dashboard.opened_pages import opened, text_of

TARGET = "target: 0.95"
UNUSABLE = "apiVersion: ["
STILL = "every page judges by the version before it"
PAGES_WITH_OBJECTIVES = ("now", "cohorts", "objectives", "runs", "turns", "cache", "instrument")


def one_objective(threshold: str) -> str:
    """A file of one objective, on voice to voice."""
    first = objectives_text(None).split("\n---\n")[0]
    return re.sub(r"threshold: \w+", f"threshold: {threshold}", first)


MET, MISSED = one_objective("60s"), one_objective("1ms")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Nothing is kept from one test to another."""
    source._usable.clear()
    yield
    source._usable.clear()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """The files that were parsed, one after the other."""
    seen: list[Path | None] = []

    def watched(path: Path | None) -> list[Objective]:
        seen.append(path)
        return load_objectives(path)

    monkeypatch.setattr(source, "load_objectives", watched)
    return seen


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of objectives that the launcher was given; it is not there yet."""
    objectives_file = tmp_path / "objectives.yaml"
    monkeypatch.setenv(ENV_SLO, str(objectives_file))
    return objectives_file


@pytest.fixture
def shown(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of objectives of a dashboard over a store with one run, which meets them."""
    file.write_text(MET)
    fill_store(tmp_path / "store", latency_run("r-one", 60, began_unix_ns=time.time_ns() - 200_000_000_000))
    monkeypatch.setenv(ENV_STORE, str(tmp_path / "store"))
    monkeypatch.delenv(ENV_RUNS, raising=False)
    return file


def in_force() -> ObjectivesInForce:
    """Return the objectives in force of a store outside a run folder."""
    return objectives_in_force("store")


def judged(view: NowView) -> list[bool | None]:
    return [status.verdict.met for status in view.statuses]


def test_the_default_objectives_are_parsed_once(monkeypatch: pytest.MonkeyPatch, parsed: list[Path | None]) -> None:
    monkeypatch.delenv(ENV_SLO, raising=False)
    assert [list(in_force().objectives) for _ in range(3)] == [default_objectives()] * 3
    assert parsed == [None]


def test_objectives_file_is_parsed_again_after_change(tmp_path: Path, file: Path, parsed: list[Path | None]) -> None:
    text = objectives_text(None)
    assert TARGET in text
    file.write_text(text)
    first = [in_force().objectives for _ in range(3)]
    assert (first, parsed) == ([tuple(default_objectives())] * 3, [file])
    # The same size and another moment; another size at the same moment; another file of both.
    changed = text.replace(TARGET, "target: 0.96")
    for content in (changed, changed + "\n", text + "\n"):
        before = file.stat()
        replacement = tmp_path / "beside.yaml"
        replacement.write_text(content)
        if len(content) != before.st_size or content.startswith(text):
            os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
        replacement.replace(file)
        parsed.clear()
        assert list(in_force().objectives) == load_objectives(file)
        assert list(in_force().objectives) == load_objectives(file)
        assert parsed == [file], content[-40:]


def test_every_read_reports_fault_until_a_version_is_usable(file: Path) -> None:
    for content in (None, UNUSABLE, None):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        for _ in range(2):
            with pytest.raises(ConfigError):
                in_force()
    file.write_text(objectives_text(None))
    current = in_force()
    assert (list(current.objectives), current.fault) == (default_objectives(), None)


@pytest.mark.parametrize("damage", [lambda file: file.write_text(UNUSABLE), lambda file: file.unlink()])
def test_unusable_objectives_leave_previous_version_in_force(
    file: Path, parsed: list[Path | None], damage: Callable[[Path], object]
) -> None:
    file.write_text(MET)
    former = in_force()
    parsed.clear()
    damage(file)
    answers = [in_force() for _ in range(3)]
    assert [answer.objectives for answer in answers] == [former.objectives] * 3
    assert all(STILL in (answer.fault or "") and str(file) in (answer.fault or "") for answer in answers)
    assert all("\n" not in (answer.fault or "") for answer in answers)
    file.write_text(MISSED)
    mended = in_force()
    assert mended.fault is None
    assert list(mended.objectives) == load_objectives(file)
    assert mended.objectives != former.objectives


def test_a_file_that_could_not_be_read_is_read_once_it_can(file: Path) -> None:
    file.write_text(MET)
    former = in_force()
    file.unlink()
    file.mkdir()
    assert STILL in (in_force().fault or "")
    file.rmdir()
    file.write_text(MET)
    assert in_force() == former


@pytest.mark.slow
def test_answers_are_of_the_version_in_force(shown: Path) -> None:
    assert judged(now.ask(source_of({}), {})) == [True]
    assert [entry.state for entry in source.run_listing().entries] == ["met"]
    shown.write_text(MISSED)
    assert judged(now.ask(source_of({}), {})) == [False]
    listing = source.run_listing()
    assert [entry.state for entry in listing.entries] == ["missed"]
    assert list(listing.objectives) == load_objectives(shown)
    shown.write_text(UNUSABLE)
    assert judged(now.ask(source_of({}), {})) == [False]
    assert [entry.state for entry in source.run_listing().entries] == ["missed"]
    shown.write_text(MET)
    assert judged(now.ask(source_of({}), {})) == [True]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_OBJECTIVES)
def test_every_page_says_once_that_a_changed_file_cannot_be_used(shown: Path, page: str) -> None:
    assert in_force().fault is None
    shown.write_text(UNUSABLE)
    assert text_of(opened(page)).count(STILL) == 1


@pytest.mark.slow
def test_a_page_that_is_open_takes_up_a_change_when_it_refreshes(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh runs the body of the page again, with what it closes over."""
    seen: list[list[bool | None]] = []

    def fragment(body: Callable[[], None], **_pace: object) -> Callable[[], None]:
        def drawn_and_refreshed() -> None:
            if body.__name__ == "title":
                return
            for content in (None, MISSED, UNUSABLE, MET):
                if content is not None:
                    shown.write_text(content)
                body()

        return drawn_and_refreshed

    def drawn(view: NowView, _context: frame.PageContext) -> None:
        seen.append(judged(view))

    monkeypatch.setattr(st, "fragment", fragment)
    monkeypatch.setattr(now, "page", replace(now.PAGE, draw=drawn).show)
    text = text_of(opened("now"))
    assert seen == [[True], [False], [False], [True]]
    assert text.count(STILL) == 1


@pytest.mark.slow
def test_runs_page_judges_known_folder_by_changed_objectives(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(MET)
    run_folder(tmp_path / "runs", "one", latency_run("r-one", 60))
    monkeypatch.setenv(ENV_RUNS, json.dumps([str(tmp_path / "runs")]))
    monkeypatch.delenv(ENV_STORE, raising=False)
    for content, state in ((MET, "met"), (MISSED, "missed"), (UNUSABLE, "missed"), (MET, "met")):
        file.write_text(content)
        assert list(opened("runs").dataframe[0].value["state"]) == [state]
        assert judged(now.ask(source_of({}), {})) == [state == "met"]


@pytest.mark.slow
def test_each_run_is_judged_by_its_own_objectives_without_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command and `voiceprobe report` judge it by the same objectives."""
    root = tmp_path / "runs"
    for number, (name, content) in enumerate((("strict", MISSED), ("lax", MET))):
        began_unix_ns = START_UNIX_NS + number * HOUR_NS
        folder = run_folder(root, name, latency_run(f"r-{name}", 60, began_unix_ns=began_unix_ns))
        (folder / OBJECTIVES_NAME).write_text(content)
    monkeypatch.setenv(ENV_RUNS, json.dumps([str(root)]))
    monkeypatch.delenv(ENV_STORE, raising=False)
    monkeypatch.delenv(ENV_SLO, raising=False)
    listing = source.run_listing()
    assert {listed.name: listed.state for listed in listing.entries} == {"strict": "missed", "lax": "met"}
    for entry in listing.entries:
        assert judged(now.ask(source_of({"store": entry.store}), {})) == [entry.state == "met"]
    # A file that is given to the dashboard holds for all of them.
    given = tmp_path / "given.yaml"
    given.write_text(MET)
    monkeypatch.setenv(ENV_SLO, str(given))
    listing = source.run_listing()
    assert [listed.state for listed in listing.entries] == ["met", "met"]
    for entry in listing.entries:
        assert judged(now.ask(source_of({"store": entry.store}), {})) == [True]
