"""Kept calls are found by their own call alone, and removed when their time is over, whatever clocks do."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from telemetry.store.reader import StoreReader
from telemetry.store.recordings.expiry import LOOK_EVERY_S, Expiry, remove_expired
from telemetry.store.recordings.files import FoundCall, find_call
from telemetry.store.recordings.kept_call import FOLDER, KeptCall, KeptTurn, file_stem, run_folder

S = 1_000_000_000
NOW = 1_800_000_000 * S
DAY = 86_400 * S


def keep(store: Path, call_id: str = "call", *, created: int = NOW, keep_for: int = 7 * DAY, run: str = "run") -> Path:
    """A kept call of two seconds; its index."""
    folder = run_folder(store / FOLDER, run)
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(call_id, created, created + keep_for)
    soundfile.write(folder / f"{stem}.flac", np.zeros((16_000, 2), np.int16), 8_000)
    turns = (KeptTurn(turn_index=0, started_perf_ns=S, ended_perf_ns=2 * S),)
    call = KeptCall(
        run_id=run,
        call_id=call_id,
        trace_id="ab" * 16,
        created_unix_ns=created,
        keep_until_unix_ns=created + keep_for,
        turns=turns,
        rate_hz=8_000,
        samples=16_000,
        began_perf_ns=S,
    )
    index = folder / f"{stem}.json"
    index.write_bytes(msgspec.json.encode(call))
    return index


def stored_call(store: Path, call_id: str = "call", now: int = NOW) -> FoundCall:
    answer = find_call(store, "run", call_id, now)
    assert answer is not None
    return answer


def files(store: Path) -> list[str]:
    return sorted(path.suffix for path in (store / FOLDER).rglob("*") if path.is_file())


def test_a_kept_call_is_found_with_its_turns_on_its_samples(tmp_path: Path) -> None:
    index = keep(tmp_path)
    answer = stored_call(tmp_path)
    assert (answer.audio, answer.fault) == (str(index.with_suffix(".flac")), None)
    assert answer.call is not None
    assert [answer.call.sample_at(at) for at in (0, S, 2 * S, 2_500_000_000, 99 * S)] == [0, 0, 8_000, 12_000, 16_000]
    assert answer.call.turn(0) is not None
    assert answer.call.turn(1) is None


def test_nothing_kept_is_nothing(tmp_path: Path) -> None:
    assert find_call(tmp_path, "run", "call", NOW) is None
    keep(tmp_path)
    assert find_call(tmp_path, "run", "other", NOW) is None
    assert find_call(tmp_path, "other", "call", NOW) is None


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is damaged"),
        (b'{"run_id": "run"', "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"{}", "is damaged"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, content: bytes, fault: str) -> None:
    keep(tmp_path).write_bytes(content)
    answer = stored_call(tmp_path)
    assert answer.call is None
    assert fault in (answer.fault or "")


def test_a_file_of_another_call_under_this_ones_name_is_refused(tmp_path: Path) -> None:
    own, other = keep(tmp_path), keep(tmp_path, "other")
    shutil.copy(other, own)
    answer = stored_call(tmp_path)
    assert (answer.call, answer.audio) == (None, None)
    assert "belongs to another call" in (answer.fault or "")


def test_missing_audio_and_a_link_elsewhere_are_named(tmp_path: Path) -> None:
    index = keep(tmp_path)
    audio = index.with_suffix(".flac")
    audio.unlink()
    assert "is missing" in (stored_call(tmp_path).fault or "")
    audio.symlink_to("/etc/passwd")
    assert stored_call(tmp_path).audio is None


def test_only_expired_files_are_removed(tmp_path: Path) -> None:
    keep(tmp_path, "old", created=NOW - 8 * DAY)
    keep(tmp_path, "young", created=NOW - 6 * DAY)
    stranger = tmp_path / FOLDER / "notes.txt"
    stranger.write_text("mine")
    assert remove_expired(tmp_path, NOW) == 2
    assert files(tmp_path) == [".flac", ".json", ".txt"]
    assert stored_call(tmp_path, "young").fault is None
    assert remove_expired(tmp_path, NOW + 2 * DAY) == 2
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["notes.txt"]


def test_expired_recording_is_not_shown_before_removal(tmp_path: Path) -> None:
    keep(tmp_path)
    assert find_call(tmp_path, "run", "call", NOW + 8 * DAY) is None


def test_reader_of_store_removes_expired_recordings(tmp_path: Path) -> None:
    keep(tmp_path, created=NOW - 8 * DAY)
    StoreReader(tmp_path, wall_clock_ns=lambda: NOW).runs()
    assert not (tmp_path / FOLDER).is_dir() or files(tmp_path) == []


def test_recording_from_future_expires_after_its_retention_time(tmp_path: Path) -> None:
    """The clock was ten years ahead when the file was made, and is right by now."""
    keep(tmp_path, created=NOW + 3_650 * DAY)
    assert remove_expired(tmp_path, NOW) == 0
    assert stored_call(tmp_path).fault is None
    assert remove_expired(tmp_path, NOW + 6 * DAY) == 0
    assert remove_expired(tmp_path, NOW + 7 * DAY) == 2


def test_a_clock_that_jumps_for_a_moment_takes_nothing_away(tmp_path: Path) -> None:
    keep(tmp_path)
    wall, monotonic = [NOW], [0.0]
    expiry = Expiry(tmp_path, wall_clock_ns=lambda: wall[0], monotonic_s=lambda: monotonic[0])

    def later(seconds: float, jump_ns: int = 0) -> None:
        monotonic[0] += seconds
        wall[0] += int(seconds * S) + jump_ns
        expiry.remove_due()

    expiry.remove_due()
    later(LOOK_EVERY_S)
    later(LOOK_EVERY_S, 3_650 * DAY)
    later(LOOK_EVERY_S, -3_650 * DAY)
    later(LOOK_EVERY_S)
    assert files(tmp_path) == [".flac", ".json"]
    later(8 * DAY / S)
    assert files(tmp_path) == []


def test_abandoned_unfinished_file_is_removed_after_a_day(tmp_path: Path) -> None:
    index = keep(tmp_path)
    unfinished = index.with_name("0" * 32 + "-1-2.flac.part")
    unfinished.write_bytes(b"fLaC")
    now = int(unfinished.stat().st_mtime) * S
    assert remove_expired(tmp_path, min(now, NOW)) == 0
    unfinished_left = [path for path in index.parent.iterdir() if path.suffix == ".part"]
    assert unfinished_left == [unfinished]
    remove_expired(tmp_path, now + 2 * DAY)
    assert not unfinished.exists()
