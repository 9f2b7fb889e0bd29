"""One turn in words, as HTML: its figures, how well it was measured, what it was about, and its place in the call."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

from dashboard import descriptions
from dashboard.components.markup import Html, chip, css_percent, escape, fact, fact_line, hint, link_to, pairs, section
from dashboard.links import Choice
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED, turn_figures, turn_measured_within
from telemetry.model.formatting import NS_PER_S, milliseconds, seconds
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall
from telemetry.store.questions.turns import TurnOfCall
from telemetry.store.recordings.excerpt import CallExcerpt

_ACRONYMS: Final = ("asr", "llm", "tts")
_SIDES: Final = {"client": "caller", "service": "service"}
NOTHING_KEPT: Final = Html(
    "No audio and no words were kept of this call: a run keeps them with <code>--keep-audio</code> and "
    "<code>--keep-text</code>, for as long as <code>--keep-for</code> says."
)


def _known(text: object) -> str:
    return descriptions.UNKNOWN if text is None or text == "" else str(text)


def _ms(ns: float | None) -> str:
    return _known(None if ns is None else milliseconds(ns))


def headline(client: Turn | None, service: Turn | None, picture: Waterfall, *, whole_call: bool = False) -> Html:
    """The turn's figures on one line, and below it how far both sides can be compared, or that the picture is of the
    whole call."""
    shown = client or service
    reported = _ms(picture.service_voice_to_voice_ns)
    parts = [("voice to voice", reported)]
    if client is not None:
        within = turn_measured_within(client, METRICS[HEADLINE])
        measured = milliseconds(picture.client_voice_to_voice_ns) + (f" ({within})" if within is not None else "")
        unexplained = milliseconds(picture.unexplained_ns)
        parts = [("voice to voice", measured), ("the service says", reported), ("unexplained", unexplained)]
    label = None if shown is None else OUTCOME_LABELS[shown.outcome]
    reason = f": {shown.outcome_reason}" if shown is not None and shown.outcome_reason else ""
    parts.append(("outcome", _known(label) + reason))
    title, remark = "One turn on one clock", pairing(client, service, picture)
    if whole_call:
        title, remark = "The whole call on one clock", "The figures are of the turn that the link names."
    shown_lines = fact_line(fact(key, Html(f"<b>{escape(value)}</b>")) for key, value in parts)
    return Html(f'<div class="vp"><h2 style="font-size:16px">{title}</h2></div>{shown_lines}{hint(remark)}')


def pairing(client: Turn | None, service: Turn | None, picture: Waterfall) -> str:
    """Describe how far the two sides can be compared."""
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


def evidence_of(client: Turn | None) -> Html:
    """The turn's own evidence of how well it was measured."""
    if client is None:
        return pairs("Evidence", [("", "the caller's side is not in the store")])
    unsent, blocked = client.unsent_bytes_at_speech_end, client.send_blocked_worst_ns
    # Not caused by the instrument: it does not make a turn invalid.
    unread = _ms(blocked) if blocked is None else f"for {_ms(blocked)}"
    rows = [
        ("worst frame lateness", _ms(client.frame_lateness_worst_ns)),
        ("drift over the utterance", _ms(client.drift_worst_ns)),
        ("event-loop lag", _ms(client.loop_lag_worst_ns)),
        ("kernel to program", _ms(client.receive_lag_worst_ns)),
        ("came before its stamp", _ms(client.arrival_uncertainty_worst_ns)),
        ("unsent at end of speech", _known(None if unsent is None else f"{unsent:,} bytes")),
        ("the endpoint did not read", f"{unread}: the turn counts" if client.endpoint_did_not_read else unread),
        ("began after its time", _ms(client.start_late_ns)),
        ("receive stamp, pacer", f"{_known(client.receive_stamp)}, {_known(client.pacer)}"),
        ("speech began within", _half_width(client.speech_start_uncertainty_ns)),
        ("speech ended within", _half_width(client.speech_end_uncertainty_ns)),
        ("audible onset", _known(client.onset_preset)),
        *turn_figures(client, (METRICS[name] for name in shown_in("page") if METRICS[name] in BOUNDED)),
    ]
    reasons = ", ".join(client.invalid_reasons)
    verdict = chip("missed", f"invalid: {reasons}") if reasons else chip("met", "valid")
    return pairs("Was it measured well?", rows, verdict)


def _half_width(ns: int | None) -> str:
    return "± not known" if ns is None else f"± {milliseconds(ns)}"


def dimensions(turn: Turn | None, zone: tzinfo = UTC) -> Html:
    """The time of the turn, and its value of each dimension."""
    if turn is None:
        return Html()
    hit = f"hit, {turn.cache_tier or 'tier not named'}" if turn.cache_hit else "miss"
    at = "" if turn.snr_obtained_db is None else f" at {formatting.decibels(turn.snr_obtained_db)}"
    speech = "" if turn.speech_ns is None else f", {seconds(turn.speech_ns)} of speech"
    rows = [
        ("began", descriptions.day_and_second(turn.started_unix_ns, zone)),
        ("utterance", _known(turn.utterance_id)),
        ("length", _known(turn.length_class) + speech),
        ("noise", _known(turn.noise_profile) + at),
        *((name, _known(value)) for name, value in (("cohort", turn.cohort), ("route", turn.route))),
        ("cache", _known(None if turn.cache_hit is None else hit)),
        ("fallback", turn.fallback or "none reported"),
        ("model", _known(turn.model)),
        ("call, turn", f"{turn.call_id}, {turn.turn_index}"),
        ("trace", _known(turn.trace_id)),
    ]
    return pairs("What it was", rows)


def moments(picture: Waterfall) -> Html:
    """A table of every timestamp of both sides in order: the figures behind the marks."""
    of = [(formatting.signed_milliseconds(mark.at_ns), f"{_moment(mark.name)}, {_SIDES[mark.source]}")
          for mark in picture.marks]  # fmt: skip
    return pairs("Moments", of, css="twice")


def _moment(name: str) -> str:
    """A timestamp's name for people: `ASR first partial`."""
    first, *others = name.split("_")
    return " ".join([first.upper() if first in _ACRONYMS else first, *others])


def reported(client: Turn | None) -> Html:
    """The latencies that the service reports itself, separate from those that were measured; empty if it reports
    none."""
    if client is None or not client.service_reported:
        return Html()
    stated = zip(client.service_reported, client.service_reported_ns, strict=False)
    return pairs("Stated by the service, not measured", [(name, milliseconds(ns)) for name, ns in stated])


def notices(excerpt: CallExcerpt | None, kept_in: str | None) -> str:
    """One line on what was kept of the call, where, and until when."""
    if excerpt is None:
        elsewhere = Html(
            "Nothing of this call is kept in this store's folder. The run kept calls on the machine of its callers, in "
            f"<code>{escape(kept_in)}</code>; they are removed when their time is over."
        )
        return hint(NOTHING_KEPT if kept_in is None else elsewhere, "vp-kept")
    until = datetime.fromtimestamp((excerpt.expires_unix_ns or 0) // NS_PER_S, UTC)
    lines = (
        f"The recording cannot be played: {excerpt.fault}." if excerpt.fault else "",
        f"{excerpt.note[:1].upper()}{excerpt.note[1:]}." if excerpt.note else "",
        f"Some of the audio is missing: {excerpt.missing[0][2]}." if excerpt.missing else "",
        f"Kept until {until:%d %b %Y %H:%M} UTC." if excerpt.expires_unix_ns else "",
    )
    return hint(" ".join(filter(None, lines)), "vp-kept") if any(lines) else ""


def words(client: Turn | None, excerpt: CallExcerpt | None) -> str:
    """The texts that were spoken, recognized and answered, as far as they were kept."""
    kept = None if excerpt is None else excerpt.turn
    transcript = (None if kept is None else kept.transcript) or (None if client is None else client.transcript_pii)
    asked, answered = (None, None) if kept is None else (kept.asked, kept.reply)
    texts = (("said", asked), ("understood", transcript), ("answered", answered))
    shown = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in texts if text)
    if not shown:
        return ""
    partials = () if kept is None else kept.partials
    steps = "".join(f"<li><b>{milliseconds(partial.after_ns)}</b> {escape(partial.text)}</li>" for partial in partials)
    many = formatting.count(len(partials), "partial transcript")
    steps = f"<details><summary>{many}</summary><ol>{steps}</ol></details>" if steps else ""
    return f'<div class="vp vp-words"><h2>Words</h2><dl>{shown}</dl>{steps}</div>'


def neighbors(call: Sequence[TurnOfCall], trace_id: str, turn_index: int, choice: Choice, **more: str) -> Html:
    """Links to the previous and the next turn of the call; text where there is none."""
    places = [turn.turn_index for turn in call]
    before, after = [place for place in places if place < turn_index], [place for place in places if place > turn_index]

    def step(index: int | None, label: str) -> str:
        if index is None:
            return f'<span class="hint" aria-disabled="true">{label}</span>'
        return link_to(choice.link("turns", trace=trace_id, turn=str(index), **more), label)

    place = places.index(turn_index) + 1 if turn_index in places else 0
    previous = step(before[-1] if before else None, "← previous turn")
    following = step(after[0] if after else None, "next turn →")
    return Html(
        f'<nav class="vp vp-neighbors" aria-label="Turns of this call">{previous}'
        f"<span>turn {place} of {len(call)} in this call</span>{following}</nav>"
    )


def call_strip(call: Sequence[TurnOfCall], trace_id: str, turn_index: int, choice: Choice, **more: str) -> Html:
    """The call from its first turn to its last: where the caller spoke and where replies played."""
    whole_ns = max((turn.end_ns for turn in call), default=0)
    if whole_ns <= 0:
        return Html()
    items = "".join(
        _turn_of_call(
            turn,
            whole_ns,
            choice.link("turns", trace=trace_id, turn=str(turn.turn_index), **more),
            is_shown=turn.turn_index == turn_index,
        )
        for turn in call
    )
    head = section("The call", f"{seconds(whole_ns)}, {len(call)} turns on one clock; open one")
    return Html(f'{head}<div class="vp"><ol class="vp-call-track">{items}</ol></div>')


def _turn_of_call(turn: TurnOfCall, whole_ns: int, link: str, *, is_shown: bool) -> str:
    begin, length, value = turn.start_ns, max(turn.end_ns - turn.start_ns, 1), turn.voice_to_voice_ns

    def room(start: int, end: int, of: int) -> str:
        return f'style="left:{css_percent(start / of)};width:{css_percent((end - start) / of)}"'

    parts = "".join(
        f'<i class="{kind}" {room(period[0] - begin, period[1] - begin, length)}></i>'
        for kind, period in (("speech", turn.speech_ns), ("playing", turn.reply_ns))
        if period is not None
    )
    waited = OUTCOME_LABELS[turn.outcome] if value is None else milliseconds(value)
    name = escape(f"turn {turn.turn_index + 1}, {waited}")
    current = ' aria-current="page"' if is_shown else ""
    return (
        f"<li {room(begin, begin + length, whole_ns)}>"
        f'<a href="{escape(link)}" target="_self" title="{name}" aria-label="{name}"{current}>{parts}</a></li>'
    )
