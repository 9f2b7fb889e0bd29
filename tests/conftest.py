"""Fixtures of all tests: a cache of rendered speech of their own, so that none reads what an earlier run left, and no
claim on the processor before the others."""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from tests.nightly import DAY, NIGHT

VARIABLE = "VOICEPROBE_CACHE"
# Folders whose tests start processes: all of them are slow.
PROCESSES = frozenset({"integration", "browser"})
# Characters of a value that names a case of a test.
LONGEST_ID = 60
TESTS = Path(__file__).parent
# The expression of the quick run.
QUICK = "not slow"

# Several tests share the processors, and none of their swarms may take them from the others.
os.environ.setdefault("VOICEPROBE_PRIORITY", "normal")

# Neither time nor chance decides a test: an example that a busy machine draws out is no fault, and the examples of a
# property are the same in every run. With --hypothesis-profile=explore they are new ones each time.
settings.register_profile(DAY, deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile(NIGHT, deadline=None, derandomize=True)
settings.load_profile(DAY)


@dataclass
class _Niceness:
    """The niceness of this process, and the tests that changed it."""

    niceness: int
    changed_by: frozenset[str] = frozenset()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag that runs the nightly tests, too."""
    parser.addoption("--all", action="store_true", help="run the nightly tests as well: everything that there is")


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start one runner for each core for the quick tests, which only compute; most others wait, so four share two."""
    return os.cpu_count() or 1 if QUICK in config.option.markexpr else 4


def pytest_report_header(config: pytest.Config) -> str:
    """State which of the two suites runs."""
    return "suite: all tests" if config.option.all else "suite: every day (--all adds the nightly tests)"


def pytest_configure(config: pytest.Config) -> None:
    """Tests and the processes they start render into a folder of this run; parallel runners share it."""
    config.stash[_niceness] = _Niceness(os.getpriority(os.PRIO_PROCESS, 0))
    if config.option.all and settings.get_current_profile_name() == DAY:
        settings.load_profile(NIGHT)
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = tempfile.mkdtemp(prefix="voiceprobe-tests-")
        config.stash[_made] = os.environ[VARIABLE]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude what is imported and collected from garbage collection: it stays until the end. A collection of all of it
    takes a second, which would be a pause of the callers of each test, and of pytest when it ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # DuckDB's bindings report what is left at the end of the process as leaked.
        atexit.register(gc.unfreeze)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module of the folders whose tests are all slow where none of them is asked for: that takes seconds."""
    if config.option.markexpr == QUICK and collection_path.parent == TESTS and collection_path.name in PROCESSES:
        return True
    return None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Short containers of plain values name a test. Bytes and long numbers never do: they may hold a time of day, and
    parallel runners must agree on every name."""
    if isinstance(val, bytes):
        return argname
    if isinstance(val, dict | list | tuple) and _is_plain(val):
        text = repr(val)
        return text if len(text) <= LONGEST_ID and text.isprintable() else None
    return None


def _is_plain(value: object) -> bool:
    """Return whether the text of a value is the same in every process: sets, objects and times are not."""
    match value:
        case dict():
            return all(_is_plain(member) for pair in value.items() for member in pair)
        case list() | tuple():
            return all(map(_is_plain, value))
        case int() | float():
            return abs(value) < 10**9
        case _:
            return value is None or isinstance(value, str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the nightly tests out unless they are asked for, and put files with slow tests first.

    Parallel runners take whole files in this order, and a long file that begins last keeps one of them busy while the
    others have nothing left.
    """
    slow: set[Path] = set()
    nightly: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("nightly"):
            nightly.append(item)
        if item.get_closest_marker("nightly") or not PROCESSES.isdisjoint(item.nodeid.split("::")[0].split("/")):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow"):
            slow.add(item.path)
    if nightly and not config.option.all:
        config.hook.pytest_deselected(items=nightly)
        left_out = set(nightly)
        items[:] = [item for item in items if item not in left_out]
    others = [path for path in dict.fromkeys(item.path for item in items) if path in slow]
    pages = [path for path in others if path.parent.name == "browser"]
    others = [path for path in others if path not in pages]
    place = {path: float(number) for number, path in enumerate(others)}
    # Two browsers at once take a small machine's cores from each other.
    place |= {path: number * len(others) / len(pages) - 0.5 for number, path in enumerate(pages)}
    items.sort(key=lambda item: place.get(item.path, len(others)))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it again."""
    folder = config.stash.get(_made, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop(VARIABLE, None)


_made = pytest.StashKey[str]()
_niceness = pytest.StashKey[_Niceness]()


@pytest.fixture(autouse=True)
def _niceness_is_left_as_it_was(request: pytest.FixtureRequest) -> Generator[None]:
    """Check that a test restores its process's priority: each later test, and every process that it starts, would have
    it."""
    yield
    known, after = request.config.stash[_niceness], os.getpriority(os.PRIO_PROCESS, 0)
    if after != known.niceness:
        # The tests after it do not fail for what they have not done; a second try of this one does.
        known.niceness, known.changed_by = after, known.changed_by | {request.node.nodeid}
    assert request.node.nodeid not in known.changed_by, "the test changed the niceness of the process that it ran in"
