"""Metrics that a set of stage services can show, and the reasons for the others."""

from collections.abc import Mapping
from typing import Final

from loadtest.protocols.stage_metrics import OF_PARTIALS, OF_SPEECH, OF_TEXT, OF_TRANSCRIPTS
from loadtest.protocols.stages.parts import StageName

_NO_ASR: Final = "no recognition is part of this wire: the caller's words are sent as text"
_NO_LLM: Final = "no language model is part of this wire"
_NO_TTS: Final = "no speech comes back on this wire"
_BY_STAGE: Final[Mapping[StageName, tuple[tuple[str, ...], str]]] = {
    "asr": ((*OF_PARTIALS, *OF_TRANSCRIPTS), _NO_ASR),
    "llm": (OF_TEXT, _NO_LLM),
    "tts": (OF_SPEECH, _NO_TTS),
}


def not_observable(stages: frozenset[StageName]) -> dict[str, str]:
    """Return the metrics that a wire of these stages cannot show, each with the reason."""
    found = {"endpointing": "the caller itself ends its turn on this wire"}
    for stage, (metrics, reason) in _BY_STAGE.items():
        if stage not in stages:
            found |= {name: reason for name in metrics if name not in found}
    return found
