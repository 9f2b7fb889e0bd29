"""The head of the Now page: which data, how old, how much of it can be trusted; as HTML."""

from collections.abc import Sequence
from datetime import tzinfo

from dashboard import descriptions
from dashboard.components.markup import escape
from dashboard.components.objectives import SYMBOLS, State, chip
from dashboard.links import WINDOW_LABELS
from telemetry.model import formatting
from telemetry.store.answers import RunRecord, Summary

_STATE_SHAPE = {"live": "●", "stale": "◌", "ended": "■"}


def overview(
    run: RunRecord,
    summary: Summary,
    state: descriptions.State,
    now_unix_ns: int,
    zone: tzinfo,
    *,
    window: str | None = None,
) -> str:
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
    time = "" if window is None else fact("time", WINDOW_LABELS[window])
    if run.service is not None:
        of_service = (
            chip_of_state,
            fact("service", run.service.service),
            fact("day", f"{run.service.day.isoformat()} (UTC)"),
            time,
            f"<span>{turns} {escape(summary.client_service_delta.reported)}</span>",
        )
        return f'<div class="vp vp-facts">{"".join(of_service)}</div>'
    parts = (
        chip_of_state,
        fact("run", run.run_id),
        fact("target", run.target or descriptions.UNKNOWN),
        time,
        f"<span>{turns}</span>",
    )
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


def details(run: RunRecord, summary: Summary) -> str:
    """How well the figures were measured, behind the chip that sums it up."""
    delta = descriptions.describe_client_service_delta(summary.client_service_delta, run.service)
    noticed = [fact(name, escape(text), "unknown") for name, text in summary.contradictions.texts.items()]
    if run.service is not None:
        return lines_of_details([*noticed, fact("heard vs reported", delta)])
    lost, good = descriptions.describe_loss(summary.loss)
    lost_state: State = "met" if good else "unknown" if good is None else "missed"
    invalid_state: State = "met" if not summary.turns.invalid else "unknown"
    if summary.limit is not None:
        invalid_state = "missed"
    unread = descriptions.describe_unread(summary.turns)
    parts = (
        fact("protocol", run.protocol or descriptions.UNKNOWN),
        fact("corpus", descriptions.describe_corpus(run)),
        fact("turns", descriptions.describe_invalid(summary.turns), invalid_state),
        *([fact("endpoint", unread, "missed")] if unread else []),
        *noticed,
        fact("telemetry", lost, lost_state),
        fact("heard vs reported", delta),
        *(
            fact(line, descriptions.describe_generator(summary.generator, line))
            for line in ("generator", "its process")
        ),
        fact("speech bounds", descriptions.describe_speech_bounds(summary.speech_bounds)),
        fact("calibration", descriptions.describe_calibration(run)),
    )
    return lines_of_details(parts)


def lines_of_details(lines: Sequence[str]) -> str:
    """The lines behind the chip that sums them up, each made by `fact`."""
    return f'<div class="vp vp-facts vp-details">{"".join(lines)}</div>'


def fact(key: str, value: str, state: State | None = None) -> str:
    """A line of an overview, or of details: what it is about, and of details how good that is."""
    mark = "" if state is None else f'<span class="vp-chip vp-plain {state}">{SYMBOLS[state]}</span>&nbsp;'
    return f'<span><span class="key">{escape(key)}</span>{mark}{escape(value)}</span>'


def notes(sentences: Sequence[str], title: str) -> str:
    """What is wrong with the data, above the figures that still stand; empty when there is nothing to say."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<div class="vp vp-note missed"><b>{chip("missed", title)}</b><ul>{items}</ul></div>'


def empty(title: str, *lines: str) -> str:
    """A page that has nothing to show says why, and what to do. `lines` are HTML."""
    return f'<div class="vp vp-empty"><h2>{escape(title)}</h2>{"".join(f"<div>{line}</div>" for line in lines)}</div>'
