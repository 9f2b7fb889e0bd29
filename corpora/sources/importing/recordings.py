"""Import of recordings from Python, with the command's flags as arguments."""

import os
from pathlib import Path

from corpora.manifest.errors import CorpusError
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.formats import LAYOUTS, layout_of
from corpora.sources.importing.items import Channel, Settings
from corpora.sources.importing.options import Flags
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source
from corpora.sources.importing.tree import printable

__all__ = ["Outcome", "import_recordings"]


def import_recordings(
    source: str | Path,
    into: str | Path,
    *,
    license: str,
    consent: str,
    form: str | None = None,
    speaker: str = "unknown",
    language: str = "und",
    domain: str = "imported",
    rate_hz: int | None = None,
    loudness: str = "asl",
    level_db: float | None = None,
    channel: Channel = None,
    caller_channel: int | None = None,
    skip_bad: bool = False,
    append: bool = False,
    processes: int = 1,
) -> Outcome:
    """Make a corpus in the folder `into` from a folder, manifest, table, recording, or an archive of them.

    The arguments are those of `voiceprobe corpus import`: `form` is one of its formats (detected if omitted); speaker,
    language and domain are used if the source has none. Raises SourceError with every fault of the source, unless
    `skip_bad` is set; CorpusError for invalid arguments, and if there is nothing to import.
    """
    flags = Flags()
    source, into = Path(source), Path(into).absolute()
    settings = Settings(
        license=flags.text("license", license),
        consent=flags.text("consent", consent),
        label=one_line(printable(Path(os.path.normpath(source.absolute())).name)) or "source",
        speaker=flags.text("speaker", speaker),
        language=flags.text("language", language),
        domain=flags.text("domain", domain),
        rate_hz=flags.rate(rate_hz),
        loudness=flags.loudness(loudness),
        level_db=flags.level(level_db, loudness),
        channel=channel,
        caller_channel=caller_channel,
    )
    if form is not None and form not in LAYOUTS:
        raise CorpusError(f"The format {form!r} is unknown; use one of {', '.join(LAYOUTS)}.")
    flags.raise_faults()
    with opened_source(source, into.parent) as tree:
        layout = layout_of(tree, form, caller_channel is not None)
        return import_corpus(tree, layout, into, settings, skip_bad=skip_bad, append=append, processes=processes)
