"""The wrapper `./voiceprobe` on a checkout of its own: first use, every later use, and what can go wrong between.

The checkout is a small stand-in with empty locks, so that an environment is made without any network.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.contracts.wrapper_checkout import BOUND_S, ROOT, Checkout, program
from tests.nightly import nightly_after

# Each makes environments, which takes seconds.
pytestmark = pytest.mark.slow


def test_a_later_use_starts_at_once_and_says_nothing(used: Checkout) -> None:
    again = used.run("corpus", "list")
    assert (again.returncode, again.stdout, again.stderr) == (0, "arguments: corpus list\n", "")


def test_the_exit_code_of_the_command_is_the_wrappers(used: Checkout) -> None:
    assert used.run("fail").returncode == 3


def test_wrapper_runs_from_another_folder_through_symlink(used: Checkout, tmp_path: Path) -> None:
    link = tmp_path / "vp"
    link.symlink_to(os.path.relpath(used.root / "voiceprobe", tmp_path))
    (tmp_path / "loadtest").mkdir()  # a folder of the same name where the user happens to be is not ours
    (tmp_path / "loadtest" / "__init__.py").write_text("raise RuntimeError('wrong loadtest')")
    result = used.run("run", command=link, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "arguments: run\n", "")


def test_a_changed_lock_brings_the_environment_up_to_date(used: Checkout) -> None:
    lock = used.root / "requirements.lock"
    lock.write_text(lock.read_text() + "# changed\n")
    changed = used.run("demo")
    assert changed.returncode == 0
    assert "installing" in changed.stderr
    assert "making" not in changed.stderr
    assert used.run("demo").stderr == ""


def with_uv(checkout: Checkout, tmp_path: Path, script: str) -> dict[str, str]:
    """The settings under which a changed lock is installed by a uv of our own."""
    lock = checkout.root / "requirements.lock"
    lock.write_text(lock.read_text() + "# changed\n")
    program(tmp_path, "uv", f'echo "$PWD: $*" >> "{tmp_path}/record"\n{script}')
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VOICEPROBE_NO_UV": ""}


def test_a_uv_that_is_there_is_used(used: Checkout, tmp_path: Path) -> None:
    changed = used.run("demo", **with_uv(used, tmp_path, "exit 0"))
    assert (changed.returncode, changed.stdout) == (0, "arguments: demo\n")
    assert "pip" not in changed.stderr.replace(str(used.root), "")
    assert (tmp_path / "record").read_text() == (
        f"{used.root}: pip sync --quiet --python {used.venv}/bin/python --require-hashes requirements.lock\n"
    )
    assert used.run("demo").stderr == ""


def test_failing_uv_gives_reason_and_pip_installs(used: Checkout, tmp_path: Path) -> None:
    changed = used.run("demo", **with_uv(used, tmp_path, "echo 'error: no index can be reached' >&2; exit 2"))
    assert (changed.returncode, changed.stdout) == (0, "arguments: demo\n")
    output = changed.stderr.splitlines()
    assert "error: no index can be reached" in output
    assert f"voiceprobe: installing what voiceprobe needs into {used.venv}, with pip …" in output
    assert used.run("demo").stderr == ""


@pytest.mark.parametrize("ending", nightly_after(1, [signal.SIGTERM, signal.SIGINT]))
def test_an_interrupt_ends_the_installation_at_once(fresh: Checkout, tmp_path: Path, ending: signal.Signals) -> None:
    # Without pip an environment takes a twentieth of the time, twice.
    python = f'[ "$2" = venv ] && exec {sys.executable} -m venv --without-pip "$3"; exec {sys.executable} "$@"'
    whole = {"VOICEPROBE_PYTHON": str(program(tmp_path / "bin", "python3", python))}
    assert fresh.run("demo", **whole, **with_uv(fresh, tmp_path, "exit 0")).returncode == 0
    hangs = f"echo $$ > '{tmp_path}/new'; mv '{tmp_path}/new' '{tmp_path}/pid'; exec sleep 600"
    process = fresh.start("demo", **whole, **with_uv(fresh, tmp_path, hangs))
    deadline = time.monotonic() + BOUND_S
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline, "uv was never started"
        time.sleep(0.01)
    process.send_signal(ending)
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (130, "")
    assert "with pip" not in err
    sleeper = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(sleeper) and psutil.Process(sleeper).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "uv goes on"
        time.sleep(0.01)
    mended = fresh.run("demo", **whole, **with_uv(fresh, tmp_path, "exit 0"))
    assert (mended.returncode, mended.stdout) == (0, "arguments: demo\n")
    assert "interrupted" in mended.stderr
    assert fresh.run("demo").stderr == ""


def test_the_suite_gets_its_own_packages_and_its_arguments(used: Checkout) -> None:
    result = used.run("test", "-q", "tests/unit", cwd=used.root.parent)
    assert (result.returncode, result.stdout) == (0, "pytest: -n auto --dist loadfile -q tests/unit\n")
    assert used.run("test").stderr == ""
    assert used.run("demo").stderr == "", "what the tests need includes what the command needs"


@pytest.mark.nightly
def test_each_peer_gets_an_environment_of_its_own_once(used: Checkout) -> None:
    lock = used.root / "tests" / "peers" / "some-server.lock"
    lock.parent.mkdir()
    lock.write_text("# nothing\n")
    shown = [f"os.environ.get('VOICEPROBE_{name}')" for name in ("PEERS", "MISSING_PEERS")]
    (used.root / "pytest.py").write_text(f"import os\nprint({', '.join(shown)})\n")
    try:
        first = used.run("test")
        place = used.venv / "peers"
        assert (first.returncode, first.stdout) == (0, f"{place} None\n")
        assert f"installing what tests/peers/some-server.lock needs into {place / 'some-server'}" in first.stderr
        assert (place / "some-server" / "bin" / "python").exists()
        assert not (place / "some-server" / "bin" / "voiceprobe").exists()
        assert used.run("test").stderr == ""
        lock.write_text(f"no-such-distribution==1.0 --hash=sha256:{'0' * 64}\n")
        failed = used.run("test")
        reason = "./voiceprobe test could not prepare the environments of: some-server"
        assert (failed.returncode, failed.stdout) == (0, f"{place} {reason}\n"), "the suite runs all the same"
        assert "no-such-distribution" in failed.stderr, "the cause is shown"
        assert used.run("demo").stderr == "", "no peer is wanted for anything but the tests"
        elsewhere = used.root / "elsewhere"
        lock.write_text("# nothing\n")
        assert used.run("test", VOICEPROBE_PEERS=str(elsewhere)).stdout == f"{elsewhere} None\n"
    finally:
        shutil.rmtree(lock.parent)


@pytest.mark.nightly
def test_an_interrupt_while_a_peer_is_installed_runs_no_test(used: Checkout, tmp_path: Path) -> None:
    assert used.run("test").returncode == 0, "the suite's own packages are there"
    lock = used.root / "tests" / "peers" / "some-server.lock"
    lock.parent.mkdir()
    lock.write_text("# nothing\n")
    program(tmp_path, "uv", f"echo $$ > '{tmp_path}/new'; mv '{tmp_path}/new' '{tmp_path}/pid'; exec sleep 600")
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "VOICEPROBE_NO_UV": ""}
    try:
        process = used.start("test", **settings)
        deadline = time.monotonic() + BOUND_S
        while not (tmp_path / "pid").exists():
            assert time.monotonic() < deadline, "uv was never started"
            time.sleep(0.01)
        for pid in (process.pid, *(child.pid for child in psutil.Process(process.pid).children())):
            os.kill(pid, signal.SIGINT)  # as a terminal does, which interrupts a shell and those that it waits for
        out, _ = process.communicate(timeout=BOUND_S)
        assert (process.returncode, out) == (130, "")
    finally:
        shutil.rmtree(lock.parent)


@pytest.mark.nightly
def test_an_interrupted_first_use_is_made_again(fresh: Checkout) -> None:
    first = fresh.start("demo")
    marker = fresh.venv / ".voiceprobe-making"
    deadline = time.monotonic() + BOUND_S
    while not marker.exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline, "the first use never began"
        time.sleep(0.01)
    first.kill()
    first.communicate(timeout=BOUND_S)
    result = fresh.run("demo")
    assert result.returncode == 0
    assert "interrupted" in result.stderr
    assert not marker.exists()
    assert fresh.run("demo").stderr == ""


@pytest.mark.nightly
def test_two_first_uses_at_once_make_one_environment(fresh: Checkout) -> None:
    both = [fresh.start("demo", name) for name in ("one", "two")]
    results = [process.communicate(timeout=BOUND_S) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert sorted(out for out, _ in results) == ["arguments: demo one\n", "arguments: demo two\n"]
    assert sum("is ready after" in err for _, err in results) == 1


@pytest.mark.nightly
def test_failed_installation_is_one_sentence_and_is_retried_next(fresh: Checkout) -> None:
    lock = fresh.root / "requirements.lock"
    lock.write_text(f"no-such-distribution==1.0 --hash=sha256:{'0' * 64}\n")
    failed = fresh.run("demo")
    assert failed.returncode == 1
    assert "no-such-distribution" in failed.stderr, "the cause is shown"
    assert "could not be prepared" in failed.stderr.splitlines()[-1]
    assert failed.stdout == ""
    lock.write_text("# nothing\n")
    assert fresh.run("demo").returncode == 0


def test_a_folder_that_is_no_environment_is_left_alone(fresh: Checkout, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("unsaved")
    result = fresh.run("demo", VOICEPROBE_VENV=str(precious))
    assert result.returncode == 2
    assert "VOICEPROBE_VENV" in result.stderr
    assert [path.name for path in precious.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ('case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac', "3.11 or newer is needed"),
        (
            'case "$2" in *version_info*print*|*print*) echo 3.12;; *ensurepip*) exit 1;; *) exit 0;; esac',
            "apt-get install python3.12-venv",
        ),
    ],
    ids=["too old", "no venv module"],
)
def test_an_unusable_python_is_named_with_what_mends_it(fresh: Checkout, script: str, sentence: str) -> None:
    unusable = program(fresh.root / "bin", "python3", script)
    result = fresh.run("demo", VOICEPROBE_PYTHON=str(unusable))
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not fresh.venv.exists()


def test_no_python_at_all_is_one_sentence(fresh: Checkout) -> None:
    result = fresh.run("demo", VOICEPROBE_PYTHON="python-that-is-not-there")
    assert result.returncode == 2
    assert "install Python 3.11 or newer" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_continuous_integration_runs_exactly_the_suite() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1] == "exec ./voiceprobe test"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "voiceprobe", os.X_OK)


def test_missing_programs_are_named_where_not_installable(used: Checkout) -> None:
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
def test_failed_installation_gives_reason_to_user_and_tests(
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
