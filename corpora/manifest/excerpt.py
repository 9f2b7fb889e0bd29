"""A corpus of some of another one's utterances."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from corpora.manifest.library import Corpus
from corpora.manifest.manifest import MANIFEST_NAME, Utterance


def write_excerpt(corpus: Corpus, utterances: Iterable[Utterance], folder: Path) -> None:
    """Copy utterances with their lines of the manifest into a folder, which is then a corpus. Raises OSError."""
    chosen = list(utterances)
    names = {utterance.id for utterance in chosen}
    with (corpus.path / MANIFEST_NAME).open(encoding="utf-8") as manifest:
        head, *lines = manifest.read().splitlines()
    kept = [line for line in lines if line.strip() and json.loads(line)["id"] in names]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_NAME).write_text("\n".join([head, *kept, ""]), encoding="utf-8")
    for utterance in chosen:
        clip = folder / utterance.path
        clip.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(corpus.path / utterance.path, clip)
