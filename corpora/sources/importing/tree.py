"""The files of a source, and no others: names that lead out of it, by dots, links or absolute paths, are refused."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath

from corpora.manifest.errors import CorpusError

AUDIO_SUFFIXES = frozenset(
    (
        *(".wav", ".wave", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".mp4", ".aac", ".webm", ".mka", ".wma"),
        *(".aif", ".aiff", ".aifc", ".au", ".caf", ".amr", ".w64", ".rf64", ".g722"),
        *(".raw", ".pcm", ".sw", ".ulaw", ".alaw", ".gsm", ".sph", ".nist"),
    )
)
MAX_FILES = 500_000
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A folder, and the one file in it that was named, if one was. `used` are the files that were asked for."""

    root: Path
    file: Path | None = None
    used: set[Path] = field(default_factory=set[Path], compare=False)

    def shown(self, path: Path) -> str:
        """A file's name from the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def find(self, name: str, *below: str) -> Path:
        """The regular file that a manifest names, relative to a folder of the source (its root, if none is given).

        Raises CorpusError, in a sentence that begins with the name, when there is none or when it lies elsewhere.
        """
        if not name.strip() or "\x00" in name or len(name) > 4_096:
            raise CorpusError(f"{name[:100]!r}: is no file's name; correct it.")
        base = self.root.resolve()
        path = Path(os.path.normpath(self.root.joinpath(*below, *_plain(name))))
        self.used.add(path)
        try:
            real = path.resolve()
            if not real.is_relative_to(base) or not path.is_relative_to(self.root):
                raise CorpusError(f"{name}: leads out of {self.root.name}; keep what is imported inside one folder.")
            if not stat.S_ISREG(real.stat().st_mode):
                raise CorpusError(f"{name}: is not a regular file; put the recording there.")
        except FileNotFoundError as error:
            raise CorpusError(f"{name}: is missing; put it there or take its line out.") from error
        except (OSError, RuntimeError) as error:
            raise CorpusError(f"{name}: cannot be reached ({error}); check the path.") from error
        return path

    def walk(self) -> Iterator[Path]:
        """Every file below the root, in order of names, hidden ones left out; links are named but not followed.

        Raises CorpusError when there are more than can be meant.
        """
        count = 0
        for folder, folders, files in os.walk(self.root, followlinks=False):
            here = Path(folder)
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
            if len(here.relative_to(self.root).parts) >= _MAX_DEPTH:
                folders.clear()
            for name in sorted(files):
                if not name.startswith("."):
                    count += 1
                    if count > MAX_FILES:
                        raise CorpusError(f"{self.root}: holds more than {MAX_FILES} files; import a part of it.")
                    yield here / name


def _plain(name: str) -> tuple[str, ...]:
    return PurePosixPath(name.replace("\\", "/")).parts


def printable(name: str) -> str:
    """A name as it can be printed and kept: bytes of it that are no UTF-8 are written as `\\xe9`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_audio(path: PurePath) -> bool:
    """Whether a file's name says that it is audio."""
    return path.suffix.lower() in AUDIO_SUFFIXES


def open_tree(source: Path) -> SourceTree:
    """The tree of a folder, or of the folder that holds a file; a folder that only wraps another one is unwrapped.

    Raises CorpusError when the source is not there.
    """
    try:
        mode = source.stat().st_mode
        if stat.S_ISREG(mode):
            return SourceTree(source.absolute().parent, source.absolute())
        if not stat.S_ISDIR(mode):
            raise CorpusError(f"{source}: is neither a folder nor a regular file; name one.")
        root = source.absolute()
        for _ in range(_MAX_DEPTH):
            inside = [entry for entry in root.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
            if len(inside) != 1 or inside[0].is_symlink() or not inside[0].is_dir():
                break
            root = inside[0]
    except OSError as error:
        raise CorpusError(f"{source}: cannot be read ({error.strerror}); check its name and permissions.") from error
    return SourceTree(root)
