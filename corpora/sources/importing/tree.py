"""Access to the files of a source. Names that lead out of it by dots, links or absolute paths are rejected."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath

from corpora.manifest.errors import CorpusError
from corpora.sources.archives import MAX_FILES

AUDIO_SUFFIXES = frozenset(
    (
        *(".wav", ".wave", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".mp4", ".aac", ".webm", ".mka", ".wma"),
        *(".aif", ".aiff", ".aifc", ".au", ".caf", ".amr", ".w64", ".rf64", ".g722"),
        *(".raw", ".pcm", ".sw", ".ulaw", ".alaw", ".gsm", ".sph", ".nist"),
    )
)
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A source folder and, if one was given, a file in it. `used` are the files that have been found by name."""

    root: Path
    file: Path | None = None
    used: set[Path] = field(default_factory=set[Path], compare=False)

    def shown(self, path: Path) -> str:
        """A file's path relative to the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def find(self, name: str, *below: str) -> Path:
        """Find the regular file with a name relative to a folder of the source (by default its root).

        Raises CorpusError, in a sentence that begins with the name, if the file is missing or outside the source.
        """
        if not name.strip() or "\x00" in name or len(name) > 4_096:
            raise CorpusError(f"{name[:100]!r}: is not a file name; correct it.")
        base = self.root.resolve()
        path = Path(os.path.normpath(self.root.joinpath(*below, *PurePosixPath(name.replace("\\", "/")).parts)))
        try:
            real = path.resolve()
            if not path.is_relative_to(self.root):
                # An absolute path may name the same folder by a link that leads there.
                path = real
            if not real.is_relative_to(base):
                raise CorpusError(
                    f"{name}: leads out of {self.root.name}; keep all files to import inside that folder."
                )
            if not stat.S_ISREG(real.stat().st_mode):
                raise CorpusError(f"{name}: is not a regular file; replace it with the file itself.")
        except FileNotFoundError as error:
            raise CorpusError(f"{name}: is missing; restore it or remove its line.") from error
        except (OSError, RuntimeError) as error:
            raise CorpusError(f"{name}: cannot be accessed ({error}); check the path.") from error
        finally:
            self.used.add(path)
        return path

    def walk(self) -> Iterator[Path]:
        """Yield every file below the root, sorted by name, without hidden files; links are not followed.

        Raises CorpusError if there are more than MAX_FILES files.
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
                        raise CorpusError(f"{self.root}: contains more than {MAX_FILES} files; import a part of it.")
                    yield here / name


def printable(name: str) -> str:
    """Make a name printable: bytes that are not UTF-8 are written as in `\\xe9`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_audio(path: PurePath) -> bool:
    """Return whether a file has the suffix of an audio file."""
    return path.suffix.lower() in AUDIO_SUFFIXES


def has_suffix(path: PurePath, *suffixes: str) -> bool:
    """Return whether a file has one of the suffixes, in small or capital letters."""
    return path.name.lower().endswith(suffixes)


def same_name(path: Path) -> Path:
    """The file of a name; where there is none, the one in the same folder that differs in letter case alone."""
    if path.is_symlink() or path.exists():
        return path
    with suppress(OSError):
        return next((other for other in sorted(path.parent.iterdir()) if other.name.lower() == path.name.lower()), path)
    return path


def file_with_suffix(path: Path, suffix: str) -> Path:
    """The file of the same name with another suffix, which may be in capital letters, as that of the file may be."""
    stem = path.name.removesuffix(path.suffix)
    names = [path.with_name(f"{stem}{end}") for end in (suffix, suffix.upper(), suffix.title())]
    return next((name for name in names if name.is_symlink() or name.is_file()), names[0])


def open_tree(source: Path) -> SourceTree:
    """Open a folder, or the folder of a file; a folder that contains only another folder is skipped.

    Raises CorpusError if the source does not exist or cannot be read.
    """
    try:
        mode = source.stat().st_mode
        if stat.S_ISREG(mode):
            folder = source.parent.resolve()
            return SourceTree(folder, folder / source.name)
        if not stat.S_ISDIR(mode):
            raise CorpusError(f"{source}: is neither a folder nor a regular file; give one.")
        # Names in it are compared with its own, which must have neither `..` nor links in it.
        root = source.resolve()
        for _ in range(_MAX_DEPTH):
            inside = [entry for entry in root.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
            if len(inside) != 1 or inside[0].is_symlink() or not inside[0].is_dir():
                break
            root = inside[0]
    except OSError as error:
        raise CorpusError(f"{source}: cannot be read ({error.strerror}); check its path and permissions.") from error
    return SourceTree(root)
