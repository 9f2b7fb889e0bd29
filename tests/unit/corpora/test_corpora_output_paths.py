"""Tests that checking whether a file can be written leaves nothing behind."""

import os
from pathlib import Path

import pytest

from corpora.output_paths import is_device, unwritable, unwritable_folder


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["new.json", "deep/er/new.json", "old.json", "näme 1.json"])
def test_a_writable_path_is_left_unchanged(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.json").write_text("kept")
    before = everything(tmp_path)
    assert unwritable(tmp_path / name) is None
    assert everything(tmp_path) == before
    assert (tmp_path / "old.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("folder", "is a folder; give the name of a file"),
        ("file/x.json", "file is not a folder"),
        ("file/deeper/x.json", "file is not a folder"),
        ("new/" + "x" * 300, "file name too long; choose another path"),
        ("new/" + "y" * 300 + "/x.json", "file name too long; choose another path"),
        ("new/a\0b.json", "null byte; choose another path"),
        ("dangling/x.json", "dangling is not a folder"),
        ("new/a\nb" + "x" * 300, "new/a\\nbxxx"),
    ],
)
def test_an_unwritable_path_is_one_sentence_and_leaves_nothing_behind(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = everything(tmp_path)
    fault = unwritable(Path(f"{tmp_path}/{name}"))
    assert fault is not None
    assert expected in fault
    assert fault.isprintable(), "one line"
    assert everything(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="requires a path that nobody can write to")
def test_a_folder_that_cannot_be_created_is_reported() -> None:
    fault = unwritable(Path("/proc/self/runs/summary.json"))
    assert fault is not None
    assert fault.startswith("/proc/self/runs/summary.json cannot be written: ")


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert unwritable(tmp_path / "pipe") is None
    assert is_device(tmp_path / "pipe")
    assert is_device(Path(os.devnull))
    (tmp_path / "file").touch()
    assert not any(is_device(tmp_path / name) for name in ("", "file", "nowhere"))


def test_a_folder_is_named_as_it_was_given(tmp_path: Path) -> None:
    assert unwritable_folder(tmp_path) is None
    assert unwritable_folder(tmp_path / "new" / "folder") is None
    assert [*tmp_path.iterdir()] == []
    file = tmp_path / "file"
    file.touch()
    assert unwritable_folder(file) == f"{file} cannot be written: {file} is not a folder"
    assert unwritable_folder(file / "in") == f"{file}/in cannot be written: {file} is not a folder"
