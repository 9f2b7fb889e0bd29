"""Delivery to a real sidecar, once, of what workers left on disk."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.run import processes
from loadtest.run.processes import ProcessFailedError
from loadtest.run.sidecars import start_sidecar
from loadtest.run.store import deliver
from telemetry.export.sdk import SdkOptions, start
from telemetry.store.reader import StoreReader
from tests.integration.commands import completed

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.slow
def test_a_spool_and_the_log_of_a_killed_worker_come_home(tmp_path: Path) -> None:
    folder, store = tmp_path / "spool", tmp_path / "store"
    program = (
        "import sys; from pathlib import Path; from telemetry.export.sdk import SdkOptions, start;"
        "from telemetry.export.instrumentation import CallTrace, announce_run;"
        "from tests.fixtures_turns import client_turn;"
        "t = start(SdkOptions(None, 'x', spool_dir=Path(sys.argv[1]))); announce_run(t, 'run-1', 'start', {{}});"
        "call = CallTrace(t, run_id='run-1', call_id='c', source='client', started_unix_ns=1, started_perf_ns=1,"
        " attributes={{}}); [call.emit(client_turn(index)) for index in (0, 1)]; call.end(2, {{}}); {}"
    )
    ended = subprocess.run([sys.executable, "-c", program.format(KILLED), str(folder)], cwd=processes.ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    subprocess.run([sys.executable, "-c", program.format("t.shutdown(5)"), str(folder)], cwd=processes.ROOT, check=True)
    with pytest.raises(ProcessFailedError, match=r"takes no more: 4 turns \(8 spans\) of the spool stay in"):
        deliver(folder, "http://127.0.0.1:9")
    child, sidecar = start_sidecar(store, tmp_path / "logs", slo=None)
    with processes.ending(child):
        output = deliver(folder, sidecar.url)
        assert output == f"delivered from {folder}: 4 turns (8 spans) of the spool"
        assert deliver(folder, sidecar.url) == f"nothing was waiting in {folder}"
        former = folder / "old.spool"
        former.write_bytes(b"of an earlier format")
        assert deliver(folder, sidecar.url).endswith("; files there that are not logs of this version: 1")
        former.rename(folder / "old.wal")
        with pytest.raises(UsageError, match=r"another version of voiceprobe wrote \(old\.wal\)"):
            deliver(folder, sidecar.url)
    with StoreReader(store) as reader:
        assert sorted(turn.sequence or 0 for turn in reader.turns()) == [0, 0, 1, 1]
        assert [run.run_id for run in reader.runs()] == ["run-1"]


def test_undeliverable_spool_is_one_sentence(tmp_path: Path) -> None:
    ended = completed("deliver", str(tmp_path / "nowhere"), "--sidecar", "http://127.0.0.1:9")
    assert (ended.returncode, "is not a folder" in ended.stderr, ended.stderr.count("\n")) == (2, True, 1), ended.stderr
    with pytest.raises(UsageError, match="is not an address"):
        deliver(tmp_path, "127.0.0.1:9")
    mine = start(SdkOptions(None, "x", spool_dir=tmp_path))
    with pytest.raises(UsageError, match="is still written to by process"):
        deliver(tmp_path, "http://127.0.0.1:9")
    mine.shutdown(5)
