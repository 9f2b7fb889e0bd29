"""A protocol's description of itself, without loading its code: for help, the reference and the choice by URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal
from urllib.parse import urlsplit

from loadtest.protocols.base import TransportKind

# The stages of a turn that a wire may show the caller.
ShownStage = Literal["end of speech", "partial transcripts", "transcripts", "text", "speech"]

# The metric that cannot be without its stage: what a description says is checked against what a caller declares.
METRIC_OF: Final[Mapping[ShownStage, str]] = {
    "end of speech": "endpointing",
    "partial transcripts": "asr_partial_latency",
    "transcripts": "asr_final_latency",
    "text": "llm_first_token_latency",
    "speech": "voice_to_voice",
}
_WILDCARD: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One protocol in words.

    `proved_against` names the packages of others with which the tests check it: "NAME VERSION", the version as pinned,
    and in parentheses what of the package was used unless whole calls are made to it; none if it was checked only with
    servers of this project. `url_hints` are patterns of addresses that this protocol is taken for, without port and
    query; `*` is any text.
    """

    name: str
    summary: str
    shows: tuple[ShownStage, ...]
    proved_against: tuple[str, ...]
    transport: TransportKind = "websocket"
    url_hints: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The stages in words."""
        return "every stage" if len(self.shows) == len(METRIC_OF) else ", ".join(self.shows)

    @property
    def proof(self) -> str:
        """What it was checked with, in words."""
        return ", ".join(self.proved_against) or "scripted servers only"

    def fit(self, url: str) -> int:
        """Return how many characters of a pattern the address fits literally, by the longest one; 0: it fits none."""
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            return 0
        plain = f"{parts.scheme}://{host}{parts.path}"
        fits = [hint for hint in self.url_hints if fnmatchcase(plain, hint)]
        return max((len(hint.replace(_WILDCARD, "")) for hint in fits), default=0)
