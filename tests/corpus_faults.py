"""The faults that opening a corpus reports, as a value."""

from pathlib import Path

from corpora.manifest.errors import ManifestError
from corpora.manifest.library import open_corpus


def find_faults(folder: Path) -> tuple[str, ...]:
    """Every fault of the corpus in a folder, one sentence each; none if it can be used."""
    try:
        open_corpus(folder)
    except ManifestError as error:
        return error.faults
    return ()
