"""The wrapper `./voiceprobe` and the programs of the system that the tests drive: named, installed, waited for."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.wrapper_checkout import Checkout, program

# Each makes environments, which takes seconds.
pytestmark = pytest.mark.slow


def test_missing_programs_are_named_where_they_cannot_be_installed(used: Checkout) -> None:
    (used.root / ".ci" / "system-packages.txt").write_text("# heading\nno-such-program a-package why\nsh dash shell\n")
    folder = used.root / "user"
    program(folder, "id", "echo 1000")
    result = used.run("test", PATH=f"{folder}:{os.environ['PATH']}")
    assert result.returncode == 0
    assert "apt-get install --no-install-recommends a-package\n" in result.stderr
    assert result.stdout == "pytest: -n auto --dist loadfile\n", "the suite runs all the same"
    assert used.run("demo").stderr == "", "no program is wanted for anything but the tests"


@pytest.fixture
def as_root(used: Checkout, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the tests as root with a program missing and an apt-get of our own."""
    (used.root / ".ci" / "system-packages.txt").write_text("no-such-program a-package why\nnor-this another why\n")
    (used.root / "pytest.py").write_text("import os\nprint(os.environ.get('VOICEPROBE_MISSING_PROGRAMS'))\n")
    program(tmp_path, "id", "echo 0")

    def run(apt_get: str, **settings: str) -> subprocess.CompletedProcess[str]:
        program(tmp_path, "apt-get", f'echo "$DEBIAN_FRONTEND $*" >> "{tmp_path}/record"\n{apt_get}')
        result = used.run("test", PATH=f"{tmp_path}:{os.environ['PATH']}", **settings)
        assert result.returncode == 0, "the suite runs all the same"
        return result

    return run


LOCKED = "echo 'E: Could not get lock {}. It is held by process 4711 (apt-get)' >&2; echo 'E: Unable to go on' >&2"
LISTS_LOCKED = LOCKED.format("/var/lib/apt/lists/lock")
APT_LOG = ".venv.apt.log"


def test_root_installs_the_missing_programs_once(
    used: Checkout, as_root: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert as_root("exit 0").stdout == "None\n"
    assert (tmp_path / "record").read_text().splitlines() == [
        "noninteractive -qq -o DPkg::Lock::Timeout=300 update",
        "noninteractive -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends a-package another",
    ]
    assert list(used.root.glob(f"{APT_LOG}*")) == []


@pytest.mark.parametrize("command", ["update", "install"])
def test_a_lock_of_another_apt_get_is_waited_for(
    used: Checkout, as_root: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, command: str
) -> None:
    refuse = f"if mkdir '{tmp_path}/once' 2>/dev/null; then {LISTS_LOCKED}; exit 100; fi"
    busy = f'case "$*" in *{command}*) {refuse};; esac'
    result = as_root(busy)
    assert result.stdout == "None\n"
    assert "could not" not in result.stderr
    assert (tmp_path / "record").read_text().count(f" {command}") == 2
    assert list(used.root.glob(f"{APT_LOG}*")) == []


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (LOCKED.format("/var/lib/dpkg/lock-frontend"), "Could not get lock /var/lib/dpkg/lock-frontend. It is held by"),
        ("echo 'Reading lists'; echo 'E: Unable to locate package a-package'", "Unable to locate package a-package"),
        ("echo 'no error of its own'", "no error of its own"),
        (":", "it did not say why"),
        ("printf 'E: \\033]0;x\\007red\\n'", "]0;xred"),
    ],
    ids=["locked", "unknown package", "other words", "silent", "escapes"],
)
def test_an_installation_that_fails_says_why_and_the_tests_hear_of_it(
    used: Checkout, as_root: Callable[..., subprocess.CompletedProcess[str]], fails: str, reason: str
) -> None:
    result = as_root(f'case "$*" in *install*) {fails}; exit 100;; esac', VOICEPROBE_APT_WAIT="0")
    sentence = f"apt-get could not install a-package another: {reason}"
    assert sentence in result.stderr
    assert result.stdout.startswith(sentence)
    log = used.root / APT_LOG
    assert f"(whole log: {log})" in result.stdout
    assert log.read_text().startswith("$ apt-get update\n$ apt-get install -y")
    assert sorted(path.name for path in used.root.glob(f"{APT_LOG}*")) == [APT_LOG]
    log.unlink()
