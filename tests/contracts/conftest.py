"""Checkouts on which the wrapper `./voiceprobe` is tested."""

from pathlib import Path

import pytest

from tests.contracts.wrapper_checkout import PYTEST, Checkout


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first use, shared by the tests that leave it usable. The space in its path is on purpose."""
    checkout = Checkout(tmp_path_factory.mktemp("wrapper") / "a clone")
    first = checkout.run("demo", "--users", "8")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "arguments: demo --users 8\n"
    assert "is ready after" in first.stderr
    return checkout


@pytest.fixture
def used(house: Checkout) -> Checkout:
    (house.root / ".ci" / "system-packages.txt").write_text("# nothing\n")
    (house.root / "pytest.py").write_text(PYTEST)
    return house


@pytest.fixture
def fresh(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "clone")
