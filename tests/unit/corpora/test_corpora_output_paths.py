"""Whether a file can be written is found out without leaving anything behind."""

import os
from pathlib import Path

import pytest

from corpora.output_paths import is_device, unwritable


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["new.json", "deep/er/new.json", "old.json", "näme 1.json"])
def test_a_good_place_is_left_as_it_was(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.json").write_text("kept")
    before = everything(tmp_path)
    assert unwritable(tmp_path / name) is None
    assert everything(tmp_path) == before
    assert (tmp_path / "old.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "is a folder: name a file to write"),
        ("file/x.json", "file is no folder"),
        ("file/deeper/x.json", "file is no folder"),
        ("new/" + "x" * 300, "file name too long; name another place"),
        ("new/" + "y" * 300 + "/x.json", "file name too long; name another place"),
        ("new/a\0b.json", "null byte; name another place"),
        ("dangling/x.json", "dangling is no folder"),
        ("new/a\nb" + "x" * 300, "new/a\\nbxxx"),
    ],
)
def test_a_bad_place_is_one_sentence_and_leaves_nothing(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = everything(tmp_path)
    fault = unwritable(Path(f"{tmp_path}/{name}"))
    assert fault is not None
    assert said in fault
    assert fault.isprintable(), "one line"
    assert everything(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place that nobody can write to")
def test_a_folder_that_nobody_can_make_is_found_out_by_trying() -> None:
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
