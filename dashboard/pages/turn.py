"""The page of one turn: its waterfall on one clock, with its audio and words where they were kept, in its call."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.charts.style import palette
from dashboard.charts.turn_charts import view_ms, waterfall_rows, waterfall_spec, waterfall_table
from dashboard.components import frame, header
from dashboard.components.chart import chart, table_below
from dashboard.components.frame import PageContext
from dashboard.components.markup import css_percent, escape
from dashboard.components.objectives import chip
from dashboard.links import Choice, turns_choice_of
from dashboard.player.turn_player import call_player, call_table, turn_player
from dashboard.source import Source, source_of
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED, turn_figures, turn_measured_within
from telemetry.model.errors import TelemetryError
from telemetry.model.formatting import NS_PER_S, milliseconds, seconds
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.model.turns import Turn
from telemetry.model.waterfall import Waterfall
from telemetry.store.questions.turns import TurnOfCall, TurnView
from telemetry.store.recordings.excerpt import CallExcerpt

TITLE: Final = "Turn"
TRACE: Final = "trace"
TURN: Final = "turn"
VIEW: Final = "view"
CALL: Final = "call"
_ALT: Final = "Waterfall of the turn: what the caller heard above what the service reported, on one clock"


def page() -> None:
    """Draw the turn that the link names: `?trace=…&turn=…`; with `view=call` its whole call."""
    context = PageContext(st.query_params.to_dict(), frame.viewer_zone(), time.time_ns())
    wanted = _wanted(context.link)
    frame.heading(TITLE)
    st.html(_links_back(context))
    try:
        with st.spinner(frame.READING):
            view = ask(source_of(context.link), context.link)
    except TelemetryError as error:
        st.html(header.empty("The store cannot be read", escape(error)))
        return
    frame.say_fault_of_objectives(context.link)
    if wanted is None or view is None:
        st.html(header.empty("The link names no turn", "Open one from the slowest turns of a run."))
        return
    if view.picture is None:
        trace_id, index = wanted
        why = f"Trace <code>{escape(trace_id)}</code>, turn {index}: the store has neither side of it."
        st.html(header.empty("That turn is not in this store", why))
        return
    draw(view, view.picture, wanted, context)


def ask(source: Source, link: Mapping[str, str]) -> TurnView | None:
    """The turn of a link; None of one that names none. Raises StoreError when the store cannot be read."""
    wanted = _wanted(link)
    return None if wanted is None else source.reader.turn_view(*wanted, whole_call=link.get(VIEW) == CALL)


def _links_back(context: PageContext) -> str:
    choice, (listed, _) = context.choice, turns_choice_of(context.link)
    links = f'<a href="{escape(choice.link())}" target="_self">← back to the run</a>'
    links += f' · <a href="{escape(choice.link("turns", **listed.query()))}" target="_self">all turns</a>'
    return f'<div class="vp">{links}</div>'


def _wanted(query: Mapping[str, str]) -> tuple[str, int] | None:
    trace_id, index = query.get(TRACE), query.get(TURN, "0")
    is_number = index.isascii() and index.isdigit() and len(index) < 10
    return (trace_id, int(index)) if trace_id and is_number else None


def _head(view: TurnView, picture: Waterfall, wanted: tuple[str, int], context: PageContext) -> list[str]:
    has_audio = view.excerpt is not None and view.excerpt.audio is not None and view.client is not None
    whole_call = context.link.get(VIEW) == CALL and has_audio
    return [
        neighbors(view.call, *wanted, context.choice, **_kept(context.link)),
        headline(view.client, view.service, picture, whole_call=whole_call),
    ]


def _kept(link: Mapping[str, str]) -> dict[str, str]:
    """What a link to another turn of the call keeps of this one's."""
    listed, _ = turns_choice_of(link)
    return listed.query() | ({VIEW: CALL} if link.get(VIEW) == CALL else {})


def draw(view: TurnView, picture: Waterfall, wanted: tuple[str, int], context: PageContext) -> None:
    """The turn in its call, its waterfall, and what is known of it in words."""
    client, service, (trace_id, index), choice = view.client, view.service, wanted, context.choice
    whole_call = context.link.get(VIEW) == CALL
    for part in _head(view, picture, wanted, context):
        st.html(part)
    _picture(view, picture, whole_call=whole_call)
    st.html(notices(view.excerpt, view.kept_in))
    if shown := words(client, view.excerpt):
        st.html(shown)
    if strip := call_strip(view.call, trace_id, index, choice, **_kept(context.link)):
        st.html(strip)
    if view.excerpt is not None and view.excerpt.audio is not None:
        other = {} if whole_call else {VIEW: CALL}
        listed, _ = turns_choice_of(context.link)
        address = choice.link("turns", trace=trace_id, turn=str(index), **listed.query(), **other)
        label = "listen to this turn alone" if whole_call else "listen to the whole call"
        st.html(f'<div class="vp"><a href="{escape(address)}" target="_self">{label}</a></div>')
    with st.container(key="halves"):
        left, middle, right = st.columns([1, 1.1, 1.5])
    with left:
        st.html(evidence_of(client))
    with middle:
        st.html(dimensions(client or service, context.zone))
    with right:
        st.html(moments(picture))
        if stated := reported(client):
            st.html(stated)


def _picture(view: TurnView, picture: Waterfall, *, whole_call: bool) -> None:
    """The waterfall: with the audio where it was kept, else alone."""
    colors, excerpt, client = palette(st.context.theme.type), view.excerpt, view.client
    if excerpt is None or excerpt.audio is None or client is None:
        spec = waterfall_spec(colors, view_ms(picture), picture.origin_label)
        chart(waterfall_rows(picture), spec, _ALT, waterfall_table(picture), table_at_once=True)
        return
    key = f"{client.trace_id}-{client.turn_index}"
    if whole_call:
        call_player(view.call, excerpt, client, colors, key=f"{key}-call")
        table_below(call_table(view.call))
    else:
        turn_player(picture, excerpt, _zero(client), colors, key=key)
        table_below(waterfall_table(picture))


def _zero(client: Turn) -> int:
    """The moment of the waterfall's 0 on the clock of the turn."""
    return client.started_perf_ns if client.speech_end_perf_ns is None else client.speech_end_perf_ns


def neighbors(call: Sequence[TurnOfCall], trace_id: str, turn_index: int, choice: Choice, **more: str) -> str:
    """Links to the previous and the next turn of the call; text where there is none."""
    before = [turn.turn_index for turn in call if turn.turn_index < turn_index]
    after = [turn.turn_index for turn in call if turn.turn_index > turn_index]
    previous = _step(choice, trace_id, before[-1] if before else None, "← previous turn", more)
    following = _step(choice, trace_id, after[0] if after else None, "next turn →", more)
    place = [turn.turn_index for turn in call].index(turn_index) + 1 if len(before) < len(call) else 0
    return (
        '<nav class="vp vp-neighbors" aria-label="Turns of this call">'
        f"{previous}<span>turn {place} of {len(call)} in this call</span>{following}</nav>"
    )


def _step(choice: Choice, trace_id: str, index: int | None, label: str, more: dict[str, str]) -> str:
    if index is None:
        return f'<span class="hint" aria-disabled="true">{label}</span>'
    link = choice.link("turns", trace=trace_id, turn=str(index), **more)
    return f'<a href="{escape(link)}" target="_self">{label}</a>'


def call_strip(call: Sequence[TurnOfCall], trace_id: str, turn_index: int, choice: Choice, **more: str) -> str:
    """The call from its first turn to its last: where the caller spoke and where replies played."""
    whole_ns = max((turn.end_ns for turn in call), default=0)
    if whole_ns <= 0:
        return ""
    items = "".join(
        _turn_of_call(
            turn,
            whole_ns,
            choice.link("turns", trace=trace_id, turn=str(turn.turn_index), **more),
            is_shown=turn.turn_index == turn_index,
        )
        for turn in call
    )
    return (
        '<div class="vp vp-call"><div class="vp-head"><h2>The call <span class="hint">'
        f"{seconds(whole_ns)}, {len(call)} turns on one clock; open one</span></h2></div>"
        f'<ol class="vp-call-track">{items}</ol></div>'
    )


def _turn_of_call(turn: TurnOfCall, whole_ns: int, link: str, *, is_shown: bool) -> str:
    begin, length = turn.start_ns, max(turn.end_ns - turn.start_ns, 1)
    parts = "".join(
        f'<i class="{kind}" style="left:{css_percent((stretch[0] - begin) / length)};'
        f'width:{css_percent((stretch[1] - stretch[0]) / length)}"></i>'
        for kind, stretch in (("speech", turn.speech_ns), ("playing", turn.reply_ns))
        if stretch is not None
    )
    value = turn.voice_to_voice_ns
    waited = OUTCOME_LABELS[turn.outcome] if value is None else milliseconds(value)
    name = f"turn {turn.turn_index + 1}, {waited}"
    current = ' aria-current="page"' if is_shown else ""
    return (
        f'<li style="left:{css_percent(begin / whole_ns)};width:{css_percent(length / whole_ns)}">'
        f'<a href="{escape(link)}" target="_self" title="{escape(name)}" aria-label="{escape(name)}"{current}>'
        f"{parts}</a></li>"
    )


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


def evidence_of(client: Turn | None) -> str:
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


NOTHING_KEPT = (
    "No audio and no words were kept of this call: a run keeps them with <code>--keep-audio</code> and "
    "<code>--keep-text</code>, for as long as <code>--keep-for</code> says."
)


def notices(excerpt: CallExcerpt | None, kept_in: str | None) -> str:
    """One line on what was kept, where it is, and until when."""
    if excerpt is None and kept_in is not None:
        return _hint(
            f"Nothing of this call is kept beside this store. The run kept calls on the machine of its callers, in "
            f"<code>{escape(kept_in)}</code>; they are removed when their time is over."
        )
    if excerpt is None:
        return _hint(NOTHING_KEPT)
    lines: list[str] = []
    if excerpt.fault:
        lines.append(f"The recording cannot be played: {escape(excerpt.fault)}.")
    if excerpt.note:
        lines.append(f"{escape(excerpt.note[:1].upper() + excerpt.note[1:])}.")
    if excerpt.missing:
        lines.append(f"Some of the audio is missing: {escape(excerpt.missing[0][2])}.")
    if excerpt.expires_unix_ns:
        until = datetime.fromtimestamp(excerpt.expires_unix_ns // NS_PER_S, UTC)
        lines.append(f"Kept until {until:%d %b %Y %H:%M} UTC.")
    return _hint(" ".join(lines)) if lines else ""


def _hint(sentence: str) -> str:
    return f'<div class="vp hint vp-kept">{sentence}</div>'


def words(client: Turn | None, excerpt: CallExcerpt | None) -> str:
    """What was said, how it was understood and what was answered, as far as it was kept."""
    kept = None if excerpt is None else excerpt.turn
    in_store = None if client is None else client.transcript_pii
    transcript = (None if kept is None else kept.transcript) or in_store
    pairs = [
        ("said", kept.asked if kept is not None else None),
        ("understood", transcript),
        ("answered", kept.reply if kept is not None else None),
    ]
    shown = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in pairs if text)
    if not shown:
        return ""
    partials = kept.partials if kept is not None else ()
    steps = "".join(f"<li><b>{milliseconds(each.after_ns)}</b> {escape(each.text)}</li>" for each in partials)
    many = formatting.count(len(partials), "partial transcript")
    listed = f"<details><summary>{many}</summary><ol>{steps}</ol></details>" if steps else ""
    return f'<div class="vp vp-words"><h2>Words</h2><dl>{shown}</dl>{listed}</div>'
