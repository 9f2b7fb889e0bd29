"""A store has one key for its pseudonyms, which nobody but its owner may read, and a list of names."""

import stat
from pathlib import Path

import pytest

from telemetry.model.errors import ConfigError, StoreError
from telemetry.sidecar.privacy import KEY_NAME, pseudonym_key, redactor_of_store


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    key = pseudonym_key(store)
    assert len(key) == 32
    assert pseudonym_key(store) == key
    assert pseudonym_key(tmp_path / "other") != key
    assert stat.S_IMODE((store / KEY_NAME).stat().st_mode) == 0o600
    assert [path.name for path in store.iterdir()] == [KEY_NAME]


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    pseudonym_key(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o644)
    with pytest.raises(StoreError, match=r"pseudonyms: .* is open to other users \(mode 0644\); close it: chmod 600"):
        pseudonym_key(tmp_path)


def test_a_key_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).touch(0o600)
    with pytest.raises(StoreError, match="has 0 bytes"):
        pseudonym_key(tmp_path)


def test_a_key_that_cannot_be_read_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).mkdir()
    with pytest.raises(StoreError, match="is not a file; give one"):
        pseudonym_key(tmp_path)


def test_names_of_the_file_and_shipped_ones_are_redacted(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("# ours\nOkonkwo\n")
    rules = redactor_of_store(tmp_path, keep_text=True, names=names).rules
    assert rules.text("Daniel Okonkwo # ours") == "[redacted:name] [redacted:name] # ours"
    with pytest.raises(ConfigError, match="the list of names cannot be read"):
        redactor_of_store(tmp_path, names=tmp_path / "missing.txt")
