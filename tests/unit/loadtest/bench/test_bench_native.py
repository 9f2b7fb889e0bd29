"""The parts in C: their sources are in the package, and a part in Python takes the place of one that is not built."""

import importlib.util
import shutil
import sys
from pathlib import Path

from loadtest.bench.cases import NAIVE, OURS
from loadtest.bench.native import C_SOURCES, build


def test_the_sources_are_in_the_package_that_is_installed() -> None:
    assert {file.name for file in C_SOURCES.iterdir()} == {"control.c", "peer.c", "wire.h"}
    assert C_SOURCES.parent.name == "bench"


def test_what_cannot_be_compiled_is_noted_and_the_peer_in_python_takes_its_place(tmp_path: Path) -> None:
    refuses = shutil.which("false")
    assert refuses is not None
    native = build(tmp_path, refuses)
    assert (native.control, native.peer, native.peer_tls) == (None, None, None)
    assert [note.partition(" could not be compiled")[0] for note in native.notes] == ["control.c", "peer.c", "peer.c"]
    python, option, module = native.peer_command(tls=False)
    assert (python, option) == (sys.executable, "-m")
    assert importlib.util.find_spec(module) is not None


def test_every_sender_in_python_is_a_module_that_can_be_started() -> None:
    for sender in (OURS, NAIVE):
        assert importlib.util.find_spec(f"loadtest.bench.callers.{sender}") is not None
