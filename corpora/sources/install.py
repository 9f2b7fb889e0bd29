"""Installation of corpora of recorded human speech from Debian packages.

Packages are downloaded, not installed: this does not require root, and nothing is unpacked to disk. Local package files
can be used instead.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from corpora.annotation.bounds import find_speech_bounds
from corpora.manifest.edges import set_edges
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import installed_root
from corpora.manifest.locking import corpus_lock
from corpora.manifest.manifest import DEFAULT_EDGES, MANIFEST_NAME, Edges
from corpora.sources.archives import read_members
from corpora.sources.authoring import Draft, write_corpus
from corpora.sources.recorded import RECIPES, Members, Recipe

_DOWNLOAD_TIMEOUT_S: Final = 120
_MIN_SPEECH_S: Final = 0.2

Progress = Callable[[int, int], None]  # done, total


def install(
    name: str,
    files: Sequence[Path] = (),
    force: bool = False,
    edges: Edges | None = None,
    *,
    progress: Progress = lambda _done, _total: None,
) -> Path:
    """Install a known corpus of recorded speech; returns its folder.

    `files` are local packages; without them, the packages are downloaded with apt-get. An installed corpus is kept
    unless `force` is set; only its manifest is changed if it has other edges. Without `edges`, an installed corpus
    keeps its own. `progress` is called for each clip. Raises CorpusError if the corpus cannot be installed.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        known = "; ".join(f"{recipe.name} ({recipe.about})" for recipe in RECIPES.values())
        raise CorpusError(f"The corpus {name!r} is unknown; use one of {known}.")
    folder = installed_root() / name
    with _only_installation(installed_root()):
        if (folder / MANIFEST_NAME).is_file() and not force:
            if edges is not None:
                set_edges(folder, edges)
            return folder
        if files:
            members = _members(recipe, files)
        else:
            with tempfile.TemporaryDirectory(prefix="voiceprobe-packages-") as scratch:
                members = _members(recipe, _download(recipe, Path(scratch)))
        drafts = _drafts(recipe, members, progress)
        write_corpus(folder, name, "recorded human", drafts, edges=edges or DEFAULT_EDGES)
        return folder


@contextmanager
def _only_installation(root: Path) -> Generator[None]:
    """Wait until no other process installs a corpus: two first demos at once download and write it once."""
    with ExitStack() as stack:
        try:
            root.mkdir(parents=True, exist_ok=True)
            stack.enter_context(corpus_lock(root))
        except OSError as error:
            raise CorpusError(
                f"{root}: corpora cannot be installed there ({error.strerror}); check its permissions."
            ) from error
        yield


def _drafts(recipe: Recipe, members: Members, progress: Progress) -> Generator[Draft]:
    drafts = recipe.drafts(members)
    for done, draft in enumerate(drafts, 1):
        if _has_enough_speech(draft):
            yield draft
        progress(done, len(drafts))


def _members(recipe: Recipe, files: Sequence[Path]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for file in files:
        members |= read_members(file, recipe.wanted)
    return members


def _has_enough_speech(draft: Draft) -> bool:
    """Return whether a draft contains enough speech: some prompts are tones, or syllables too short to time."""
    try:
        bounds = find_speech_bounds(draft.pcm / 32_768.0, draft.rate_hz)
    except CorpusError:
        return False
    return bounds.end_sample - bounds.start_sample >= _MIN_SPEECH_S * draft.rate_hz


def _download(recipe: Recipe, scratch: Path) -> list[Path]:
    elsewhere = (
        f"download {'it' if len(recipe.packages) == 1 else 'them'} elsewhere and run `voiceprobe corpus install "
        f"{recipe.name} {' '.join(f'--from {package}.deb' for package in recipe.packages)}`."
    )
    if shutil.which("apt-get") is None:
        raise CorpusError(
            f"{recipe.name} comes from {_named(recipe.packages)}, but apt-get is not installed; {elsewhere}"
        )
    reason = _apt(["download", *recipe.packages], scratch)
    if reason is not None:
        # A new machine has no package lists yet, and only root may update those of the system: own lists serve all.
        (scratch / "lists" / "partial").mkdir(parents=True)
        own = [f"--option=Dir::State::Lists={scratch / 'lists'}", f"--option=Dir::Cache={scratch / 'cache'}"]
        _apt([*own, "update"], scratch)
        if _apt([*own, "download", *recipe.packages], scratch) is None:
            reason = None
    files = {package: sorted(scratch.glob(f"{package}_*.deb")) for package in recipe.packages}
    missing = [package for package, matches in files.items() if len(matches) != 1]
    if missing:
        raise CorpusError(
            f"{recipe.name}: {_named(missing)} could not be downloaded ({reason or 'apt-get wrote no file'}); "
            f"go online, or {elsewhere}"
        )
    return [matches[0] for matches in files.values()]


def _named(packages: Sequence[str]) -> str:
    *others, last = packages
    return f"the Debian packages {', '.join(others)} and {last}" if others else f"the Debian package {last}"


def _apt(arguments: Sequence[str], scratch: Path) -> str | None:
    """Run apt-get in the scratch folder; returns None if it succeeded, otherwise the reason."""
    options = ("--quiet", "--option=Acquire::Retries=1", "--option=Acquire::http::Timeout=20")
    try:
        completed = subprocess.run(
            ["apt-get", *options, *arguments],
            cwd=scratch,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get did not finish within {_DOWNLOAD_TIMEOUT_S} s"
    except OSError as error:
        return f"apt-get cannot be run: {error.strerror}"
    if completed.returncode == 0:
        return None
    errors = [
        " ".join(line.removeprefix("E:").split()) for line in completed.stderr.splitlines() if line.startswith("E:")
    ]
    return f"apt-get: {errors[0]}" if errors else f"apt-get exited with code {completed.returncode}"
