"""The second try of the integration tests, on a tree of tests that fail as they are asked to."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOKS = """
from tests.integration.reruns import pytest_itemcollected, pytest_runtest_makereport, pytest_runtest_teardown
"""
# The server of the module and that of the session are broken by the first test that asks, and stay so until they are
# made anew. Each test that has begun leaves a line.
TESTS = """
import pathlib
import pytest

PLACE = pathlib.Path(__file__).with_suffix(".log")

def note(line):
    with PLACE.open("a") as log:
        print(line, file=log)
    return PLACE.read_text().splitlines().count(line)

@pytest.fixture(scope="session")
def wide():
    yield note("wide made")
    note("wide ended")

@pytest.fixture(scope="module")
def server(wide):
    yield note("server made")
    note("server ended")

def test_before(server):
    note("before")

def test_chance(server, wide):
    note("chance")
    assert (server, wide) == (2, 2), f"server {server} is broken"

def test_after(server):
    assert (note("after"), server) == (1, 2)
"""
FAULT = """
def test_fault():
    assert 1 + 1 == 3, "a fault of the product"
"""
SETUP = """
import pytest

MADE = []

@pytest.fixture(scope="module")
def server():
    MADE.append(1)
    assert len(MADE) > 1, "the port was taken"

def test_started(server):
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of pytest with the settings of this project."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", *arguments, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def integration(tmp_path: Path) -> Path:
    folder = tmp_path / "integration"
    folder.mkdir()
    (folder / "conftest.py").write_text(HOOKS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("runners", [("-n", "0"), ("-n", "2", "--dist", "loadfile")], ids=["alone", "two"])
def test_chance_gets_a_second_try_with_new_servers_and_is_shown(integration: Path, runners: tuple[str, ...]) -> None:
    (integration / "test_chance.py").write_text(TESTS)
    code, out = run(integration.parent, *runners)
    assert (code, "3 passed, 1 rerun" in out) == (0, True), out
    assert "RERUN integration/test_chance.py::test_chance" in out, out
    assert "AssertionError: server 1 is broken" in out, "the first failure is no secret"
    assert (integration / "test_chance.log").read_text().splitlines() == [
        *("wide made", "server made", "before", "chance", "server ended", "wide ended"),
        *("wide made", "server made", "chance", "after", "server ended", "wide ended"),
    ]


@pytest.mark.slow
def test_a_server_that_did_not_start_is_started_again(integration: Path) -> None:
    (integration / "test_setup.py").write_text(SETUP)
    code, out = run(integration.parent, "-n", "0")
    assert (code, "1 passed, 1 rerun" in out, "the port was taken" in out) == (0, True, True), out


def test_a_fault_stays_a_fault(integration: Path) -> None:
    (integration / "test_fault.py").write_text(FAULT)
    code, out = run(integration.parent, "-n", "0")
    assert (code, "1 failed, 1 rerun" in out, out.count("a fault of the product") > 1) == (1, True, True), out


def test_what_needs_no_other_process_gets_one_try(tmp_path: Path) -> None:
    (tmp_path / "test_fault.py").write_text(FAULT)
    code, out = run(tmp_path, "-n", "0")
    assert (code, "1 failed in" in out) == (1, True), out


@pytest.mark.slow
def test_what_fails_many_is_no_chance(integration: Path) -> None:
    many = "import pytest\n\n@pytest.mark.parametrize('each', range(20))\ndef test_fault(each):\n    assert each < 0\n"
    (integration / "test_many.py").write_text(many)
    code, out = run(integration.parent, "-n", "0")
    assert (code, "20 failed, 8 rerun" in out) == (1, True), out
