"""Reads what session objects declare, GA or beta: formats and identity."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.json_fields import Json, as_object
from loadtest.protocols.openai_realtime.formats import parse_beta, parse_ga


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a session object declares; None where it declares nothing.

    `unreadable` contains a sentence for each declaration that is invalid.
    """

    input_format: AudioFormat | None
    output_format: AudioFormat | None
    identity: Mapping[str, str]
    unreadable: tuple[str, ...]


def session_info(session: Json) -> SessionInfo:
    """Read a session object, or the audio formats of a response object."""
    unreadable: list[str] = []
    audio = as_object(session.get("audio")) or {}
    sides: list[AudioFormat | None] = []
    for side in ("input", "output"):
        ga = (as_object(audio.get(side)) or {}).get("format")
        beta = session.get(f"{side}_audio_format")
        try:
            sides.append(parse_ga(ga) if ga is not None else parse_beta(beta) if beta is not None else None)
        except ValueError as error:
            unreadable.append(f"{side} format: {error}")
            sides.append(None)
    identity = {f"session.{key}": value for key in ("id", "model") if isinstance(value := session.get(key), str)}
    return SessionInfo(sides[0], sides[1], identity, tuple(unreadable))
