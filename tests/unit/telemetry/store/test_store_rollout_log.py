"""The log of a rollout's verdicts: what was changed in it is named, and a kill loses nothing that counted."""

import contextlib
import errno
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telemetry.model.errors import StoreError
from telemetry.rollout.verdict_document import as_object
from telemetry.store import rollout_log
from telemetry.store.rollout_log import RolloutEntry, RolloutLog, append_verdict, read_rollouts, thinned
from tests.fixtures_rollouts import AT_UNIX_NS, MINUTE, PLAN_TEXT, edited, keep_verdicts, two_stages, verdict_of

PLAN = two_stages()


def opened(store: Path) -> RolloutLog:
    return RolloutLog(store, PLAN, PLAN_TEXT, AT_UNIX_NS)


def log_file(store: Path) -> Path:
    return store / "rollouts" / PLAN.name / "verdicts.jsonl"


def change(store: Path, edit: Callable[[list[bytes]], None]) -> None:
    lines = log_file(store).read_bytes().splitlines(keepends=True)
    edit(lines)
    log_file(store).write_bytes(b"".join(lines))


def test_every_verdict_comes_back_as_it_was_given(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        held = verdict_of(PLAN, log.history)
        log.append(PLAN, held)
        promoted = verdict_of(PLAN, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + MINUTE)
        log.append(PLAN, promoted)
        log.move("half", AT_UNIX_NS + 2 * MINUTE)
        assert (log.history.stage, log.history.stage_since_unix_ns) == ("half", AT_UNIX_NS + 2 * MINUTE)
        kept = log.history
    (record,) = read_rollouts(tmp_path)
    assert (record.name, record.plan_text, record.fingerprint) == ("streaming", PLAN_TEXT, PLAN.fingerprint)
    assert record.faults == ()
    assert [each.decision for each in record.entries] == [None, "hold", "promote", None]
    assert [each.verdict for each in record.verdicts] == [as_object(PLAN, held), as_object(PLAN, promoted)]
    assert record.entries[-1].stage == "half"
    with opened(tmp_path) as log:
        assert log.history == kept
        assert log.moves == 1
        again = verdict_of(PLAN, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + 3 * MINUTE)
    assert [look.verdict for look in kept.looks] == ["hold", "promote"]
    assert [look.candidate_turns for look in kept.looks] == [held.candidate_turns, promoted.candidate_turns]
    assert again.stage.name == "half"


def test_the_history_that_a_log_gives_is_the_one_that_the_gate_made(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        history = log.history
        for place in range(3):
            found = verdict_of(PLAN, history, turns=300 + place, at_unix_ns=AT_UNIX_NS + place * MINUTE)
            log.append(PLAN, found)
            history = found.history
            assert log.history == history
    with opened(tmp_path) as log:
        assert log.history == history


def test_lines_are_chained_with_the_plan_at_their_beginning(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 3, PLAN)
    lines = log_file(tmp_path).read_bytes().splitlines()
    found = [json.loads(line) for line in lines]
    digests = [hashlib.sha256(content).hexdigest() for content in (PLAN_TEXT.encode(), *lines)]
    assert [line["previous_sha256"] for line in found] == digests[:-1]
    assert [line["sequence"] for line in found] == [0, 1, 2, 3]
    head = json.loads((log_file(tmp_path).parent / "head.json").read_bytes())
    assert head == {"sequence": 3, "sha256": digests[-1]}


def _edit_verdict(lines: list[bytes]) -> None:
    assert b'"verdict":"hold"' in lines[2]
    lines[2] = lines[2].replace(b'"verdict":"hold"', b'"verdict":"promote"')


def _edit_last(lines: list[bytes]) -> None:
    lines[-1] = lines[-1].replace(b'"turns":', b'"turns": ', 1)


def _swap(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _twice(lines: list[bytes]) -> None:
    lines.insert(3, lines[2])


def _cut_end(lines: list[bytes]) -> None:
    del lines[5]


CHANGES: list[tuple[Callable[[list[bytes]], None], str]] = [
    (_edit_verdict, "line 3 was edited"),
    (_edit_last, "line 6 was edited"),
    (_swap, "before line 3 the entry 2 was removed"),
    (_twice, "line 4 with entry 2 stands behind entry 2"),
    (lambda lines: lines.__delitem__(2), "before line 3 the entry 2 was removed"),
    (lambda lines: lines.__delitem__(slice(1, 4)), "before line 2 the entries 1 to 3 were removed"),
    (lambda lines: lines.__delitem__(0), "before line 1 the entry 0 was removed"),
    (_cut_end, "its end is missing: the last entry is 4, and 5 was written"),
    (lambda lines: lines.clear(), "its end is missing: the last entry is gone, and 5 was written"),
    (lambda lines: lines.__setitem__(2, b"{}\n"), "line 3 is not one of this log"),
    (lambda lines: lines.__setitem__(2, b"\xff\n"), "line 3 is not one of this log"),
    (lambda lines: lines.__setitem__(2, b"[" * 100_000 + b"\n"), "line 3 is not one of this log"),
]


@pytest.mark.parametrize(("edit", "fault"), CHANGES)
def test_what_was_changed_is_named_and_nothing_is_added_to_it(
    tmp_path: Path, edit: Callable[[list[bytes]], None], fault: str
) -> None:
    keep_verdicts(tmp_path, 5, PLAN)
    change(tmp_path, edit)
    left = log_file(tmp_path).read_bytes()
    (record,) = read_rollouts(tmp_path)
    assert fault in record.faults[0]
    assert str(log_file(tmp_path)) in record.faults[0]
    with pytest.raises(StoreError, match="cannot be trusted: restore the folder") as caught:
        opened(tmp_path)
    assert fault in str(caught.value)
    assert log_file(tmp_path).read_bytes() == left


def test_lines_that_somebody_chained_on_are_named(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 1, PLAN)
    head = (log_file(tmp_path).parent / "head.json").read_bytes()
    with opened(tmp_path) as log:
        for place in range(2):
            log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + place * MINUTE))
    (log_file(tmp_path).parent / "head.json").write_bytes(head)
    (record,) = read_rollouts(tmp_path)
    assert "2 entries were added behind the last one that was written, 1" in record.faults[0]
    (log_file(tmp_path).parent / "head.json").unlink()
    (record,) = read_rollouts(tmp_path)
    assert "the file that names its last line was removed" in record.faults[0]


@pytest.mark.parametrize("edit", [_edit_verdict, _edit_last, _cut_end, list.clear])
def test_a_log_that_is_changed_while_it_is_open_takes_nothing_more(
    tmp_path: Path, edit: Callable[[list[bytes]], None]
) -> None:
    keep_verdicts(tmp_path, 4, PLAN)
    with opened(tmp_path) as log:
        log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + 8 * MINUTE))
        change(tmp_path, edit)
        left = log_file(tmp_path).read_bytes()
        with pytest.raises(StoreError, match="cannot be trusted"):
            log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + 9 * MINUTE))
        log_file(tmp_path).unlink()
        with pytest.raises(StoreError, match="its end is missing"):
            log.move("half", AT_UNIX_NS + 9 * MINUTE)
        assert not log_file(tmp_path).exists()
        assert left != b"" or edit is list.clear


def test_another_plan_beside_the_log_is_named(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 1, PLAN)
    (log_file(tmp_path).parent / "plan.toml").write_text("# another plan\n")
    (record,) = read_rollouts(tmp_path)
    assert "the plan beside the log was edited" in record.faults[0]


def test_an_edited_plan_only_holds_and_is_no_part_of_the_history(tmp_path: Path) -> None:
    keep_verdicts(tmp_path, 2, PLAN)
    other = edited(PLAN)
    with RolloutLog(tmp_path, other, "# edited\n", AT_UNIX_NS) as log:
        before = log.history
        found = verdict_of(other, log.history, turns=4000, at_unix_ns=AT_UNIX_NS + 5 * MINUTE)
        log.append(other, found)
        assert (found.verdict, log.history) == ("hold", before)
        assert found.reasons[0] == ("the plan was edited after 2 looks: restore it, or begin a rollout of another name")
    (record,) = read_rollouts(tmp_path)
    assert (record.faults, record.plan_text, record.entries[-1].fingerprint) == ((), PLAN_TEXT, other.fingerprint)
    with opened(tmp_path) as log:
        assert log.history == before


def test_a_second_writer_gets_one_sentence(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError) as caught:
        opened(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/rollouts/streaming: another process evaluates the rollout streaming; ask that one, or end it"
    )
    entry = append_verdict(tmp_path, PLAN, PLAN_TEXT, verdict_of(PLAN))
    assert entry.sequence == 1


@pytest.mark.parametrize("torn", [b'{"sequence":4,"at_un', b"\0" * 512, b"x"])
def test_a_line_that_was_not_written_to_its_end_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    keep_verdicts(tmp_path, 3, PLAN)
    whole = log_file(tmp_path).read_bytes()
    log_file(tmp_path).write_bytes(whole + torn)
    (record,) = read_rollouts(tmp_path)
    assert (len(record.entries), record.faults) == (4, ())
    with opened(tmp_path):
        assert log_file(tmp_path).read_bytes() == whole


def test_a_full_disk_keeps_nothing_and_the_next_verdict_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_verdicts(tmp_path, 1, PLAN)
    with opened(tmp_path) as log:
        before, history = log_file(tmp_path).read_bytes(), log.history
        for step in ("fsync", "head"):
            with monkeypatch.context() as patched:
                _refuse(patched, step)
                with pytest.raises(StoreError, match="verdicts cannot be kept there \\(No space left on device\\)"):
                    log.append(PLAN, verdict_of(PLAN, history, at_unix_ns=AT_UNIX_NS + MINUTE))
            assert (log_file(tmp_path).read_bytes(), log.history) == (before, history)
            assert read_rollouts(tmp_path)[0].faults == ()
        log.append(PLAN, verdict_of(PLAN, history, at_unix_ns=AT_UNIX_NS + MINUTE))
    (record,) = read_rollouts(tmp_path)
    assert (len(record.entries), record.faults) == (3, ())


def _refuse(patched: pytest.MonkeyPatch, step: str) -> None:
    """Refuse the first fsync of a line, after which the line may be cut off, or the writing of the head."""
    real, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    def write_durably(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "fsync":
        patched.setattr(os, "fsync", fsync)
    else:
        patched.setattr(rollout_log, "write_durably", write_durably)


def test_a_folder_that_cannot_be_read_is_a_fault_and_not_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_rollouts(tmp_path / "nothing") == ()
    (tmp_path / "rollouts" / "begun").mkdir(parents=True)
    assert read_rollouts(tmp_path) == ()

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (record,) = read_rollouts(tmp_path)
    assert "cannot be read (Permission denied)" in record.faults[0]


def test_of_many_entries_every_change_is_kept() -> None:
    entries = [
        RolloutEntry(place, place, "f", "a" if place < 777 else "b", None, {"verdict": "hold"}) for place in range(5000)
    ]
    entries[333] = RolloutEntry(333, 333, "f", "a", None, {"verdict": "promote"})
    found = [each.sequence for each in thinned(entries, 100)]
    assert {0, 333, 334, 777, 4999} <= set(found)
    assert 90 <= len(found) <= 110
    assert found == sorted(found)
    assert thinned(entries[:100], 100) == tuple(entries[:100])


# What changes the disk. Before the process dies in the first of these, half of what it wrote is cut off.
STEPS: tuple[tuple[Any, str], ...] = ((os, "fsync"), (os, "mkdir"), (Path, "replace"))


def _die_at(number: int) -> None:
    taken = [0]

    def wrap(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            taken[0] += 1
            if taken[0] == number:
                if name == "fsync":
                    with contextlib.suppress(OSError):  # a folder
                        os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size * 3 // 4)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **named)

        return step

    for owner, name in STEPS:
        setattr(owner, name, wrap(getattr(owner, name), name))


def _killed_life(store: Path, number: int) -> tuple[int, bool]:
    """A life that keeps verdicts and dies at a step: how many counted, and whether it came to its end."""
    verdict_of(PLAN)  # made before, so that the life is a short one
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _die_at(number)
            with opened(store) as log:
                for place in range(3):
                    log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + place * MINUTE))
                    os.write(writing, b"x")
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        counted = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return counted, status == 0


@pytest.mark.slow
def test_killed_at_every_step_of_a_life(tmp_path: Path) -> None:
    steps = 0
    for number in range(1, 100):
        store = tmp_path / str(number)
        counted, ended = _killed_life(store, number)
        found = read_rollouts(store)
        kept = len(found[0].verdicts) if found else 0
        assert all(record.faults == () for record in found), number
        assert counted <= kept <= counted + 1, number
        with opened(store) as log:
            assert len(log.history.looks) in (counted, counted + 1)
            log.append(PLAN, verdict_of(PLAN, log.history, at_unix_ns=AT_UNIX_NS + 9 * MINUTE))
        (record,) = read_rollouts(store)
        assert record.faults == ()
        steps = number
        if ended:
            break
    assert steps > 15
