"""What workers left on disk is brought to a real sidecar, once."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cli import processes
from loadtest.cli.deliver import deliver
from loadtest.cli.processes import ProcessFailedError
from loadtest.cli.sidecars import start_sidecar
from loadtest.errors import UsageError
from telemetry.journal import TurnJournal
from telemetry.sdk import SdkOptions, start
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import client_turn

# No process has this number: beyond the largest that a kernel gives out.
GONE = 2**22 + 1


@pytest.mark.slow
def test_a_spool_and_the_journal_of_a_killed_worker_come_home(tmp_path: Path) -> None:
    folder, store = tmp_path / "spool", tmp_path / "store"
    program = (
        "import sys; from pathlib import Path; from telemetry.sdk import SdkOptions, start;"
        "from telemetry.instrument import announce_run; t = start(SdkOptions(None, 'x', spool_dir=Path(sys.argv[1])));"
        "announce_run(t, 'run-1', 'start', {}); t.shutdown(5)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=processes.ROOT, check=True)
    journal = TurnJournal(folder, f"{GONE}-x")
    for index in range(3):
        journal.note(client_turn(index))
    with pytest.raises(ProcessFailedError, match="takes no more: the rest stays in"):
        deliver(folder, "http://127.0.0.1:9")
    child, sidecar = start_sidecar(store, tmp_path / "logs", slo=None)
    with processes.ending(child):
        assert (
            deliver(folder, sidecar.url) == f"delivered from {folder}: spans of the spool 1, journals with last turns 1"
        )
        assert deliver(folder, sidecar.url) == f"nothing was waiting in {folder}"
    with StoreReader(store) as reader:
        assert [turn.sequence for turn in reader.turns()] == [0, 1, 2]
        assert [run.run_id for run in reader.runs()] == ["run-1"]


def test_what_cannot_be_delivered_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        deliver(tmp_path / "nowhere", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="is no address"):
        deliver(tmp_path, "127.0.0.1:9")
    mine = start(SdkOptions(None, "x", spool_dir=tmp_path))
    journal = TurnJournal(tmp_path, mine.identity.process_id)
    with pytest.raises(UsageError, match="is still written to by process"):
        deliver(tmp_path, "http://127.0.0.1:9")
    journal.close()
    mine.shutdown(5)
