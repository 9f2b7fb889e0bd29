"""The table of turns, each a link to its waterfall, and the links between its pages; as HTML."""

from collections.abc import Sequence
from dataclasses import replace

from dashboard.descriptions import Clock
from dashboard.filters import Choice
from dashboard.markup import escape, short
from dashboard.turns_choice import TurnsChoice
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS
from telemetry.store.questions.turns import MOST_PAGED, ListedTurn, TurnsAnswer

PAGE = "turns"
_COLUMNS = ("voice to voice", "began", "outcome", "utterance", "cohort", "route", "model", "noise", "cache", "fallback")
_CACHE = {None: formatting.DASH, True: "hit", False: "miss"}


def table(turns: Sequence[ListedTurn], choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    """The rows of one page."""
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    rows = "".join(_row(turn, choice, listed, clock) for turn in turns)
    return (
        '<div class="vp vp-turns" role="region" aria-label="Turns" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(turn: ListedTurn, choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    link = choice.link(PAGE, trace=turn.trace_id, turn=str(turn.turn_index), **listed.query())
    value = formatting.DASH if turn.value_ns is None else formatting.milliseconds(turn.value_ns)
    name = f"{value}, open the turn"
    cells = (
        clock(turn.started_unix_ns),
        OUTCOME_LABELS[turn.outcome],
        *(each or formatting.DASH for each in (turn.utterance_id, turn.cohort, turn.route, turn.model)),
        turn.noise_profile or formatting.DASH,
        _CACHE[turn.cache_hit],
        turn.fallback or formatting.DASH,
    )
    shown = "".join(f"<td>{short(cell)}</td>" for cell in cells)
    opening = f'<a href="{escape(link)}" target="_self" aria-label="{escape(name)}">{escape(value)} →</a>'
    return f'<tr><th scope="row">{opening}</th>{shown}</tr>'


def pages(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice) -> str:
    """Which page this is, with links to those before and after it."""
    if answer.pages <= 1:
        return ""
    before = _step(choice, listed, answer.page - 1, "← previous page", is_there=answer.page > 0)
    after = _step(choice, listed, answer.page + 1, "next page →", is_there=answer.page + 1 < answer.pages)
    is_cut = answer.total > MOST_PAGED
    capped = f"; the first {MOST_PAGED:,} can be listed, narrow the search for others" if is_cut else ""
    return (
        '<nav class="vp vp-neighbors" aria-label="Pages of the table">'
        f"{before}<span>page {answer.page + 1} of {answer.pages}{capped}</span>{after}</nav>"
    )


def _step(choice: Choice, listed: TurnsChoice, page: int, label: str, *, is_there: bool) -> str:
    if not is_there:
        return f'<span class="hint" aria-disabled="true">{label}</span>'
    link = choice.link(PAGE, **replace(listed, at_page=page or None).query())
    return f'<a href="{escape(link)}" target="_self">{label}</a>'


def narrowed(answer: TurnsAnswer, choice: Choice, listed: TurnsChoice, clock: Clock) -> str:
    """What is listed, in a sentence, with a link that takes each narrowing away."""
    parts: list[tuple[str, TurnsChoice]] = []
    if listed.find:
        parts.append((f"found by “{listed.find}”", replace(listed, find=None, at_page=None)))
    if listed.since_s is not None or listed.until_s is not None:
        begun = [clock(s * formatting.NS_PER_S) for s in (listed.since_s, listed.until_s) if s]
        parts.append((f"began {' to '.join(begun)}", replace(listed, since_s=None, until_s=None, at_page=None)))
    if listed.from_ms is not None or listed.below_ms is not None:
        low = f"from {_limit(listed.from_ms)}" if listed.from_ms is not None else ""
        high = f"below {_limit(listed.below_ms)}" if listed.below_ms is not None else ""
        parts.append((f"{low} {high}".strip(), replace(listed, from_ms=None, below_ms=None, at_page=None)))
    for name, value in (("outcome", listed.outcome), ("model", listed.model)):
        if value:
            parts.append((f"{name} {value}", replace(listed, **{name: None}, at_page=None)))  # pyright: ignore[reportArgumentType]
    chips = "".join(
        f'<a class="vp-without" href="{escape(choice.link(PAGE, **without.query()))}" target="_self" '
        f'aria-label="{escape(f"remove: {text}")}">{escape(text)} ✕</a>'
        for text, without in parts
    )
    words = ""
    if listed.find and answer.words.calls:
        looked = "" if answer.words.is_all else "the first "
        words = f' <span class="hint">words of {looked}{answer.words.calls:,} kept calls were searched</span>'
    return f'<div class="vp vp-narrowed"><b>{escape(formatting.turns(answer.total))}</b> {chips}{words}</div>'


def _limit(ms: float) -> str:
    return formatting.declared_milliseconds(ms * formatting.NS_PER_MS)
