"""What a terminal shows of a target that opens no session: one sentence, and nothing of our own end."""

from pathlib import Path

from loadtest.exit_codes import ExitCode
from tests.integration.calling import CORPUS
from tests.integration.commands import completed


def test_a_host_that_cannot_be_found_is_named_in_one_line(tmp_path: Path) -> None:
    url = "ws://no-such-host.invalid/v1/realtime"
    done = completed("run", url, "--corpus", CORPUS, "--users", "1", "--out", str(tmp_path / "run"))
    assert done.returncode == ExitCode.UNREACHABLE
    (line,) = done.stderr.splitlines()
    assert "no-such-host.invalid" in line
