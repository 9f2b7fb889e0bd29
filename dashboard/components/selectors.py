"""The row of selectors. The link always carries the selection, and is the only place where it is stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import streamlit as st

from dashboard import descriptions
from dashboard.links import DIMENSION_OF, TIME_LABELS, WHOLE, WINDOWS, Choice
from telemetry.model import formatting
from telemetry.store.answers import RunRecord
from telemetry.store.run_folders.entries import RunEntry

_KEY: Final = "choice_"
_ANY: Final = ""  # as an option None would be an empty field, with a cross to clear it
LABELS: Final = {
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
_ANY_VALUE: Final = {
    "cohort": "every cohort",
    "phase": "all but ramps",
    "length": "any length",
    "noise": "any noise",
    "route": "any route",
}
# Separates store and run in the value of an option; occurs in no folder name and in no address.
_IN: Final = "\n"


class Offered(Protocol):
    """The runs of the store, and the values of each dimension which occur in the page's run."""

    @property
    def runs(self) -> Sequence[RunRecord]: ...
    @property
    def run(self) -> RunRecord | None: ...
    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector of one parameter of the link: its values, the value in the link, the label of the empty choice, and
    the labels of values where they differ."""

    name: str
    values: Sequence[str]
    chosen: str | None
    any_value: str
    labels: Mapping[str, str] | None = None

    def label_of(self, value: str) -> str:
        """The name of a value."""
        return (self.labels or {}).get(value, value) if value else self.any_value


@dataclass(frozen=True, slots=True)
class SelectorRow:
    """The selectors of a page: those always visible, with their widths, and those behind "Filters"."""

    in_sight: Sequence[tuple[Selector, float]] = ()
    behind: Sequence[Selector] = ()

    def draw(self, draw_title: Callable[[], None]) -> None:
        """Draw the page's title and its selectors; a change rewrites the link and runs the page again."""
        if not self.in_sight:
            draw_title()
            return
        widths = [width for _, width in self.in_sight]
        with st.container(key="selectors"):
            first, *others, last = st.columns((1.5, *widths, 1.1), gap="small", vertical_alignment="bottom")
        with first:
            draw_title()
        names = [selector.name for selector in (*(selector for selector, _ in self.in_sight), *self.behind)]
        for column, (selector, _) in zip(others, self.in_sight, strict=True):
            with column:
                _select(selector, names)
        set_behind = sum(selector.chosen is not None for selector in self.behind)
        with last, st.popover(f"Filters ({set_behind})" if set_behind else "Filters", width="stretch"):
            for selector in self.behind:
                _select(selector, names)


def selectors_of_run(offered: Offered, choice: Choice, elsewhere: Sequence[RunEntry]) -> SelectorRow:
    """The selectors of a page about a run: run, time and cohort in sight, the others behind "Filters"."""
    default = Choice().window_shown(offered.run) or WHOLE
    # The default is the empty choice, so that a link contains only what was selected.
    windows = WINDOWS if default == WHOLE else [*WINDOWS[:-1], WHOLE]
    chosen = choice.window if choice.window in windows else None
    window = Selector("window", windows, chosen, TIME_LABELS[default], TIME_LABELS)
    in_sight = (
        (run_selector(offered.runs, choice, "newest run", elsewhere), 3.0),
        (window, 1.4),
        (value_selector(offered, choice, "cohort"), 1.6),
    )
    behind = [value_selector(offered, choice, name) for name in ("phase", "length", "noise", "route")]
    return SelectorRow(in_sight, behind)


def value_selector(offered: Offered, choice: Choice, name: str) -> Selector:
    """The selector of the value of a dimension."""
    return Selector(name, offered.choices.get(DIMENSION_OF[name], ()), getattr(choice, name), _ANY_VALUE[name])


def run_selector(
    runs: Sequence[RunRecord],
    choice: Choice,
    any_run: str,
    elsewhere: Sequence[RunEntry] = (),
    linked: RunRecord | None = None,
) -> Selector:
    """The selector of some runs of the store and of those of other stores that are shown. `any_run` names the empty
    choice; `linked` is the run of the link, which may not be among them."""
    labels = {} if choice.run is None else {choice.run: f"{choice.run} (not in this store)"}
    labels |= {run.run_id: run_label(run) for run in (*runs, *([] if linked is None else [linked]))}
    others = {
        f"{entry.store}{_IN}{entry.run_id}": f"{entry.title} · {formatting.turns(entry.turns)} · {entry.store}"
        for entry in elsewhere
    }
    return Selector("run", [*(run.run_id for run in runs), *others], choice.run, any_run, {**labels, **others})


def run_label(run: RunRecord) -> str:
    """The label of a run in a selector."""
    if run.service is not None:
        return f"service {run.service.service} · {run.service.day:%d %b} UTC · {formatting.turns(run.turns)}"
    return f"{run.run_id} · {descriptions.day_and_time(run.first_unix_ns)} UTC · {formatting.turns(run.turns)}"


def _select(of: Selector, names: Sequence[str]) -> None:
    every = [_ANY, *of.values, *([of.chosen] if of.chosen is not None and of.chosen not in of.values else [])]
    label, key = LABELS[of.name], _KEY + of.name
    linked_select(label, every, of.chosen or _ANY, key=key, label_of=of.label_of, rewrite=_rewrite_link, names=names)


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
    """A select box whose value is in the link, even if the link changes while the page is open; `rewrite` writes the
    selection into the link."""
    hold(key, chosen)
    st.selectbox(label, list(options), format_func=label_of, key=key, on_change=rewrite, kwargs=given)


def parameter_select(
    name: str, label: str, options: Sequence[str], chosen: str, label_of: Callable[[str], str] = str
) -> None:
    """A select box for the parameter `name` of the link; all other parameters stay."""
    linked_select(label, options, chosen, key=_KEY + name, label_of=label_of, rewrite=_rewrite_parameter, name=name)


def _rewrite_parameter(name: str) -> None:
    st.query_params[name] = st.session_state[_KEY + name]


def hold(key: str, value: Any) -> None:
    """Set a field to the value in the link, also when the link changed while the page was open."""
    if st.session_state.get(key) != value:
        st.session_state[key] = value


def _rewrite_link(names: Sequence[str]) -> None:
    """Write the values of the selectors with these names into the link."""
    chosen = {name: value for name in names if (value := st.session_state.get(_KEY + name))}
    store, is_elsewhere, run_id = str(chosen.get("run", "")).rpartition(_IN)
    if is_elsewhere:
        # The restrictions belong to the run that was shown.
        chosen = Choice(run=run_id, store=store).query()
    others = {name: value for name, value in st.query_params.items() if name not in names}
    st.query_params.from_dict({**others, **chosen})
