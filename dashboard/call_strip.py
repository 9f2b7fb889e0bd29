"""The turns of a call on the call's own clock, each a link, with the ones before and after; as HTML."""

from collections.abc import Sequence

from dashboard.filters import Choice
from dashboard.markup import css_percent, escape
from telemetry.model.formatting import milliseconds, seconds
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.questions.turns import TurnOfCall


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


def strip(call: Sequence[TurnOfCall], trace_id: str, turn_index: int, choice: Choice, **more: str) -> str:
    """The call from its first turn to its last: where the caller spoke and where replies played."""
    whole_ns = max((turn.end_ns for turn in call), default=0)
    if whole_ns <= 0:
        return ""
    items = "".join(
        _turn(
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


def _turn(turn: TurnOfCall, whole_ns: int, link: str, *, is_shown: bool) -> str:
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
