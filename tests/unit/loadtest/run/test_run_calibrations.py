"""Requests are checked as a whole, and calibrations are found again."""

from pathlib import Path

import pytest
from rich.console import Console

from loadtest.calibration.calibration import CalibrationStep
from loadtest.calibration.job import (
    FULL_LOADS,
    QUICK_LOADS,
    CalibrateRequest,
    check_calibration,
    conclude,
    request_of,
)
from loadtest.calibration.json_object import calibration_object
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports.calibration_citing import BINDING
from loadtest.run.calibrations import (
    calibrations_folder,
    citation,
    engine_version,
    fingerprint,
    keep,
    kept,
    process_advice,
    wanted_processes,
)
from tests.unit.loadtest.calibration.calibration_material import MS, calibration, step


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path / "home"))


def request(tmp_path: Path, **changes: object) -> CalibrateRequest:
    known: dict[str, object] = {"quick": True, "loads": None, "turns": None, "most": None, "faults": True}
    values = known | {"out": tmp_path / "out", "json_file": None, "picture": None} | changes
    return request_of(**values)  # pyright: ignore[reportArgumentType]


def test_quick_and_full_have_loads_of_their_own(tmp_path: Path) -> None:
    assert request(tmp_path).loads == QUICK_LOADS
    assert request(tmp_path, quick=False).loads == FULL_LOADS
    assert request(tmp_path, loads="3, 9", faults=False).loads == (3, 9)
    assert request(tmp_path, faults=False).fault_rounds == 0
    check_calibration(request(tmp_path))


def test_every_fault_of_a_request_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bad = request(tmp_path, loads="9,3", turns=0, picture=tmp_path / "x.jpeg", json_file=tmp_path / "file" / "out.json")
    with pytest.raises(UsageError) as raised:
        check_calibration(bad)
    assert [line.split()[0] for line in str(raised.value).splitlines()][:3] == ["--loads", "--turns", "--picture"]
    assert "out.json" in str(raised.value)
    with pytest.raises(UsageError, match="not a list of callers"):
        request(tmp_path, loads="1;2")


def test_a_calibration_is_kept_and_cited_on_the_same_machine() -> None:
    assert citation(1, 1).state == "none"
    value = calibration_object(calibration(step(10, error_ns=120_000), machine=fingerprint()))
    file = keep(value)
    assert file.parent == calibrations_folder()
    assert kept() == [value]
    cited = citation(10, 1)
    assert cited.error_ms == 0.12
    assert cited.sentence.startswith("calibrated to ±0.12 ms at 10 callers on 2026-11-21, plus the error of the clips'")
    assert citation(11, 1).state == "not reached"


def test_processes_needed_are_looked_up_in_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.run.calibrations.usable_cores", lambda: 4)
    assert (process_advice(500, 1), wanted_processes(500)) == (None, 3)
    machine = fingerprint() | {"cores": "4"}
    monkeypatch.setattr("loadtest.run.calibrations.fingerprint", lambda: machine)
    keep(calibration_object(calibration(step(10), step(20, processes=2), machine=machine)))
    assert wanted_processes(20) == 2
    assert process_advice(20, 2) is None
    advised = process_advice(20, 1)
    assert advised is not None
    assert advised.endswith("give --processes 2")


def test_unreadable_calibration_is_ignored() -> None:
    folder = calibrations_folder()
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{")
    (folder / "other.json").write_text('{"schema_version": 99}')
    (folder / "list.json").write_text("[]")
    assert kept() == []
    keep(calibration_object(calibration(step(10))))
    assert citation(1, 1).state == "elsewhere"


def test_the_fingerprint_names_machine_and_engine() -> None:
    digest = fingerprint()
    assert set(BINDING) <= set(digest)
    assert all(digest.values())
    assert engine_version() == digest["engine"] == engine_version()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "interrupted", "code"),
    [
        ((step(10),), False, ExitCode.OK),
        ((step(10), step(20, error_ns=2 * MS)), False, ExitCode.OK),
        ((step(10, error_ns=2 * MS),), False, ExitCode.GENERATOR_LIMITED),
        ((step(10, turns=5),), False, ExitCode.UNDECIDED),
        ((step(10),), True, ExitCode.INTERRUPTED),
        ((), True, ExitCode.INTERRUPTED),
    ],
)
def test_how_a_calibration_ends(
    tmp_path: Path, steps: tuple[CalibrationStep, ...], interrupted: bool, code: ExitCode
) -> None:
    file = tmp_path / "calibration.json"
    asked = request(tmp_path, json_file=file)
    result = calibration(*steps, interrupted=interrupted)
    assert conclude(asked, result, Console(quiet=True)) is code
    assert file.is_file()
    # A calibration that measured nothing is not kept for others to cite.
    assert len(kept()) == (1 if steps else 0)
    assert (asked.out / "calibration.svg").is_file() == bool(steps)
