"""Utterances and their annotations, the profiles they are rendered with, and the tools that build and install corpora.

`open_corpus` finds and checks a corpus, `render` renders one of its utterances as a caller's speech, and `background`
renders what the caller's line carries between utterances:

>>> from corpora import Profile, open_corpus, profile_from_text, render
>>> corpus = open_corpus("voiceprobe-en")
>>> utterance = corpus.select(length="short", domains=["home"])[0]
>>> noisy = profile_from_text("noise=babble snr=10 channel=telephone loss=5%/3")
>>> rendered = render(corpus, utterance, noisy, rate_hz=16_000, seed=1)
>>> rendered.write("noisy.wav").stat().st_size > 10_000
True
>>> f"{rendered.obtained.snr_db:.1f} dB"
'10.0 dB'

The same profile in Python; a room is a reverberation time in seconds, a loss is a share of the packets:

>>> Profile("babble", 10, channel="telephone", loss="5%/3") == noisy
True
>>> Profile(channel="telephone", room=0.4, loss=0.05).label
'room-0.4s+telephone+loss-5%'

Noise and losses are drawn from the seed; another variant draws different ones:

>>> again = render(corpus, utterance, noisy, rate_hz=16_000, seed=1, variant=1)
>>> bool((again.pcm == rendered.pcm).all())
False

`import_recordings` makes a corpus from existing recordings. It raises SourceError with every fault in them:

>>> from pathlib import Path
>>> from corpora import import_recordings
>>> Path("recordings").mkdir()
>>> rendered.write("recordings/hello.wav").with_suffix(".txt").write_text(utterance.text) > 0
True
>>> outcome = import_recordings("recordings", "my-corpus", license="CC0-1.0", consent="my own voice")
>>> [each.text == utterance.text for each in open_corpus(outcome.folder).utterances]
[True]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from corpora.manifest.conversations import ConversationTurn, ScriptedConversation
    from corpora.manifest.errors import CorpusError, ManifestError, SourceError
    from corpora.manifest.library import Corpus, CorpusInfo, available, open_corpus
    from corpora.manifest.manifest import LengthClass, Utterance
    from corpora.rendering.profiles.impairments import Jitter, PacketLoss
    from corpora.rendering.profiles.parsing import profile_from_text, profiles_from_text
    from corpora.rendering.render import Obtained, Profile, Rendered, background, render
    from corpora.sources.importing.command import import_recordings
    from corpora.sources.importing.pipeline import Outcome
    from corpora.sources.install import install

__all__ = [
    "ConversationTurn",
    "Corpus",
    "CorpusError",
    "CorpusInfo",
    "Jitter",
    "LengthClass",
    "ManifestError",
    "Obtained",
    "Outcome",
    "PacketLoss",
    "Profile",
    "Rendered",
    "ScriptedConversation",
    "SourceError",
    "Utterance",
    "available",
    "background",
    "import_recordings",
    "install",
    "open_corpus",
    "profile_from_text",
    "profiles_from_text",
    "render",
]

# Imported when they are asked for: every module below this package imports it first, and most commands need neither
# the rendering nor the import of recordings, which take SciPy with them.
_MODULE_OF: Final = {
    "ConversationTurn": "corpora.manifest.conversations",
    "Corpus": "corpora.manifest.library",
    "CorpusError": "corpora.manifest.errors",
    "CorpusInfo": "corpora.manifest.library",
    "Jitter": "corpora.rendering.profiles.impairments",
    "LengthClass": "corpora.manifest.manifest",
    "ManifestError": "corpora.manifest.errors",
    "Obtained": "corpora.rendering.render",
    "Outcome": "corpora.sources.importing.pipeline",
    "PacketLoss": "corpora.rendering.profiles.impairments",
    "Profile": "corpora.rendering.render",
    "Rendered": "corpora.rendering.render",
    "ScriptedConversation": "corpora.manifest.conversations",
    "SourceError": "corpora.manifest.errors",
    "Utterance": "corpora.manifest.manifest",
    "available": "corpora.manifest.library",
    "background": "corpora.rendering.render",
    "import_recordings": "corpora.sources.importing.command",
    "install": "corpora.sources.install",
    "open_corpus": "corpora.manifest.library",
    "profile_from_text": "corpora.rendering.profiles.parsing",
    "profiles_from_text": "corpora.rendering.profiles.parsing",
    "render": "corpora.rendering.render",
}


def __getattr__(name: str) -> Any:
    """A public name, imported now. Raises AttributeError for any other."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__]
