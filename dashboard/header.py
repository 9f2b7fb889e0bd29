"""The head of the Now page: which data, how old, how much of it can be trusted; as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from dashboard import descriptions
from dashboard.descriptions import State
from dashboard.markup import escape
from dashboard.objective_status import SYMBOLS, chip
from telemetry.model import formatting
from telemetry.store.answers import RunRecord, Summary

_STATE_SHAPE = {"live": "●", "stale": "◌", "ended": "■"}


@dataclass(frozen=True, slots=True)
class MarkedLine:
    """One line of the details: what it is about, what it says, and in which state that is, if in any."""

    key: str
    value: str
    state: str | None = None


def overview(run: RunRecord, summary: Summary, state: State, now_unix_ns: int, zone: tzinfo) -> str:
    """One line: which data, how old it is, and how much of it."""
    newest = summary.newest_unix_ns or run.last_unix_ns
    kind = {"live": "met", "stale": "missed", "ended": "unknown"}[state]
    described = descriptions.describe_state(state, newest, now_unix_ns, zone, is_service=run.service is not None)
    if state == "live":
        described += descriptions.describe_silence(summary.heard_unix_ns, now_unix_ns)
    chip_of_state = (
        f'<span><span class="vp-chip {kind}">{_STATE_SHAPE[state]} {state}</span> {escape(described)}</span>'
    )
    turns = f"<b>{escape(formatting.turns(summary.turns.total))}</b>"
    if run.service is not None:
        of_service = (
            chip_of_state,
            _fact("service", run.service.service),
            _fact("day", f"{run.service.day.isoformat()} (UTC)"),
            f"<span>{turns} {escape(summary.client_service_delta.reported)}</span>",
        )
        return f'<div class="vp vp-facts">{"".join(of_service)}</div>'
    parts = (
        chip_of_state,
        _fact("run", run.run_id),
        _fact("target", run.target or descriptions.UNKNOWN),
        f"<span>{turns}</span>",
    )
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


def details(run: RunRecord, summary: Summary) -> str:
    """How well the figures were measured, behind the chip that sums it up."""
    delta = descriptions.describe_client_service_delta(summary.client_service_delta, run.service)
    if run.service is not None:
        return f'<div class="vp vp-facts vp-details">{_fact("heard vs reported", delta)}</div>'
    lost, good = descriptions.describe_loss(summary.loss)
    lost_state = "met" if good else "unknown" if good is None else "missed"
    invalid_state = "met" if not summary.turns.invalid else "unknown"
    if summary.limit is not None:
        invalid_state = "missed"
    unread = descriptions.describe_unread(summary.turns)
    parts = (
        _fact("protocol", run.protocol or descriptions.UNKNOWN),
        _fact("corpus", descriptions.describe_corpus(run)),
        _fact("turns", descriptions.describe_invalid(summary.turns), mark=_mark(invalid_state)),
        *([_fact("endpoint", unread, mark=_mark("missed"))] if unread else []),
        _fact("telemetry", lost, mark=_mark(lost_state)),
        _fact("heard vs reported", delta),
        *(
            _fact(line, descriptions.describe_generator(summary.generator, line))
            for line in ("generator", "its process")
        ),
        _fact("speech bounds", descriptions.describe_speech_bounds(summary.speech_bounds)),
        _fact("calibration", descriptions.describe_calibration(run)),
    )
    return f'<div class="vp vp-facts vp-details">{"".join(parts)}</div>'


def marked_lines(found: Sequence[MarkedLine]) -> str:
    """Lines behind the chip that sums them up, as HTML."""
    parts = (_fact(each.key, each.value, "" if each.state is None else _mark(each.state)) for each in found)
    return f'<div class="vp vp-facts vp-details">{"".join(parts)}</div>'


def _fact(key: str, value: str, mark: str = "") -> str:
    return f'<span><span class="key">{escape(key)}</span>{mark}{escape(value)}</span>'


def _mark(state: str) -> str:
    symbol = SYMBOLS["met" if state == "met" else "missed" if state == "missed" else "unknown"]
    return f'<span class="vp-chip vp-plain {state}">{symbol}</span>&nbsp;'


def notes(sentences: Sequence[str], title: str) -> str:
    """What is wrong with the data, above the figures that still stand; empty when there is nothing to say."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<div class="vp vp-note missed"><b>{chip("missed", title)}</b><ul>{items}</ul></div>'


def empty(title: str, *lines: str) -> str:
    """A page that has nothing to show says why, and what to do. `lines` are HTML."""
    return f'<div class="vp vp-empty"><h2>{escape(title)}</h2>{"".join(f"<div>{line}</div>" for line in lines)}</div>'
