"""The cache: the same as rendering again, whole or not at all, shared, mended when damaged, and bounded."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus, open_corpus
from corpora.rendering import cache
from corpora.rendering.cache import (
    cache_entries,
    cache_entry_name,
    cache_root,
    entry_key,
    limit_bytes,
    open_cache_entry,
    trim,
)
from corpora.rendering.cache_archive import SUFFIX, PackWriter, open_pack, sweep
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import render
from corpora.rendering.renderings import Renderings
from tests.unit.corpora.conftest import burst, encoded


@pytest.fixture
def made(workshop: Any) -> Corpus:
    for seed, name in enumerate("abc"):
        workshop.add(name, seconds=0.3, seed=seed)
    return open_corpus(workshop.save())


def put_all(renderings: Renderings) -> None:
    with renderings.cache_entry.writer() as archive:
        for utterance in renderings.corpus.utterances:
            renderings.make(utterance, archive)
    renderings.cache_entry.refresh()


@pytest.fixture
def stored(made: Corpus, tmp_path: Path) -> Renderings:
    renderings = Renderings.open(made, Profile("white", 10.0, channel=("telephone",)), 16_000, 7, tmp_path / "cache")
    put_all(renderings)
    return renderings


def archives(renderings: Renderings) -> list[Path]:
    return sorted(renderings.cache_entry.folder.glob(f"*{SUFFIX}"))


def test_cached_rendering_equals_a_fresh_one(made: Corpus, stored: Renderings, tmp_path: Path) -> None:
    again = Renderings.open(made, stored.profile, 16_000, 7, tmp_path / "cache")
    for utterance in made.utterances:
        kept, fresh = again.get(utterance), render(made, utterance, stored.profile, 16_000, 7)
        assert kept is not None
        assert np.array_equal(kept.pcm, fresh.pcm)
        assert kept.obtained == fresh.obtained
        assert (kept.speech_start_sample, kept.speech_end_sample) == (
            fresh.speech_start_sample,
            fresh.speech_end_sample,
        )
        assert (kept.utterance, kept.profile, kept.rate_hz) == (utterance, stored.profile, 16_000)
        assert not kept.pcm.flags.owndata  # mapped, not copied


def test_other_profile_rate_seed_wire_or_corpus_is_other_entry(made: Corpus) -> None:
    names = {
        cache_entry_name(made, Profile(), 16_000, 1),
        cache_entry_name(made, Profile(), 24_000, 1),
        cache_entry_name(made, Profile(), 16_000, 2),
        cache_entry_name(made, Profile("white", 5.0), 16_000, 1),
        cache_entry_name(made, Profile(), 16_000, 1, "wire"),
    }
    assert len(names) == 5
    assert cache_entry_name(made, Profile(), 16_000, 1) in names


def test_other_source_is_another_entry(made: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_entry_name(made, Profile(), 16_000, 1)
    monkeypatch.setattr(cache, "renderer_version", lambda: "another")
    assert cache_entry_name(made, Profile(), 16_000, 1) != before


def test_babble_is_made_of_others_and_they_are_part_of_its_name(workshop: Any) -> None:
    for seed, name in enumerate("abc"):
        workshop.add(name, seconds=0.3, seed=seed)
    babble = Profile("babble", 10.0)
    before = open_corpus(workshop.save())
    workshop.add("d", seconds=0.3, seed=9)
    after = open_corpus(workshop.save())
    assert cache_entry_name(before, babble, 16_000, 1) != cache_entry_name(after, babble, 16_000, 1)
    assert cache_entry_name(before, Profile(), 16_000, 1) == cache_entry_name(after, Profile(), 16_000, 1)


def test_another_clip_under_the_same_name_is_another_entry(workshop: Any) -> None:
    workshop.add("a", seconds=0.3)
    before = open_corpus(workshop.save()).utterances[0]
    workshop.replace("a", encoded(burst(0.3, seed=5)))
    assert entry_key(open_corpus(workshop.save()).utterances[0]) != entry_key(before)


@pytest.mark.parametrize("where", ["footer", "index", "truncated", "emptied"])
def test_damaged_archive_counts_as_absent_and_is_rebuilt(made: Corpus, stored: Renderings, where: str) -> None:
    file = archives(stored)[0]
    content = file.read_bytes()
    damaged = {
        "footer": content[:-3] + b"xxx",
        "index": content[:-100] + bytes(1) + content[-99:],
        "truncated": content[: len(content) // 2],
        "emptied": b"",
    }[where]
    file.unlink()  # a mapped file is not to be changed in place
    file.write_bytes(damaged)
    again = Renderings.open(made, stored.profile, 16_000, 7, stored.cache_entry.folder.parents[1])
    assert not archives(again)
    assert again.get(made.utterances[0]) is None
    put_all(again)
    assert again.get(made.utterances[0]) is not None


def test_damaged_chunk_is_rendered_again_and_others_stay(made: Corpus, stored: Renderings) -> None:
    file, victim = archives(stored)[0], made.utterances[1]
    entry = stored.cache_entry.get(entry_key(victim))
    assert entry is not None
    content = bytearray(file.read_bytes())
    content[entry[1].offset + 100] ^= 1
    file.unlink()
    file.write_bytes(content)
    root = stored.cache_entry.folder.parents[1]
    for _ in range(2):  # the second time, the damaged one is still there next to the good one
        again = Renderings.open(made, stored.profile, 16_000, 7, root)
        again.cache_entry.check(map(entry_key, made.utterances))
        put_all(again)
        kept = again.get(victim)
        assert kept is not None
        assert np.array_equal(kept.pcm, render(made, victim, stored.profile, 16_000, 7).pcm)
    assert len(archives(again)) == 2
    sizes = sorted(len(archive.chunks) for file in archives(again) if (archive := open_pack(file)) is not None)
    assert sizes == [1, 3]


def test_a_pack_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def break_off() -> None:
        with PackWriter(tmp_path) as archive:
            archive.add("one", None, b"1234")
            assert not list(tmp_path.glob(f"*{SUFFIX}"))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        break_off()
    assert not list(tmp_path.iterdir())
    with PackWriter(tmp_path):
        pass
    assert not list(tmp_path.iterdir()), "an empty archive is not written"


def test_partial_files_of_dead_processes_only_are_swept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getpid()):
        (tmp_path / f".{process}-abc.part").touch()
    sweep(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f".{os.getpid()}-abc.part"]


def _fill(arguments: tuple[Path, Path, int]) -> int:
    folder, root, _ = arguments
    corpus = open_corpus(folder)
    renderings = Renderings.open(corpus, Profile("pink", 5.0), 16_000, 1, root)
    with renderings.cache_entry.locked():
        renderings.cache_entry.refresh()
        there = sum(renderings.get(utterance) is not None for utterance in corpus.utterances)
        put_all(renderings)
    return there


@pytest.mark.slow
def test_several_processes_make_everything_once(made: Corpus, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        there = pool.map(_fill, [(made.path, tmp_path / "cache", number) for number in range(3)])
    assert sorted(there) == [0, 3, 3]
    renderings = Renderings.open(made, Profile("pink", 5.0), 16_000, 1, tmp_path / "cache")
    assert len(archives(renderings)) == 1


def test_least_recently_used_entry_is_evicted_unless_in_use(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        with open_cache_entry(name, tmp_path).writer() as archive:
            archive.add("x", None, bytes(1000))
        os.utime(open_cache_entry(name, tmp_path).folder, (1_000_000 - age, 1_000_000 - age))
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        os.utime(tmp_path / name[:2] / name, (1_000_000 - age, 1_000_000 - age))
    sizes = {folder.name: size for folder, size, _ in cache_entries(tmp_path)}
    assert list(sizes) == ["oldest", "old", "middle", "new"]
    freed = trim(2 * sizes["new"] + 1, tmp_path, keep=[tmp_path / "ol" / "oldest"])
    assert freed == sizes["old"] + sizes["middle"]
    assert [folder.name for folder, _, _ in cache_entries(tmp_path)] == ["oldest", "new"]
    assert trim(0, tmp_path) > 0
    assert not cache_entries(tmp_path)


def test_cache_folder_and_size_follow_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "here"))
    assert cache_root() == tmp_path / "here"
    monkeypatch.delenv("VOICEPROBE_CACHE")
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "cache"
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "1.5")
    assert limit_bytes() == 1_500_000_000
    monkeypatch.setenv("VOICEPROBE_CACHE_GB", "much")
    with pytest.raises(CorpusError, match="VOICEPROBE_CACHE_GB='much' is no size"):
        limit_bytes()
