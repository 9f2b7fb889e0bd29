"""A cache on disk of what was rendered, each entry under a name made of everything that decides its bytes.

The cache is a folder of entries. An entry holds what was made with one profile, rate and seed (and, for frames, one
wire) as archives; its name is a hash of those, of the renderer's own source and of the libraries whose bytes may
change.
Nothing in it ever changes its meaning, so that any number of processes may read and write: two that make the same thing
at once waste work, not correctness, and a lock keeps them from it. Entries that were not used for longest go first
when the cache outgrows its limit.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import platformdirs

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import Corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache_archive import SUFFIX, Archive, Chunk, PackWriter, open_pack, sweep
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import babble_pool

try:
    import fcntl
except ImportError:  # Windows: two processes may then do the same work
    fcntl = None

CACHE_VARIABLE: Final = "VOICEPROBE_CACHE"
HOME_VARIABLE: Final = "VOICEPROBE_HOME"
LIMIT_VARIABLE: Final = "VOICEPROBE_CACHE_GB"
DEFAULT_LIMIT_GB: Final = 10.0
_LOCK_NAME: Final = "lock"
_LOOK_EVERY_S: Final = 0.05
_SOURCES: Final = (
    "rendering/render.py",
    "rendering/noise.py",
    "annotation/exact_end.py",
    "annotation/levels.py",
    "manifest/clips.py",
    "rendering/profiles",
)


def cache_root() -> Path:
    """Return where the cache is: `$VOICEPROBE_CACHE`, `$VOICEPROBE_HOME/cache`, or the user's cache folder."""
    own, home = os.environ.get(CACHE_VARIABLE), os.environ.get(HOME_VARIABLE)
    if own:
        return Path(own).expanduser()
    return Path(home).expanduser() / "cache" if home else Path(platformdirs.user_cache_dir("voiceprobe", False))


def limit_bytes() -> int:
    """Return how large the cache may grow. Raises CorpusError for a limit that is not a number."""
    text = os.environ.get(LIMIT_VARIABLE) or f"{DEFAULT_LIMIT_GB}"
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = -1.0
    if not 0.0 <= gigabytes < 1e6:
        raise CorpusError(f"{LIMIT_VARIABLE}={text!r} is no size; give gigabytes, as in {DEFAULT_LIMIT_GB:g}.")
    return round(gigabytes * 1e9)


@lru_cache(maxsize=1)
def renderer_version() -> str:
    """A hash of the source that renders and of the versions of what it calls: other code, other renderings."""
    whole = hashlib.sha256()
    here = Path(__file__).parents[1]
    for name in _SOURCES:
        for file in sorted((here / name).glob("*.py")) if (here / name).is_dir() else [here / name]:
            whole.update(file.read_bytes())
    for library in ("numpy", "scipy", "soxr", "soundfile", "av"):
        whole.update(f"{library} {version(library)}\n".encode())
    return whole.hexdigest()


def cache_entry_name(corpus: Corpus, profile: Profile, rate_hz: int, seed: int, wire: str = "") -> str:
    """The name of the cache entry for what is made with a profile, rate and seed, and for frames with a wire."""
    pool = ""
    if profile.noise == "babble":
        pool = "\n".join(entry_key(utterance) for utterance in babble_pool(corpus))
    parts = (renderer_version(), corpus.name, corpus.edges, profile.digest, rate_hz, seed, pool, wire)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def entry_key(utterance: Utterance, variant: int = 0) -> str:
    """The name of a variant of an utterance in its cache entry: its clip's bytes, what the manifest says of their
    bounds, and the number of the variant."""
    bounds = f"{utterance.speech_start_sample}-{utterance.speech_end_sample}"
    return f"{utterance.id}/{utterance.sha256}/{bounds}/{utterance.sample_rate_hz}/{variant}"


@dataclass(frozen=True, slots=True, eq=False)
class CacheEntry:
    """One entry of the cache, as it was when it was opened or last looked at."""

    folder: Path
    _copies: dict[str, list[tuple[Archive, Chunk]]] = field(default_factory=dict[str, list[tuple[Archive, Chunk]]])
    _known: set[Path] = field(default_factory=set[Path])

    def refresh(self) -> None:
        """Read the archives added since; unusable ones are removed."""
        for file in sorted(set(self.folder.glob(f"*{SUFFIX}")) - self._known):
            archive = open_pack(file)
            if archive is None:
                file.unlink(missing_ok=True)
                continue
            self._known.add(file)
            for key, chunk in archive.chunks.items():
                self._copies.setdefault(key, []).append((archive, chunk))
        with contextlib.suppress(OSError):
            os.utime(self.folder)

    def get(self, key: str) -> tuple[Archive, Chunk] | None:
        """Return where an entry is; None if it is not in the cache."""
        copies = self._copies.get(key)
        return copies[0] if copies else None

    def check(self, keys: Iterable[str], progress: Callable[[], None] = lambda: None) -> None:
        """Read entries and drop what is not as it was written. Brings them into memory, too."""
        for key in keys:
            copies = self._copies.get(key, [])
            while copies and not copies[0][0].is_intact(copies[0][1]):
                del copies[0]
            progress()

    def writer(self) -> PackWriter:
        """A new archive of this entry."""
        return PackWriter(self.folder)

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
        """Hold the entry's lock, so that one process makes what is missing and the others find it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK_NAME).open("ab") as lock:
            while fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waiting()
                    time.sleep(_LOOK_EVERY_S)  # closing the file lets go of the lock
            yield


def open_cache_entry(name: str, root: Path | None = None) -> CacheEntry:
    """The cache entry of a name; it need not exist yet."""
    cache_entry = CacheEntry((root or cache_root()) / name[:2] / name)
    sweep(cache_entry.folder)
    cache_entry.refresh()
    return cache_entry


def cache_entries(root: Path | None = None) -> list[tuple[Path, int, float]]:
    """Every entry with its size in bytes and when it was last used (s since the epoch), the least recent first."""
    entries: list[tuple[Path, int, float]] = []
    for folder in (root or cache_root()).glob("??/*"):
        with contextlib.suppress(OSError):
            sizes = [file.stat().st_size for file in folder.iterdir()]
            entries.append((folder, sum(sizes), folder.stat().st_mtime))
    return sorted(entries, key=lambda entry: entry[2])


def trim(limit: int, root: Path | None = None, keep: Iterable[Path] = ()) -> int:
    """Remove the entries not used for longest until the rest fits; returns the bytes freed. `keep` stays."""
    entries = cache_entries(root)
    total, freed, kept = sum(size for _, size, _ in entries), 0, set(keep)
    for folder, size, _ in entries:
        if total - freed <= limit:
            break
        if folder not in kept:
            # Whoever has it mapped keeps the pages until they let go.
            shutil.rmtree(folder, ignore_errors=True)
            freed += size
    return freed
