"""What is known of one turn, in words, as HTML: how it went, how well it was measured, what it was."""

from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Final

from dashboard import descriptions
from dashboard.markup import escape
from dashboard.objective_status import chip
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED
from telemetry.model.formatting import milliseconds
from telemetry.model.measured_within import turn_figures, turn_measured_within
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall

_ACRONYMS: Final = ("asr", "llm", "tts")
Pairs = Sequence[tuple[str, str]]


def headline(client: Turn | None, service: Turn | None, picture: Waterfall, *, whole_call: bool = False) -> str:
    """The turn's figures in one line; above its own picture, a second line on how the two sides were brought
    together."""
    says = _reported_ms(picture.service_voice_to_voice_ns)
    parts = (
        [("voice to voice", says)]
        if client is None
        else [
            ("voice to voice", _heard(client, picture)),
            ("the service says", says),
            ("unexplained", milliseconds(picture.unexplained_ns)),
        ]
    )
    parts.append(("outcome", _outcome(client or service)))
    shown = "".join(f'<span><span class="key">{key}</span><b>{escape(value)}</b></span>' for key, value in parts)
    title, hint = "One turn on one clock", joined(client, service, picture)
    if whole_call:
        title, hint = "The whole call on one clock", "The figures are of the turn that the link names."
    return (
        f'<div class="vp"><h2 style="font-size:16px">{title}</h2><div class="vp-facts">{shown}</div>'
        f'<div class="hint">{escape(hint)}</div></div>'
    )


def _heard(client: Turn, picture: Waterfall) -> str:
    within = turn_measured_within(client, METRICS[HEADLINE])
    return milliseconds(picture.client_voice_to_voice_ns) + (f" ({within})" if within is not None else "")


def _reported_ms(ns: float | None) -> str:
    return descriptions.UNKNOWN if ns is None else milliseconds(ns)


def _outcome(turn: Turn | None) -> str:
    if turn is None:
        return descriptions.UNKNOWN
    label = OUTCOME_LABELS[turn.outcome]
    return f"{label}: {turn.outcome_reason}" if turn.outcome_reason else label


def joined(client: Turn | None, service: Turn | None, picture: Waterfall) -> str:
    """How far the two sides can be compared."""
    if client is None:
        return "Only the service reported this turn: the figures are its own, what the caller heard is not known."
    if service is None:
        return "The service reported nothing of this turn: the stages are as the caller saw them arrive."
    if picture.service_offset_ns is None:
        return "The service does not say where in the audio it believes that speech ended: both ends are drawn as one."
    later = "later" if picture.service_offset_ns >= 0 else "earlier"
    by = milliseconds(abs(picture.service_offset_ns))
    return (
        f"Solid: heard by the caller. Pale: reported by the service, which believes that speech ended {by} "
        f"{later} than the clip says; it is placed by the audio, never by its clock."
    )


def trust(client: Turn | None) -> str:
    """The turn's own evidence of how well it was measured."""
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
        ("came before its stamp", _ms(client.arrival_uncertainty_worst_ns)),
        ("unsent at end of speech", descriptions.UNKNOWN if unsent is None else f"{unsent:,} bytes"),
        ("the endpoint did not read", _not_read(client)),
        ("began after its time", _ms(client.start_late_ns)),
        (
            "receive stamp, pacer",
            f"{client.receive_stamp or descriptions.UNKNOWN}, {client.pacer or descriptions.UNKNOWN}",
        ),
        ("speech began within", _half_width(client.speech_start_uncertainty_ns)),
        ("speech ended within", _half_width(client.speech_end_uncertainty_ns)),
        ("audible onset", client.onset_preset or descriptions.UNKNOWN),
        *turn_figures(client, (METRICS[name] for name in shown_in("page") if METRICS[name] in BOUNDED)),
    ]
    return _pairs("Was it measured well?", pairs, verdict)


def _not_read(client: Turn) -> str:
    """Not the instrument's doing: it makes no turn invalid."""
    if client.send_blocked_worst_ns is None:
        return descriptions.UNKNOWN
    longest = f"for {_ms(client.send_blocked_worst_ns)}"
    return f"{longest}: the turn counts" if client.endpoint_did_not_read else longest


def dimensions(turn: Turn | None, zone: tzinfo = UTC) -> str:
    """When the turn was, and what it was about."""
    if turn is None:
        return ""
    cache = {None: descriptions.UNKNOWN, True: f"hit, {turn.cache_tier or 'tier not named'}", False: "miss"}[
        turn.cache_hit
    ]
    noise = turn.noise_profile or descriptions.UNKNOWN
    if turn.snr_obtained_db is not None:
        noise += f" at {formatting.decibels(turn.snr_obtained_db)}"
    length = turn.length_class or descriptions.UNKNOWN
    if turn.speech_ns is not None:
        length += f", {formatting.seconds(turn.speech_ns)} of speech"
    pairs = [
        ("began", descriptions.day_and_second(turn.started_unix_ns, zone)),
        ("utterance", turn.utterance_id or descriptions.UNKNOWN),
        ("length", length),
        ("noise", noise),
        ("cohort", turn.cohort or descriptions.UNKNOWN),
        ("route", turn.route or descriptions.UNKNOWN),
        ("cache", cache),
        ("fallback", turn.fallback or "none reported"),
        ("model", turn.model or descriptions.UNKNOWN),
        ("call, turn", f"{turn.call_id}, {turn.turn_index}"),
        ("trace", turn.trace_id or descriptions.UNKNOWN),
    ]
    return _pairs("What it was", pairs)


def moments(picture: Waterfall) -> str:
    """Every moment of both sides in order, for those who want the figures of the marks."""
    sides = {"client": "caller", "service": "service"}
    pairs = [
        (formatting.signed_milliseconds(mark.at_ns), f"{_moment(mark.name)}, {sides[mark.source]}")
        for mark in picture.marks
    ]
    return _pairs("Moments", pairs, css="twice")


def _moment(name: str) -> str:
    """A timestamp's name for people: `ASR first partial`."""
    first, *others = name.split("_")
    return " ".join([first.upper() if first in _ACRONYMS else first, *others])


def reported(client: Turn | None) -> str:
    """What the service states of its own latencies, apart from what was measured; empty where it states nothing."""
    if client is None or not client.service_reported:
        return ""
    stated = zip(client.service_reported, client.service_reported_ns, strict=False)
    return _pairs("Stated by the service, not measured", [(name, milliseconds(ns)) for name, ns in stated])


def _ms(ns: int | None) -> str:
    return descriptions.UNKNOWN if ns is None else milliseconds(ns)


def _half_width(ns: int | None) -> str:
    return "± not known" if ns is None else f"± {milliseconds(ns)}"


def _pairs(title: str, pairs: Pairs, extra: str = "", css: str = "") -> str:
    cells = "".join(f'<span class="key">{escape(key)}</span><span>{escape(value)}</span>' for key, value in pairs)
    head = f'<div class="vp-head"><h2>{title} {extra}</h2></div>'
    return f'<div class="vp">{head}<div class="vp-pairs {css}">{cells}</div></div>'
