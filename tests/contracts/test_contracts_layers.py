"""The layers, run by import-linter over the tree; and each contract shown to fail on a violation."""

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
    "packages": ("telemetry/model/upward.py", "import loadtest.errors"),
    "loadtest": ("loadtest/conversation/upward.py", "import loadtest.engine.ticker"),
    "wires": ("loadtest/protocols/telephony/sideways.py", "import loadtest.protocols.openai_realtime.dialects"),
    "targets": ("loadtest/targets/assistant/sideways.py", "import loadtest.conversation.playout"),
    "telemetry": ("telemetry/model/semconv.py", "import telemetry.objectives.slo"),
    "corpora": ("corpora/manifest/upward.py", "import corpora.rendering.noise"),
    "protocols-pure": ("loadtest/protocols/clocked.py", "import time"),
    "conversation-pure": ("loadtest/conversation/connected.py", "import socket"),
    "telemetry-pure": ("telemetry/objectives/clocked.py", "import time"),
    "reports-pure": ("loadtest/reports/clocked.py", "import time"),
    "locust": ("loadtest/engine/patched.py", "import locust"),
    "gevent": ("loadtest/targets/patched.py", "import gevent"),
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


def copy_the_packages(where: Path) -> None:
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
def violations(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of a copy in which every contract is violated once."""
    where = tmp_path_factory.mktemp("copy")
    copy_the_packages(where)
    for path, line in VIOLATIONS.values():
        with (where / path).open("a") as file:
            file.write(f"\n{line}\n")
    result = lint(where)
    assert result.returncode != 0
    return result.stdout


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["id"])
def test_every_contract_can_fail(contract: dict[str, Any], violations: str) -> None:
    assert contract["id"] in VIOLATIONS, "a new contract wants a violation that shows it at work"
    assert f"{contract['name']} BROKEN" in violations


def test_a_module_outside_the_layers_is_noticed(tmp_path: Path) -> None:
    copy_the_packages(tmp_path)
    (tmp_path / "loadtest" / "unplaced.py").write_text("")
    (tmp_path / "telemetry" / "nowhere.py").write_text("")
    result = lint(tmp_path)
    assert result.returncode != 0
    assert "unplaced" in result.stdout
    assert "nowhere" in result.stdout
