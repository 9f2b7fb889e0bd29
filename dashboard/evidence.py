"""What is known of one turn, in words, as HTML: how it went, how well it was measured, what it was."""

from collections.abc import Sequence

from dashboard import formatting
from dashboard.formatting import escape, ms_text
from dashboard.objective_status import chip
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall

Pairs = Sequence[tuple[str, str]]


def headline(client: Turn | None, service: Turn | None, picture: Waterfall) -> str:
    """The turn's figures in one line, and a second line on how the two sides were brought together."""
    parts = [
        ("voice to voice", ms_text(picture.client_voice_to_voice_ns) if client else formatting.UNKNOWN),
        ("the service says", ms_text(picture.service_voice_to_voice_ns) if service else formatting.UNKNOWN),
        ("unexplained", ms_text(picture.unexplained_ns)),
        ("outcome", _outcome(client or service)),
    ]
    shown = "".join(f'<span><span class="key">{key}</span><b>{escape(value)}</b></span>' for key, value in parts)
    return (
        f'<div class="vp"><h2 style="font-size:16px">One turn on one clock</h2><div class="vp-facts">{shown}</div>'
        f'<div class="hint">{escape(joined(client, service, picture))}</div></div>'
    )


def _outcome(turn: Turn | None) -> str:
    if turn is None:
        return formatting.UNKNOWN
    label = formatting.OUTCOME_LABELS[turn.outcome]
    return f"{label}: {turn.outcome_reason}" if turn.outcome_reason else label


def joined(client: Turn | None, service: Turn | None, picture: Waterfall) -> str:
    """How far the two sides can be compared."""
    if client is None:
        return "Only the service reported this turn: what the caller heard is not known."
    if service is None:
        return "The service reported nothing of this turn: the stages are as the caller saw them arrive."
    if picture.service_offset_ns is None:
        return "The service does not say where in the audio it believes that speech ended: both ends are drawn as one."
    later = "later" if picture.service_offset_ns >= 0 else "earlier"
    by = ms_text(abs(picture.service_offset_ns))
    return (
        f"Solid: heard by the caller. Pale: reported by the service, which believes that speech ended {by} "
        f"{later} than the clip says; it is placed by the audio, never by its clock."
    )


def trust(client: Turn | None) -> str:
    """The turn's own evidence that the instrument told the truth."""
    if client is None:
        return _pairs("Evidence", [("", "the caller's side is not in the store")])
    if client.invalid_reasons:
        verdict = chip("missed", "invalid: " + ", ".join(client.invalid_reasons))
    else:
        verdict = chip("met", "valid")
    unsent = client.unsent_bytes_at_speech_end
    pairs = [
        ("worst frame lateness", _ms(client.frame_lateness_worst_ns)),
        ("drift over the utterance", _ms(client.drift_worst_ns)),
        ("event-loop lag", _ms(client.loop_lag_worst_ns)),
        ("kernel to program", _ms(client.receive_lag_worst_ns)),
        ("unsent at end of speech", formatting.UNKNOWN if unsent is None else f"{unsent:,} bytes"),
        ("the endpoint did not read", _not_read(client)),
        ("began after its time", _ms(client.start_late_ns)),
        ("receive stamp, pacer", f"{client.receive_stamp or formatting.UNKNOWN}, {client.pacer or formatting.UNKNOWN}"),
        ("speech began within", _half_width(client.speech_start_uncertainty_ns)),
        ("speech ended within", _half_width(client.speech_end_uncertainty_ns)),
        ("audible onset", client.onset_preset or formatting.UNKNOWN),
    ]
    return _pairs("Was it measured well?", pairs, verdict)


def _not_read(client: Turn) -> str:
    """Not the instrument's doing: it makes no turn invalid."""
    if client.send_blocked_worst_ns is None:
        return formatting.UNKNOWN
    longest = f"for {_ms(client.send_blocked_worst_ns)}"
    return f"{longest}: the turn counts" if client.endpoint_did_not_read else longest


def dimensions(turn: Turn | None) -> str:
    """What the turn was about."""
    if turn is None:
        return ""
    cache = {None: formatting.UNKNOWN, True: f"hit, {turn.cache_tier or 'tier not named'}", False: "miss"}[
        turn.cache_hit
    ]
    noise = turn.noise_profile or formatting.UNKNOWN
    if turn.snr_obtained_db is not None:
        noise += f" at {turn.snr_obtained_db:.1f} dB"
    length = turn.length_class or formatting.UNKNOWN
    if turn.speech_ns is not None:
        length += f", {turn.speech_ns / formatting.NS_PER_S:.1f} s of speech"
    pairs = [
        ("utterance", turn.utterance_id or formatting.UNKNOWN),
        ("length", length),
        ("noise", noise),
        ("cohort", turn.cohort or formatting.UNKNOWN),
        ("route", turn.route or formatting.UNKNOWN),
        ("cache", cache),
        ("fallback", turn.fallback or "none reported"),
        ("model", turn.model or formatting.UNKNOWN),
        ("call, turn", f"{turn.call_id}, {turn.turn_index}"),
        ("trace", turn.trace_id or formatting.UNKNOWN),
    ]
    return _pairs("What it was", pairs)


def moments(picture: Waterfall) -> str:
    """Every moment of both sides in order, for those who want the figures of the marks."""
    sides = {"client": "caller", "service": "service"}
    pairs = [
        (f"{formatting.ms(mark.at_ns):+,.1f} ms", f"{mark.name.replace('_', ' ')}, {sides[mark.source]}")
        for mark in picture.marks
    ]
    return _pairs("Moments", pairs, css="twice")


def _ms(ns: int | None) -> str:
    return formatting.UNKNOWN if ns is None else ms_text(ns)


def _half_width(ns: int | None) -> str:
    return "± not known" if ns is None else f"± {ms_text(ns)}"


def _pairs(title: str, pairs: Pairs, extra: str = "", css: str = "") -> str:
    cells = "".join(f'<span class="key">{escape(key)}</span><span>{escape(value)}</span>' for key, value in pairs)
    head = f'<div class="vp-head"><h2>{title} {extra}</h2></div>'
    return f'<div class="vp">{head}<div class="vp-pairs {css}">{cells}</div></div>'
