"""The row of selectors: what to look at. The link always carries the choice, and is the one place where it is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final, Protocol

import streamlit as st

from dashboard import descriptions
from dashboard.filters import DIMENSION_OF, WINDOW_LABELS, Choice
from dashboard.markup import escape
from dashboard.runs_source import runs_elsewhere
from telemetry.model import formatting
from telemetry.store.answers import RunRecord
from telemetry.store.run_folders.entries import RunEntry

_WIDTHS: Final = (1.5, 3.0, 1.4, 1.6, 1.1)
_KEY: Final = "choice_"
_ANY: Final = ""  # as an option None would be an empty field, with a cross to clear it
_LABELS: Final = {
    "run": "Run",
    "window": "Time",
    "cohort": "Cohort",
    "phase": "Phase",
    "length": "Length of the utterance",
    "noise": "Noise",
    "route": "Route",
}
# Between store and run in the value of an option: in no name of a folder, and in no address.
_IN: Final = "\n"
_BEHIND: Final = ("phase", "length", "noise", "route")


class Offered(Protocol):
    """What there is to choose from: the runs of the store, and the values of each dimension which occur in the page's
    run."""

    @property
    def runs(self) -> Sequence[RunRecord]: ...
    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]: ...


def controls(offered: Offered, choice: Choice, title: str) -> None:
    """Draw the page's title and its selectors: run, time and cohort in sight, the others behind "Filters". A change
    rewrites the link and runs the page again. Raises ConfigError for a place with runs that is not a folder."""
    known = {name: offered.choices.get(dimension, ()) for name, dimension in DIMENSION_OF.items()}
    by_id = {each.run_id: each for each in offered.runs}
    elsewhere = {f"{each.store}{_IN}{each.run_id}": each for each in runs_elsewhere(choice.store)}

    def label_of(run_id: str) -> str:
        return elsewhere_label(elsewhere[run_id]) if run_id in elsewhere else run_label(run_id, by_id)

    selectors: dict[str, tuple[Sequence[str], Callable[[str], str]]] = {
        "run": ([*by_id, *elsewhere], label_of),
        "window": (list(WINDOW_LABELS), lambda name: WINDOW_LABELS[name] if name else "whole run"),
        "cohort": (known["cohort"], lambda name: name or "every cohort"),
        "phase": (known["phase"], lambda name: name or "all but ramps"),
        "length": (known["length"], lambda name: name or "any length"),
        "noise": (known["noise"], lambda name: name or "any noise"),
        "route": (known["route"], lambda name: name or "any route"),
    }
    with st.container(key="selectors"):
        first, *others, last = st.columns(_WIDTHS, gap="small", vertical_alignment="bottom")
    with first:
        st.html(f'<div class="vp"><h1>{escape(title)}</h1></div>')
    for column, name in zip(others, ("run", "window", "cohort"), strict=True):
        with column:
            _select(name, *selectors[name], getattr(choice, name))
    set_behind = sum(getattr(choice, name) is not None for name in _BEHIND)
    with last, st.popover(f"Filters ({set_behind})" if set_behind else "Filters", width="stretch"):
        for name in _BEHIND:
            _select(name, *selectors[name], getattr(choice, name))


def run_label(run_id: str, runs: Mapping[str, RunRecord]) -> str:
    """A run as the selector names it."""
    if not run_id:
        return "newest run"
    run = runs.get(run_id)
    if run is None:
        return f"{run_id} (not in this store)"
    if run.service is not None:
        return f"service {run.service.service} · {run.service.day:%d %b} UTC · {formatting.turns(run.turns)}"
    return f"{run_id} · {descriptions.day_and_time(run.first_unix_ns)} UTC · {formatting.turns(run.turns)}"


def elsewhere_label(entry: RunEntry) -> str:
    """A run of another store as the selector names it."""
    return f"{entry.title} · {formatting.turns(entry.turns)} · {entry.store}"


def _select(name: str, options: Sequence[str], label: Callable[[str], str], chosen: str | None) -> None:
    every = [_ANY, *options, *([chosen] if chosen is not None and chosen not in options else [])]
    if st.session_state.get(_KEY + name) != (chosen or _ANY):
        st.session_state[_KEY + name] = chosen or _ANY  # the link decides, also when it changed under the page
    st.selectbox(_LABELS[name], every, format_func=label, key=_KEY + name, on_change=_rewrite_link)


def _rewrite_link() -> None:
    chosen = Choice(**{each.name: st.session_state.get(_KEY + each.name) or None for each in fields(Choice)})
    store, is_elsewhere, run_id = (chosen.run or "").rpartition(_IN)
    if is_elsewhere:
        # What was narrowed belongs to the run that was shown.
        chosen = Choice(run=run_id, store=store)
    others = {name: value for name, value in st.query_params.items() if name not in _LABELS}
    st.query_params.from_dict({**others, **chosen.query()})
