"""What a statement cannot hold in memory goes where only this user can read it, and no longer than the process."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.store.duckdb_access import spill_folder
from telemetry.store.rollups.database import open_database

LEFT_BEHIND = """
from pathlib import Path
from telemetry.store.duckdb_access import spill_folder
(Path(spill_folder()) / "spilled").write_text("a transcript")
print(spill_folder())
"""


def test_only_this_user_can_read_what_is_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(spill_folder())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with open_database() as database:
        assert database.execute("SELECT current_setting('temp_directory')").fetchone() == (str(folder),)


def test_what_is_spilled_ends_with_the_process(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(ended.stdout.strip())
    assert folder.name.startswith("voiceprobe-spill-")
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
