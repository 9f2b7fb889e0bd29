"""The layers of the house, run by import-linter over the tree; and each contract shown to fail on a violation."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("corpora", "loadtest", "telemetry", "dashboard")
RUN = "from importlinter.cli import lint_imports_command; lint_imports_command()"

# For each contract one import that it must refuse: the file it is written into and the line.
VIOLATIONS: dict[str, tuple[str, str]] = {
    "rooms": ("telemetry/upward.py", "import loadtest.errors"),
    "loadtest": ("loadtest/assistant/sideways.py", "import loadtest.caller.pacing"),
    "protocols-sans-io": ("loadtest/protocols/clocked.py", "import time"),
    "caller-pure": ("loadtest/caller/pacing.py", "import socket"),
    "reports-pure": ("loadtest/reports/clocked.py", "import time"),
    "locust": ("loadtest/caller/patched.py", "import locust"),
    "gevent": ("loadtest/assistant/patched.py", "import gevent"),
    "telemetry": ("telemetry/semconv.py", "import telemetry.turns"),
    "dashboard-arithmetic": ("dashboard/sums.py", "import numpy"),
}


def contracts() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def lint(where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", RUN, "--no-cache", "--no-logo"],
        cwd=where,
        env=os.environ | {"PYTHONPATH": str(where), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def copy_of_the_house(where: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", where)
    for package in PACKAGES:
        for source in (ROOT / package).rglob("*.py"):
            copy = where / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def test_every_import_keeps_to_its_layer() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def broken_house(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of a house in which every contract is violated once."""
    where = tmp_path_factory.mktemp("house")
    copy_of_the_house(where)
    for path, line in VIOLATIONS.values():
        with (where / path).open("a") as file:
            file.write(f"\n{line}\n")
    result = lint(where)
    assert result.returncode != 0
    return result.stdout


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["id"])
def test_every_contract_can_fail(contract: dict[str, Any], broken_house: str) -> None:
    assert contract["id"] in VIOLATIONS, "a new contract wants a violation that shows it at work"
    assert f"{contract['name']} BROKEN" in broken_house


def test_a_module_without_a_floor_is_noticed(tmp_path: Path) -> None:
    copy_of_the_house(tmp_path)
    (tmp_path / "loadtest" / "attic.py").write_text("")
    (tmp_path / "telemetry" / "cellar.py").write_text("")
    result = lint(tmp_path)
    assert result.returncode != 0
    assert "attic" in result.stdout
    assert "cellar" in result.stdout
