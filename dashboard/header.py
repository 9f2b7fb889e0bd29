"""The head of the Now page: which data, how old, how much of it can be trusted; as HTML."""

from collections.abc import Sequence
from datetime import tzinfo

from dashboard import words
from dashboard.standing import SYMBOLS, chip
from dashboard.words import State, escape
from telemetry.store.answers import RunInfo, Summary

_STATE_SHAPE = {"live": "●", "stale": "◌", "ended": "■"}


def facts(run: RunInfo, summary: Summary, state: State, now_unix_ns: int, zone: tzinfo) -> str:
    """Two lines: what was measured, and how well."""
    newest = summary.newest_unix_ns or run.last_unix_ns
    kind = {"live": "met", "stale": "missed", "ended": "unknown"}[state]
    lost, good = words.loss_words(summary.loss)
    lost_state = "met" if good else "unknown" if good is None else "missed"
    invalid_state = "met" if not summary.turns.invalid else "unknown"
    if summary.turns.is_generator_limited:
        invalid_state = "missed"
    parts = [
        f'<span><span class="vp-chip {kind}">{_STATE_SHAPE[state]} {state}</span> '
        f"{escape(words.state_sentence(state, newest, now_unix_ns, zone))}</span>",
        _fact("run", run.run_id),
        _fact("target", run.target or words.UNKNOWN),
        _fact("protocol", run.protocol or words.UNKNOWN),
        _fact("corpus", words.corpus_words(run)),
        f"<span><b>{escape(words.count(summary.turns.total, 'turn'))}</b> "
        f"{_mark(invalid_state)}{escape(words.invalid_words(summary.turns))}</span>",
        _fact("telemetry", lost, mark=_mark(lost_state)),
        _fact("heard vs reported", words.agreement_words(summary.agreement)),
        _fact("generator", words.generator_words(summary.generator)),
        _fact("its process", words.instrument_words(summary.generator)),
        f'<span class="hint">{escape(words.calibration_words(run))}</span>',
    ]
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


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
