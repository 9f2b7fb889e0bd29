"""The parts in C: their sources are in the package, and a part in Python takes the place of one that is not built."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.bench.cases import NAIVE, OURS
from tests.benchmarks.bench.native import C_SOURCES, build
from tests.programs import needed


def test_the_sources_are_in_the_package_that_is_installed() -> None:
    programs = {"control.c", "peer.c", "conversation_caller.c", "conversation_endpoint.c"}
    assert {file.name for file in C_SOURCES.iterdir()} == {*programs, "wire.h", "pacing.h", "script.h", "upgrade.h"}
    assert C_SOURCES.parent.name == "bench"


def test_what_cannot_be_compiled_is_noted_and_the_peer_in_python_takes_its_place(tmp_path: Path) -> None:
    refuses = shutil.which("false")
    assert refuses is not None
    native = build(tmp_path, refuses)
    assert (native.control, native.peer, native.peer_tls) == (None, None, None)
    assert (native.conversation_caller, native.conversation_endpoint) == (None, None)
    assert [note.partition(" could not be compiled")[0] for note in native.notes] == [
        *("control.c", "peer.c", "peer.c", "conversation_caller.c", "conversation_endpoint.c")
    ]
    python, option, module = native.peer_command(tls=False)
    assert (python, option) == (sys.executable, "-m")
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("source", sorted(C_SOURCES.glob("*.c")), ids=lambda source: source.name)
def test_the_sources_compile_without_a_warning(source: Path) -> None:
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-O2"]
    done = subprocess.run([needed("cc"), *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_sender_in_python_is_a_module_that_can_be_started() -> None:
    for sender in (OURS, NAIVE):
        assert importlib.util.find_spec(f"tests.benchmarks.bench.callers.{sender}") is not None
