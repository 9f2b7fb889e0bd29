"""Files of the writing process, whatever happens to the worker, the disk and the texts."""

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from loadtest.engine.call_audio import call_file
from loadtest.engine.call_audio.messages import CallOpened, KeeperMessage, KeeperMessageKind, turn_payload
from loadtest.engine.call_audio.writer import CallAudioWriter
from telemetry.store.recordings.files import find_call
from telemetry.store.recordings.kept_call import FOLDER, KeptTurn, PartialText
from tests.nightly import nightly_after

K = KeeperMessageKind
SECOND = 1_000_000_000
RATE = 16_000
NOW = 1_800_000_000 * SECOND
OPENED = CallOpened("run", "call", "ab" * 16, RATE, RATE // 50, 0, 0, 3_600 * SECOND, True)


def opened(writer: CallAudioWriter, call: int = 1, **changes: object) -> None:
    payload = msgspec.msgpack.encode(msgspec.structs.replace(OPENED, **changes))
    writer.take(KeeperMessage(K.OPEN, call, payload=payload))
    writer.take(KeeperMessage(K.BEGAN, call, at=7 * SECOND))


def writer_of(store: Path) -> CallAudioWriter:
    return CallAudioWriter(store / FOLDER, lambda: NOW)


def tone(value: int, seconds: float, rate: int = RATE) -> bytes:
    return np.full(round(seconds * rate), value, "<i2").tobytes()


def turn(index: int = 0, **texts: object) -> KeeperMessage:
    kept = KeptTurn(turn_index=index, started_perf_ns=8 * SECOND, ended_perf_ns=10 * SECOND, **texts)  # pyright: ignore[reportArgumentType]
    return KeeperMessage(K.TURN, 1, payload=turn_payload(kept))


def test_a_call_is_one_private_file_with_an_index_of_its_turns(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    opened(writer)
    writer.take(KeeperMessage(K.SPOKE, 1, rate_hz=RATE, at=50, payload=tone(100, 1)))
    writer.take(KeeperMessage(K.PLAYED, 1, 1, 24_000, 9 * SECOND, tone(200, 3, 24_000)))
    writer.take(KeeperMessage(K.STOPPED, 1, 1, at=10 * SECOND))
    writer.take(turn(asked="hello"))
    writer.take(KeeperMessage(K.CLOSE, 1, at=12 * SECOND))
    entry = find_call(tmp_path, "run", "call", NOW)
    assert entry is not None
    assert (entry.fault, entry.call is not None) == (None, True)
    call = entry.call
    assert call is not None
    # The first reply decides the rate.
    assert (call.rate_hz, call.samples, call.began_perf_ns, call.missing, call.note) == (
        24_000,
        120_000,
        7 * SECOND,
        (),
        None,
    )
    (kept,) = call.turns
    assert (kept.first_sample, kept.end_sample, kept.asked) == (24_000, 72_000, "hello")
    assert entry.audio is not None
    samples, rate = soundfile.read(entry.audio, dtype="int16")
    assert (samples.shape, rate) == ((120_000, 2), 24_000)
    assert np.flatnonzero(samples[:, 1]).tolist() == list(range(48_000, 72_000))
    middle = samples[26_000:46_000, 0]
    assert (abs(middle - 100) <= 1).all()
    assert not samples[:23_000, 0].any()
    for path in [tmp_path / FOLDER, *(tmp_path / FOLDER).rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_personal_data_in_texts_are_replaced(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    opened(writer, keeps_audio=False)
    text = "my name is Anna Keller, mail anna@example.com"
    writer.take(turn(asked=text, transcript=text, reply=text, partials=(PartialText(5, text),)))
    writer.take(KeeperMessage(K.CLOSE, 1, at=12 * SECOND))
    (index,) = (tmp_path / FOLDER).rglob("*.json")
    content = index.read_text()
    assert "Anna" not in content
    assert "example.com" not in content
    assert content.count("[redacted:email]") == 4
    assert json.loads(content)["rate_hz"] is None


def test_a_call_without_audio_and_texts_leaves_nothing(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    payload = msgspec.msgpack.encode(OPENED)
    writer.take(KeeperMessage(K.OPEN, 1, payload=payload))
    writer.take(turn())
    writer.take(KeeperMessage(K.CLOSE, 1, at=12 * SECOND))
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.parametrize("run_id", ["../../outside", "/etc/passwd", "a/b", "..", "x" * 5000, "\0\n\x1b[31m"])
def test_names_from_outside_never_become_paths(tmp_path: Path, run_id: str) -> None:
    writer = writer_of(tmp_path / "store")
    opened(writer, run_id=run_id, call_id=run_id)
    writer.take(KeeperMessage(K.CLOSE, 1, at=8 * SECOND))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    names = [path.name for path in (tmp_path / "store" / FOLDER).rglob("*")]
    assert len(names) == 3
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)
    entry = find_call(tmp_path / "store", run_id, run_id, NOW)
    assert entry is not None
    assert entry.call is not None


@pytest.mark.slow
@pytest.mark.parametrize("minutes", nightly_after(1, [60, 240]))
def test_hours_take_no_more_memory_than_four_minutes(tmp_path: Path, minutes: int) -> None:
    def peak(length: int) -> int:
        writer = writer_of(tmp_path / str(length))
        opened(writer)
        tracemalloc.start()
        for second in range(7, 7 + length * 60):
            if second % 10 == 0:
                writer.take(KeeperMessage(K.SPOKE, 1, rate_hz=RATE, at=second * 50, payload=tone(3, 2)))
            writer.take(KeeperMessage(K.PLAYED, 1, second, RATE, second * SECOND, tone(4, 1)))
            writer.take(KeeperMessage(K.SETTLED, at=(second - 5) * SECOND))
        writer.take(KeeperMessage(K.CLOSE, 1, at=(7 + length * 60) * SECOND))
        return tracemalloc.get_traced_memory()[1]

    try:
        short = peak(4)
        tracemalloc.stop()
        long = peak(minutes)
    finally:
        tracemalloc.stop()
    assert long < 1.5 * short
    entry = find_call(tmp_path / str(minutes), "run", "call", NOW)
    assert entry is not None
    assert entry.call is not None
    assert entry.call.samples == minutes * 60 * RATE


def test_a_disk_that_is_nearly_full_ends_the_audio_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([1 << 40, 1 << 40, 0])
    monkeypatch.setattr(call_file.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": next(left)}))
    writer = writer_of(tmp_path)
    opened(writer)
    for second in range(7, 60):
        writer.take(KeeperMessage(K.PLAYED, 1, second, RATE, second * SECOND, tone(4, 1)))
        writer.take(KeeperMessage(K.SETTLED, at=second * SECOND))
    writer.take(KeeperMessage(K.CLOSE, 1, at=60 * SECOND))
    entry = find_call(tmp_path, "run", "call", NOW)
    assert entry is not None
    assert entry.call is not None
    assert entry.call.note == "the audio ends here: the disk had less than 256 MiB left"
    assert 0 < entry.call.samples < 53 * RATE
    assert entry.audio is not None
    assert soundfile.info(entry.audio).frames == entry.call.samples


FULL = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
sys.path.insert(0, sys.argv[2])
from tests.unit.loadtest.engine.call_audio.test_call_audio_writer import *
import numpy as np
writer = writer_of(Path(sys.argv[1]))
opened(writer)
noise = np.random.default_rng(1).integers(-9000, 9000, RATE).astype("<i2").tobytes()
for second in range(7, 60):
    writer.take(KeeperMessage(K.PLAYED, 1, second, RATE, second * SECOND, noise))
    writer.take(KeeperMessage(K.SETTLED, at=second * SECOND))
writer.take(turn(asked="hello"))
writer.take(KeeperMessage(K.CLOSE, 1, at=60 * SECOND))
"""


@pytest.mark.slow
def test_full_disk_loses_audio_but_not_the_process(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[5])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), root], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
    entry = find_call(tmp_path, "run", "call", NOW)
    assert entry is not None
    assert entry.call is not None
    assert entry.call.note is not None
    assert entry.call.note.startswith("the audio could not be written")
    assert [turn.asked for turn in entry.call.turns] == ["hello"]


def test_killed_worker_leaves_audio_played_so_far(tmp_path: Path) -> None:
    """A real process behind a real socket, whose worker is killed outright."""
    program = """
import os, signal, sys
from pathlib import Path
from loadtest.engine.call_audio.keeper import CallAudioKeeper
from loadtest.engine.call_audio.messages import CallOpened
keeper = CallAudioKeeper(Path(sys.argv[1]))
tap = keeper.tap(CallOpened("run", "call", "ab" * 16, 16000, 320, 0, 0, 3_600_000_000_000, True))
tap.began(7_000_000_000)
for second in range(7, 17):
    tap.played(second, 16000, second * 1_000_000_000, b"\\1\\1" * 16000)
keeper._settle_at_perf_ns = 0
keeper.send(17_000_000_000)
while not keeper.queue.is_empty:
    keeper.queue.send_slice()
print(keeper.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / FOLDER)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[5],
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        if Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z":
            break
        signal.sigtimedwait([], 0.05)
    (index,) = (tmp_path / FOLDER).rglob("*.json")
    (audio,) = (tmp_path / FOLDER).rglob("*.flac")
    assert json.loads(index.read_text())["note"] == "the process of the caller ended before the call did"
    samples, _ = soundfile.read(audio, dtype="int16")
    assert len(samples) == 10 * 16_000
    assert (samples[:, 1] == 0x0101).all()
