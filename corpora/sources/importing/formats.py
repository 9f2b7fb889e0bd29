"""The layouts that can be imported, and detection of the layout of a source."""

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.common_voice import COMMON_VOICE
from corpora.sources.importing.folder import FOLDER
from corpora.sources.importing.huggingface import HUGGINGFACE
from corpora.sources.importing.items import Layout
from corpora.sources.importing.kaldi import KALDI
from corpora.sources.importing.lhotse import LHOTSE
from corpora.sources.importing.librispeech import LIBRISPEECH
from corpora.sources.importing.ljspeech import LJSPEECH
from corpora.sources.importing.nemo import NEMO
from corpora.sources.importing.stereo_calls import STEREO_CALLS
from corpora.sources.importing.table import TABLE
from corpora.sources.importing.tree import SourceTree

# Specific layouts come first: a folder fits almost every source, and a table also fits Common Voice.
LAYOUTS = {
    layout.name: layout
    for layout in (
        *(KALDI, LIBRISPEECH, COMMON_VOICE, LHOTSE, NEMO, HUGGINGFACE, LJSPEECH),
        *(TABLE, STEREO_CALLS, FOLDER),
    )
}


def layout_of(tree: SourceTree, name: str | None, is_calls: bool = False) -> Layout:
    """The layout with a known name, or the first that fits the source. Raises CorpusError if none fits."""
    if name is not None:
        return LAYOUTS[name]
    if is_calls:
        return STEREO_CALLS
    found = next((layout for layout in LAYOUTS.values() if layout.fits(tree)), None)
    if found is None:
        raise CorpusError(
            f"{tree.file or tree.root}: has no recognized layout; choose one with --format ({', '.join(LAYOUTS)})."
        )
    return found
