"""The wire `declared`: its spec comes from a file that the setting `spec` names, or is the setting itself."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.declared.caller import DeclaredCaller
from loadtest.protocols.declared.spec import Spec, parse_spec, spec_of
from loadtest.protocols.declared.templates import places
from loadtest.protocols.registry import register_built_in
from loadtest.protocols.unused_options import faults_without_effect
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

# The options that a spec has places for.
_PLACES: Final = frozenset({"model", "voice", "instructions"})


class DeclaredSettings(WireSettings):
    """The settings of the wire declared."""

    spec: str | dict[str, Any] | None = None


@register_built_in("declared")
def declared(options: CallerOptions) -> DeclaredCaller:
    """Create a caller of the wire that the setting `spec` declares. Raises UsageError with all its faults."""
    settings = read_settings(DeclaredSettings, options.settings, "declared")
    if settings.spec is None:
        raise UsageError("declared: give the file that describes the wire: --protocol-option spec=FILE")
    spec = read_spec(settings.spec) if isinstance(settings.spec, str) else spec_of(settings.spec, "spec")
    refuse(faults_without_effect(options, "declared", _without_effect(spec)))
    return DeclaredCaller(options, spec)


def _without_effect(spec: Spec) -> dict[str, str]:
    """Return the options that nothing in the spec carries, each with the reason."""
    turn, opening = spec.turn, spec.open
    answers = [rule.send for rule in spec.events]
    sent = [opening.query, opening.headers, *opening.send, *turn.begin, *turn.end, *turn.interrupt, *answers]
    written = places(sent)
    unused = _PLACES - set(written)
    reasons = {name: f"the spec has no place {{{name}}}" for name in sorted(unused)}
    unsaid = "the spec states what the endpoint is sent, and has no place for it"
    return {**reasons, "transcription_model": unsaid, "silence_duration_ms": unsaid}


@cache
def read_spec(file: str) -> Spec:
    """Return the wire that a file declares; all calls share it. Raises UsageError with all its faults."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"the spec {file!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_spec(text, file)
