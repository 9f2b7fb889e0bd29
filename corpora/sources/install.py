"""Fetching recorded human speech from the system's own package archive, and turning it into a corpus.

Packages are downloaded, not installed: no root is needed and nothing is unpacked to disk. A package file that is
already there does as well.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import installed_root
from corpora.manifest.manifest import MANIFEST_NAME
from corpora.sources.archives import read_members
from corpora.sources.authoring import Draft, write_corpus
from corpora.sources.recorded import RECIPES, Recipe

_DOWNLOAD_TIMEOUT_S = 120
_MIN_SPEECH_S = 0.2


def install(name: str, files: Sequence[Path] = (), force: bool = False) -> Path:
    """Install a known corpus of recorded speech; returns its folder.

    `files` are packages that are already there; without any, they are downloaded with apt-get. What is installed
    already is left alone unless `force` is set. Raises CorpusError in one sentence when it cannot be done.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        known = "; ".join(f"{recipe.name} ({recipe.about})" for recipe in RECIPES.values())
        raise CorpusError(f"The corpus {name!r} cannot be installed; known are {known}.")
    folder = installed_root() / name
    if (folder / MANIFEST_NAME).is_file() and not force:
        return folder
    if files:
        members = _members(recipe, files)
    else:
        with tempfile.TemporaryDirectory(prefix="voiceprobe-packages-") as scratch:
            members = _members(recipe, _download(recipe, Path(scratch)))
    drafts = [draft for draft in recipe.drafts(members) if _holds_speech(draft)]
    write_corpus(folder, name, "recorded human", drafts)
    return folder


def _members(recipe: Recipe, files: Sequence[Path]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for file in files:
        members |= read_members(file, recipe.wanted)
    return members


def _holds_speech(draft: Draft) -> bool:
    """Some prompts are tones, or a syllable too short to time anything by."""
    try:
        bounds = find_speech_bounds(draft.pcm / 32_768.0, draft.rate_hz)
    except CorpusError:
        return False
    return bounds.end_sample - bounds.start_sample >= _MIN_SPEECH_S * draft.rate_hz


def _download(recipe: Recipe, scratch: Path) -> list[Path]:
    packages = " and ".join(recipe.packages)
    given = " ".join(f"--from {package}.deb" for package in recipe.packages)
    if shutil.which("apt-get") is None:
        raise CorpusError(
            f"{recipe.name} comes from the Debian packages {packages}, and there is no apt-get here; "
            f"fetch them elsewhere and run `voiceprobe corpus install {recipe.name} {given}`."
        )
    if not _apt(["download", *recipe.packages], scratch) and os.geteuid() == 0:
        # A fresh machine knows no packages yet, and only root may tell it.
        _apt(["update"], scratch)
        _apt(["download", *recipe.packages], scratch)
    files = sorted(scratch.glob("*.deb"))
    if len(files) != len(recipe.packages):
        raise CorpusError(
            f"The Debian packages {packages} could not be downloaded; go online (and run apt-get update), "
            f"or fetch them elsewhere and run `voiceprobe corpus install {recipe.name} {given}`."
        )
    return files


def _apt(words: Sequence[str], scratch: Path) -> bool:
    """Run apt-get in the scratch folder; whether it ended well."""
    command = ["apt-get", "--quiet", "--option", "Acquire::Retries=1", *words]
    try:
        ended = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return ended.returncode == 0
