"""The contents of a stage service's response, in terms that all stage services share: small values, no I/O."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from loadtest.protocols.failure import Failure
from loadtest.protocols.wire_settings import OF_PARTIALS, OF_SPEECH, OF_TEXT, OF_TRANSCRIPTS, withheld

StageName = Literal["asr", "llm", "tts"]
STAGES: Final[tuple[StageName, ...]] = ("asr", "llm", "tts")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Served(msgspec.Struct, frozen=True, gc=False):
    """The service accepted the request: who answered, as its headers say."""

    metadata: Mapping[str, str]
    service_ns: Mapping[str, int]


class Partial(msgspec.Struct, frozen=True, gc=False):
    """A piece of a transcript that is not complete yet."""

    text: str


class Transcript(msgspec.Struct, frozen=True, gc=False):
    """The whole transcript."""

    text: str
    usage: Mapping[str, int] = _NOTHING


class Words(msgspec.Struct, frozen=True, gc=False):
    """A piece of answer text, or of reasoning, which is not part of the answer."""

    text: str
    reasoning: bool = False


class Pcm(msgspec.Struct, frozen=True, gc=False):
    """Whole samples of speech: s16le mono at rate_hz."""

    data: bytes
    rate_hz: int


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The answer or the speech is complete. `why` is the service's own word for the reason."""

    why: str | None = None
    usage: Mapping[str, int] = _NOTHING
    tool_call: bool = False


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A part of the response that cannot be decoded; what follows it may still be."""

    message: str
    code: str


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A kind of event that the API does not define."""

    name: str


class Broken(msgspec.Struct, frozen=True, gc=False):
    """The stage failed: no more of its response comes. `fatal`: no later request can succeed either."""

    message: str
    failure: Failure
    fatal: bool = False


Part = Served | Partial | Transcript | Words | Pcm | Finished | Malformed | Unknown | Broken


_OF_STAGE: Final[Mapping[StageName, tuple[tuple[str, ...], str]]] = {
    "asr": (
        (*OF_PARTIALS, *OF_TRANSCRIPTS),
        "no recognition is part of this wire: the caller's words are sent as text",
    ),
    "llm": (OF_TEXT, "no language model is part of this wire"),
    "tts": (OF_SPEECH, "no speech comes back on this wire"),
}


def not_observable(stages: frozenset[StageName]) -> dict[str, str]:
    """Return the metrics that a wire of these stages cannot show, each with the reason."""
    missing = [reason for stage, reason in _OF_STAGE.items() if stage not in stages]
    return withheld((("endpointing",), "the caller itself ends its turn on this wire"), *missing)
