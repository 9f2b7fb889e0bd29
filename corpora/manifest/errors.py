"""The exceptions of corpora; each text says what is wrong, where, and how to mend it.

CorpusError          a corpus, a name or a profile cannot be used
├── ManifestError    a manifest is invalid or differs from its clips; carries every fault found
└── SourceError      a source contains recordings that cannot be imported; carries every fault found
"""

from collections.abc import Sequence
from pathlib import Path

_SHOWN_FAULTS = 20
_SHOWN_IMPORT_FAULTS = 100


class CorpusError(Exception):
    """A corpus, a clip or a profile cannot be used; the text is one sentence: what, where and how to mend it."""


class ManifestError(CorpusError):
    """Everything that is wrong with one corpus.

    `faults` holds one sentence each, naming file, line and utterance; the text shows the first twenty of them.
    """

    def __init__(self, manifest: Path, faults: Sequence[str]) -> None:
        self.manifest = manifest
        self.faults = tuple(faults)
        if len(self.faults) == 1:
            super().__init__(self.faults[0])
            return
        where_all = f"`voiceprobe corpus check {manifest.parent}` lists them all"
        super().__init__(_listed(f"{manifest}: {len(self.faults)} faults:", self.faults, _SHOWN_FAULTS, where_all))


class SourceError(CorpusError):
    """Everything in a source that cannot be imported; `faults` holds one sentence each."""

    def __init__(self, source: str, faults: Sequence[str], kept: str) -> None:
        self.faults = tuple(faults)
        counted = f"{len(self.faults)} fault{'s' * (len(self.faults) > 1)}"
        heading = f"{source}: {counted}; {kept} Mend them, or leave them out with --skip-bad:"
        super().__init__(_listed(heading, self.faults, _SHOWN_IMPORT_FAULTS, "--json FILE lists them all"))


def _listed(heading: str, faults: Sequence[str], most: int, where_all: str) -> str:
    """Return a heading, at most `most` faults below it, one per line, and where all of them are listed."""
    lines = [heading, *(f"  {fault}" for fault in faults[:most])]
    if len(faults) > most:
        lines.append(f"  ... and {len(faults) - most} more: {where_all}")
    return "\n".join(lines)
