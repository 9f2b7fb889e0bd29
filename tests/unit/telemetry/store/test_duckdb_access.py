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


def started(folder: Path, program: str) -> subprocess.Popen[str]:
    """A program whose folder for temporary files this is."""
    env = {"PYTHONPATH": str(Path(__file__).parents[4]), "TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True)


def named(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_what_is_spilled_ends_with_the_process(tmp_path: Path) -> None:
    output, _ = started(tmp_path, LEFT_BEHIND).communicate(timeout=60)
    folder = Path(output.strip())
    assert folder.parent == tmp_path
    assert folder.name.startswith("voiceprobe-spill-")
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_spilled_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """Whatever else has such a name stays: of a process that is at work, of no lock, a link to a folder elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / "voiceprobe-spill-link").symlink_to(elsewhere)
    (tmp_path / "voiceprobe-spill-unlocked").mkdir()
    waits = LEFT_BEHIND + "import sys; sys.stdout.flush(); input()"
    killed, at_work = started(tmp_path, waits), started(tmp_path, waits)
    of_killed, of_other = named(killed), named(at_work)
    killed.kill()
    killed.communicate()
    assert (of_killed / "spilled").exists()
    started(tmp_path, LEFT_BEHIND).communicate(timeout=60)
    assert not of_killed.exists()
    assert (of_other / "spilled").exists()
    assert (elsewhere / "lock").exists()
    at_work.communicate("\n", timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "voiceprobe-spill-link",
        "voiceprobe-spill-unlocked",
    ]
