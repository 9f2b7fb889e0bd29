"""The bundled corpus: texts synthesized by flite, with the same samples from the same version of flite.

The clips are flite's unmodified output: nothing outside the detected bounds is cut or silenced, so the bounds can be
checked against the clip.

`texts.csv`, next to the clips, has the voice, the stretch (above 1 is slower), the domain, the kinds of invented
personal data and the text of each utterance. Numbers are written as words, so that a transcript has only one correct
form.
"""

from pathlib import Path
from typing import Final

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED
from corpora.manifest.manifest import DEFAULT_EDGES, Edges
from corpora.sources.authoring import Draft, write_corpus
from corpora.sources.synthesis.texts import BUNDLED_COLUMNS, Text, read_texts
from corpora.sources.synthesis.voices import DEFAULT_VOICES, LANGUAGE_BY_VOICE, Flite

TEXTS_NAME: Final = "texts.csv"
LICENSE_NAME: Final = "LICENSE.txt"


def bundled_texts(folder: Path) -> list[Text]:
    """Read the texts of a corpus folder. Raises CorpusError with every fault."""
    return read_texts(folder / TEXTS_NAME, domain="general", language="", columns=BUNDLED_COLUMNS)


def build(folder: Path, into: Path, edges: Edges = DEFAULT_EDGES) -> int:
    """Synthesize the texts of a corpus folder and write the corpus to `into`; returns the number of utterances.

    Raises CorpusError if flite is not installed or fails.
    """
    texts = bundled_texts(folder)
    keep = [folder / name for name in (TEXTS_NAME, LICENSE_NAME) if (folder / name).is_file()]
    with Flite() as flite:
        drafts = (flite_draft(text, flite) for text in texts)
        return write_corpus(into, BUNDLED, "generated", drafts, keep, edges=edges)


def flite_draft(text: Text, flite: Flite) -> Draft:
    """Synthesize one text. Raises CorpusError if flite fails."""
    voice = text.voice or DEFAULT_VOICES["flite"]
    try:
        samples, rate_hz = flite.synthesize(text.text, voice, text.stretch)
    except CorpusError as error:
        raise CorpusError(f"{text.id}: {error}") from error
    return Draft(
        id=text.id,
        text=text.text,
        speaker=f"flite-{voice}",
        language=LANGUAGE_BY_VOICE[voice],
        domain=text.domain,
        license="CC0-1.0",
        source=f"flite voice {voice}, duration_stretch={text.stretch:g}",
        pcm=(samples * 32_768.0).astype(np.int16),
        rate_hz=rate_hz,
        pii_kinds=text.pii_kinds,
    )
