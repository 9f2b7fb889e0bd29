"""The row of selectors: what to look at. The link always carries the choice, and is the one place where it is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import streamlit as st

from dashboard import descriptions
from dashboard.components.refreshing import title as draw_title
from dashboard.links import DIMENSION_OF, NEWEST, WHOLE, WINDOW_LABELS, Choice, window_of
from dashboard.source import runs_elsewhere
from telemetry.model import formatting
from telemetry.store.answers import RunRecord
from telemetry.store.run_folders.entries import RunEntry

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
    "rollout": "Rollout",
    "looks": "Time of looks",
    "at_stage": "Stage of looks",
    "decision": "Verdict of looks",
    "began": "Time",
    "target": "Target",
    "state": "State",
    "profile": "Profile",
    "scenario": "Scenario",
    "callers": "Callers",
    "protocol": "Protocol",
}
# Between store and run in the value of an option: in no name of a folder, and in no address.
_IN: Final = "\n"


class Offered(Protocol):
    """What there is to choose from: the runs of the store, and the values of each dimension which occur in the page's
    run."""

    @property
    def runs(self) -> Sequence[RunRecord]: ...
    @property
    def run(self) -> RunRecord | None: ...
    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class Selector:
    """What can be chosen of one thing: its parameter in the link, the values, how each is named (the empty one means
    any), and what the link says."""

    name: str
    values: Sequence[str]
    label_of: Callable[[str], str]
    chosen: str | None


def controls(offered: Offered, choice: Choice, title: str) -> None:
    """Draw the page's title and its selectors: run, time and cohort in sight, the others behind "Filters". A change
    rewrites the link and runs the page again. Raises ConfigError for a place with runs that is not a folder."""
    default = window_of(replace(choice, window=None), offered.run)
    # The default is the empty choice, so that a link names what was chosen alone.
    left_out = (NEWEST, WHOLE) if default is None else (NEWEST, "1h")
    windows = {name: label for name, label in WINDOW_LABELS.items() if name not in left_out}
    windows[""] = WINDOW_LABELS[default or WHOLE]
    chosen = choice.window if choice.window in windows else None
    in_sight = (
        run_selector(offered.runs, choice, "newest run"),
        Selector("window", [name for name in windows if name], lambda name: windows[name], chosen),
        value_selector(offered, choice, "cohort", "every cohort"),
    )
    behind = (
        value_selector(offered, choice, "phase", "all but ramps"),
        value_selector(offered, choice, "length", "any length"),
        value_selector(offered, choice, "noise", "any noise"),
        value_selector(offered, choice, "route", "any route"),
    )
    selector_row(title, in_sight, behind, widths=(3.0, 1.4, 1.6))


def value_selector(offered: Offered, choice: Choice, name: str, any_value: str) -> Selector:
    """The selector of a value of turns; `any_value` names the empty choice."""
    values = offered.choices.get(DIMENSION_OF[name], ())
    return Selector(name, values, lambda value: value or any_value, getattr(choice, name))


def run_selector(runs: Sequence[RunRecord], choice: Choice, any_run: str, of_link: RunRecord | None = None) -> Selector:
    """The selector of some runs of the store and of those of other stores that are shown. `any_run` names the empty
    choice; `of_link` is the run of the link where it may not be among them. Raises ConfigError as `controls`."""
    elsewhere = {f"{each.store}{_IN}{each.run_id}": each for each in runs_elsewhere(choice.store)}
    named = {each.run_id: each for each in (*runs, *([] if of_link is None else [of_link]))}

    def label_of(run_id: str) -> str:
        if not run_id:
            return any_run
        return elsewhere_label(elsewhere[run_id]) if run_id in elsewhere else run_label(run_id, named)

    return Selector("run", [*(each.run_id for each in runs), *elsewhere], label_of, choice.run)


def selector_row(title: str, in_sight: Sequence[Selector], behind: Sequence[Selector], widths: Sequence[float]) -> None:
    """Draw a page's title, its selectors in sight with their widths, and the others behind "Filters"; a change rewrites
    the link and runs the page again."""
    with st.container(key="selectors"):
        first, *others, last = st.columns((1.5, *widths, 1.1), gap="small", vertical_alignment="bottom")
    with first:
        draw_title(title)
    names = [each.name for each in (*in_sight, *behind)]
    for column, selector in zip(others, in_sight, strict=True):
        with column:
            _select(selector, names)
    set_behind = sum(each.chosen is not None for each in behind)
    with last, st.popover(f"Filters ({set_behind})" if set_behind else "Filters", width="stretch"):
        for selector in behind:
            _select(selector, names)


def run_label(run_id: str, runs: Mapping[str, RunRecord]) -> str:
    """A run as the selector names it."""
    run = runs.get(run_id)
    if run is None:
        return f"{run_id} (not in this store)"
    if run.service is not None:
        return f"service {run.service.service} · {run.service.day:%d %b} UTC · {formatting.turns(run.turns)}"
    return f"{run_id} · {descriptions.day_and_time(run.first_unix_ns)} UTC · {formatting.turns(run.turns)}"


def elsewhere_label(entry: RunEntry) -> str:
    """A run of another store as the selector names it."""
    return f"{entry.title} · {formatting.turns(entry.turns)} · {entry.store}"


def _select(selector: Selector, names: Sequence[str]) -> None:
    name, chosen = selector.name, selector.chosen
    every = [_ANY, *selector.values, *([chosen] if chosen is not None and chosen not in selector.values else [])]
    linked_select(
        _LABELS[name],
        every,
        chosen or _ANY,
        key=_KEY + name,
        label_of=selector.label_of,
        rewrite=_rewrite_link,
        names=names,
    )


def linked_select(
    label: str,
    options: Sequence[str],
    chosen: str,
    *,
    key: str,
    label_of: Callable[[str], str],
    rewrite: Callable[..., None],
    **given: Any,
) -> None:
    """A list to choose from, in which the link decides what is chosen, also when it changed under the page; `rewrite`
    lets the link say what was chosen."""
    if st.session_state.get(key) != chosen:
        st.session_state[key] = chosen
    st.selectbox(label, list(options), format_func=label_of, key=key, on_change=rewrite, kwargs=given)


def _rewrite_link(names: Sequence[str]) -> None:
    """Let the link say what the selectors of these names do."""
    chosen = {name: value for name in names if (value := st.session_state.get(_KEY + name))}
    store, is_elsewhere, run_id = str(chosen.get("run", "")).rpartition(_IN)
    if is_elsewhere:
        # What was narrowed belongs to the run that was shown.
        chosen = Choice(run=run_id, store=store).query()
    others = {name: value for name, value in st.query_params.items() if name not in names}
    st.query_params.from_dict({**others, **chosen})
