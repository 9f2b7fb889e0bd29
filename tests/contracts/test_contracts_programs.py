"""A test whose program is missing fails, with the reason why it could not be installed."""

from pathlib import Path

import pytest

from tests.programs import REASON_VARIABLE, needed

ROOT = Path(__file__).parents[2]
LINES = (ROOT / ".ci" / "system-packages.txt").read_text().splitlines()
PROGRAMS = [line.split()[0] for line in LINES if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_tests_that_drive_a_program_request_it(name: str) -> None:
    askers = [path for path in (ROOT / "tests").rglob("*.py") if f'needed("{name}"' in path.read_text()]
    assert askers, f"no test asks for {name} with needed()"


def test_no_test_is_left_out_for_want_of_a_program() -> None:
    asks = [path for path in (ROOT / "tests").rglob("test_*.py") if "skipif(shutil.which" in path.read_text()]
    assert asks == [Path(__file__)]


def test_the_failure_names_the_program_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REASON_VARIABLE, "apt-get could not install a-package: Could not get lock")
    with pytest.raises(pytest.fail.Exception, match="the program no-such-program is needed: apt-get could not install"):
        needed("no-such-program", "nor-this")
    monkeypatch.delenv(REASON_VARIABLE)
    with pytest.raises(pytest.fail.Exception, match="it is not on PATH"):
        needed("no-such-program")


def test_the_first_that_is_there_is_taken() -> None:
    assert needed("no-such-program", "sh").endswith("/sh")
