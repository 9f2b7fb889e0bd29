"""A second try for tests of real processes: what failed by chance on a shared machine decides nothing, and is shown.

A test that needed it is to be mended: the summary of the run holds the text of its first failure.
"""

from collections.abc import Generator

import pytest

_failed = pytest.StashKey[bool]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Every test below the conftest that imports this gets a second try; a debugger wants the first failure."""
    if not item.config.getoption("usepdb"):
        item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep whether the try has failed."""
    report = yield
    item.stash[_failed] = report.failed or (call.when != "setup" and item.stash.get(_failed, False))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A failed test takes all fixtures with it, those of its module and of the session too: neither its second try nor
    the next test meets a server that it has broken."""
    if item.stash.get(_failed, False):
        item.session._setupstate.teardown_exact(None)  # before the plugin keeps those of a wider scope for the rerun
