"""Installation of corpora of recorded human speech from Debian packages.

Packages are downloaded, not installed: this does not require root, and nothing is unpacked to disk. Local package files
can be used instead.
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

    `files` are local packages; without them, the packages are downloaded with apt-get. An installed corpus is kept
    unless `force` is set. Raises CorpusError if the corpus cannot be installed.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        known = "; ".join(f"{recipe.name} ({recipe.about})" for recipe in RECIPES.values())
        raise CorpusError(f"The corpus {name!r} is unknown; use one of {known}.")
    folder = installed_root() / name
    if (folder / MANIFEST_NAME).is_file() and not force:
        return folder
    if files:
        members = _members(recipe, files)
    else:
        with tempfile.TemporaryDirectory(prefix="voiceprobe-packages-") as scratch:
            members = _members(recipe, _download(recipe, Path(scratch)))
    drafts = [draft for draft in recipe.drafts(members) if _has_enough_speech(draft)]
    write_corpus(folder, name, "recorded human", drafts)
    return folder


def _members(recipe: Recipe, files: Sequence[Path]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for file in files:
        members |= read_members(file, recipe.wanted)
    return members


def _has_enough_speech(draft: Draft) -> bool:
    """Whether a draft contains enough speech: some prompts are tones, or syllables too short to time."""
    try:
        bounds = find_speech_bounds(draft.pcm / 32_768.0, draft.rate_hz)
    except CorpusError:
        return False
    return bounds.end_sample - bounds.start_sample >= _MIN_SPEECH_S * draft.rate_hz


def _download(recipe: Recipe, scratch: Path) -> list[Path]:
    packages = " and ".join(recipe.packages)
    options = " ".join(f"--from {package}.deb" for package in recipe.packages)
    if shutil.which("apt-get") is None:
        raise CorpusError(
            f"{recipe.name} comes from the Debian packages {packages}, but apt-get is not installed; "
            f"download them elsewhere and run `voiceprobe corpus install {recipe.name} {options}`."
        )
    if not _apt(["download", *recipe.packages], scratch) and os.geteuid() == 0:
        # A new machine has no package lists yet, and only root can update them.
        _apt(["update"], scratch)
        _apt(["download", *recipe.packages], scratch)
    files = sorted(scratch.glob("*.deb"))
    if len(files) != len(recipe.packages):
        raise CorpusError(
            f"The Debian packages {packages} could not be downloaded; go online (and run apt-get update), "
            f"or download them elsewhere and run `voiceprobe corpus install {recipe.name} {options}`."
        )
    return files


def _apt(arguments: Sequence[str], scratch: Path) -> bool:
    """Run apt-get in the scratch folder; returns whether it succeeded."""
    command = ["apt-get", "--quiet", "--option", "Acquire::Retries=1", *arguments]
    try:
        completed = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return False
    return completed.returncode == 0
