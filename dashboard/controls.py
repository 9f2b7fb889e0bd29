"""The row of selectors: what to look at. The link always carries the choice, and is the one place where it is kept."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Final

import streamlit as st

from dashboard import descriptions
from dashboard.filters import WINDOW_LABELS, Choice
from dashboard.source import NowView, Source
from telemetry.model import formatting

_WIDTHS: Final = (3.0, 1.1, 1.1, 1.2, 1.1, 1.1, 1.1)
_KEY: Final = "choice_"
_ANY: Final = ""  # as an option None would be an empty field, with a cross to clear it


def controls(source: Source, view: NowView, choice: Choice) -> Choice:
    """Draw the selectors; gives what is chosen. A change rewrites the link and runs the page again."""
    runs = {run.run_id: run for run in view.runs}
    known = source.choices(view.run.run_id) if view.run is not None else {}

    def run_label(run_id: str) -> str:
        if not run_id:
            return "newest run"
        run = runs.get(run_id)
        if run is None:
            return f"{run_id} (not in this store)"
        if run.service is not None:
            return f"service {run.service.service} · {run.service.day:%d %b} UTC · {formatting.turns(run.turns)}"
        return f"{run_id} · {descriptions.day_and_time(run.first_unix_ns)} UTC · {formatting.turns(run.turns)}"

    columns = st.columns(_WIDTHS, gap="small")
    selectors: tuple[tuple[str, Sequence[str], Callable[[str], str]], ...] = (
        ("run", list(runs), run_label),
        ("window", list(WINDOW_LABELS), lambda name: WINDOW_LABELS[name] if name else "whole run"),
        ("cohort", known.get("cohort", ()), lambda name: f"cohort {name}" if name else "every cohort"),
        ("phase", known.get("phase", ()), lambda name: name or "all but ramps"),
        ("length", known.get("length_class", ()), lambda name: name or "any length"),
        ("noise", known.get("noise_profile", ()), lambda name: name or "any noise"),
        ("route", known.get("route", ()), lambda name: name or "any route"),
    )
    for column, (name, options, label) in zip(columns, selectors, strict=True):
        with column:
            _select(name, options, label, getattr(choice, name))
    return choice


def _select(name: str, options: Sequence[str], label: Callable[[str], str], chosen: str | None) -> None:
    every = [_ANY, *options, *([chosen] if chosen is not None and chosen not in options else [])]
    if st.session_state.get(_KEY + name) != (chosen or _ANY):
        st.session_state[_KEY + name] = chosen or _ANY  # the link decides, also when it changed under the page
    st.selectbox(name, every, format_func=label, key=_KEY + name, label_visibility="collapsed", on_change=_rewrite_link)


def _rewrite_link() -> None:
    chosen = Choice(**{each.name: st.session_state.get(_KEY + each.name) or None for each in fields(Choice)})
    st.query_params.from_dict(chosen.query())
