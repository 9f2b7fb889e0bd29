"""Utterances and their annotations, the profiles they are rendered with, and the tools that build and install corpora.

`open_corpus` finds and checks a corpus, `render` turns one of its utterances into what a caller says, `background`
into what the caller's line carries in between.
"""

from corpora.conversations import Conversation, ConversationTurn
from corpora.errors import CorpusError, ManifestError
from corpora.library import Corpus, CorpusInfo, available, open_corpus
from corpora.manifest import LengthClass, Utterance
from corpora.render import Profile, Rendered, background, render

__all__ = [
    "Conversation",
    "ConversationTurn",
    "Corpus",
    "CorpusError",
    "CorpusInfo",
    "LengthClass",
    "ManifestError",
    "Profile",
    "Rendered",
    "Utterance",
    "available",
    "background",
    "open_corpus",
    "render",
]
