"""The edges of a corpus: whether its speech ends where rendering fades it out, or where the recording's speech ends.

They are one word in the header of its manifest. The clips are the same for both, so changing it downloads nothing.
"""

from pathlib import Path
from typing import Final, cast, get_args

import msgspec

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED_ROOT
from corpora.manifest.locking import corpus_lock
from corpora.manifest.manifest import MANIFEST_NAME, Edges, read_manifest, replace_file

EDGES_HELP: Final = "exact: speech ends where rendering fades it out; recorded: where it ends in the recording"


def parse_edges(text: str, label: str = "--edges") -> Edges:
    """Parse the name of edges. Raises CorpusError."""
    if text not in get_args(Edges):
        raise CorpusError(f"{label} {text!r} is unknown; use {' or '.join(get_args(Edges))}.")
    return cast("Edges", text)


def set_edges(folder: Path, edges: Edges) -> bool:
    """Write the edges into the header of a corpus's manifest; returns whether they were others before.

    Every other byte of the manifest stays as it is. Raises ManifestError if the corpus cannot be used, and CorpusError
    if it is a bundled one or its manifest cannot be written.
    """
    read_manifest(folder)  # a folder without a corpus cannot be locked
    file = folder / MANIFEST_NAME
    if folder.resolve().parent == BUNDLED_ROOT.resolve():
        raise CorpusError(
            f"{folder}: belongs to the installation and is not changed; copy it (cp -r {folder} ./{folder.name}), "
            f"change the copy, and use it with --corpus ./{folder.name}."
        )
    try:
        with corpus_lock(folder):
            if read_manifest(folder).edges == edges:
                return False
            lines = file.read_bytes().split(b"\n")
            header = msgspec.json.decode(lines[0]) | {"edges": edges}
            ending = b"\r" if lines[0].endswith(b"\r") else b""
            replace_file(file, b"\n".join((msgspec.json.encode(header) + ending, *lines[1:])))
    except OSError as error:
        raise CorpusError(f"{file}: cannot be written ({error.strerror}); check space and permissions.") from error
    return True
