"""Tables of what the code declares: exit codes, metrics, protocols, settings, fields and states."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from corpora.manifest import manifest
from corpora.manifest.conversations import ConversationTurn
from docs_build import comments
from docs_build.markdown import cell, code, sections, table
from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State
from loadtest.exit_codes import MEANINGS, ExitCode
from loadtest.protocols.address import SCHEMES
from loadtest.protocols.built_in import BUILT_IN, METRIC_OF, Description
from loadtest.swarm import priority
from telemetry.model.bounds import BOUNDED
from telemetry.model.formatting import declared_figure, declared_milliseconds
from telemetry.model.metrics import DEFINITIONS, MIN_COUNT_FOR, TIMESTAMPS, MetricDefinition
from telemetry.model.semconv import FAILURE_LABELS, OUTCOME_LABELS
from telemetry.sidecar.configuration import TABLES
from telemetry.sidecar.counts.families import FAMILIES, SERVICE_FAMILIES
from telemetry.sidecar.forwarding.bounded_queue import FAMILIES as FORWARDING_FAMILIES
from telemetry.sidecar.limits import ConnectionLimits
from telemetry.sidecar.otlp.body import COMPRESSIONS
from telemetry.sidecar.rollouts.states import FAMILIES as ROLLOUT_FAMILIES
from telemetry.sidecar.settings import CONFIG, GROUPS, SETTINGS, SidecarSetting
from telemetry.store.schema import SIDES

Transitions = Mapping[Any, Mapping[Any, Any]]

CONNECTIONS: Final = ConnectionLimits()
UNITS: Final = {"ns": "s", "ratio": "", "count": "", "per_s": "1/s"}


def exit_codes() -> str:
    """Return the table of exit codes."""
    rows = [(code(str(int(exit_code))), code(exit_code.name), cell(MEANINGS[exit_code])) for exit_code in ExitCode]
    return table(("Exit code", "Name", "Meaning"), rows)


def priorities() -> str:
    """Return the choices of a scheduling priority, and the default."""
    return f"{' or '.join(priority.CHOICES)} (default: {priority.CHOICES[0]})"


def compressions() -> str:
    """Return the compressions that the sidecar's receivers read."""
    return ", ".join(map(code, sorted(COMPRESSIONS)))


def metrics() -> str:
    """Return the table of metrics."""
    heads = ("Metric", "Label", "Unit", "Definition", "Objective", "Column", "Bounds")
    return table(heads, [_metric(metric) for metric in DEFINITIONS.values()])


def _metric(metric: MetricDefinition) -> tuple[str, ...]:
    bound = "at least" if metric.higher_is_better else "at most"
    is_bounded = any(bounded.name == metric.name for bounded in BOUNDED)
    bounds = ", ".join(code(metric.bound_column(side)) for side in SIDES) if is_bounded else ""
    name, definition, column = code(metric.name), cell(metric.definition), code(metric.column)
    return name, metric.label, UNITS[metric.unit], definition, bound, column, bounds


def timestamps() -> str:
    """Return the table of a turn's timestamps."""
    return table(("Timestamp", "Meaning"), [(code(name), cell(text)) for name, text in TIMESTAMPS.items()])


def outcomes() -> str:
    """Return the table of a turn's outcomes."""
    return table(("Outcome", "Label"), [(code(name), label) for name, label in OUTCOME_LABELS.items()])


def causes() -> str:
    """Return the table of the causes of a turn's failure."""
    return table(("Cause", "Label"), [(code(name), label) for name, label in FAILURE_LABELS.items()])


def percentiles() -> str:
    """Return the table of how many values a percentile needs."""
    return table(("Percentile", "Values needed"), [(name, str(count)) for name, count in MIN_COUNT_FOR.items()])


def validity_limits() -> str:
    """Return the table of the limits of validity; durations are in milliseconds."""
    rows: list[tuple[str, str]] = []
    for field in fields(ValidityLimits):
        value: Any = field.default
        limit = declared_milliseconds(value) if field.name.endswith("_ns") else declared_figure(value, "count")
        rows.append((cell(field.name.removesuffix("_ns").replace("_", " ")), limit))
    return table(("Evidence", "Limit"), rows)


def prometheus_metrics() -> str:
    """Return the table of every metric that a sidecar exposes."""
    rows = [
        (code(family.shown_name), family.kind, ", ".join(map(code, family.labels)), cell(family.text))
        for family in (*FAMILIES, *SERVICE_FAMILIES, *ROLLOUT_FAMILIES, *FORWARDING_FAMILIES)
    ]
    return table(("Metric", "Type", "Labels", "Meaning"), rows)


def _protocols() -> list[Description]:
    return [row for _, row in sorted(BUILT_IN.items())]


def protocols() -> str:
    """Return the table of the protocols of this package."""
    rows = [
        (
            code(protocol.name),
            cell(protocol.summary),
            ", ".join(code(f"{scheme}://") for scheme in SCHEMES[protocol.transport]),
            cell(protocol.shown),
            cell(protocol.proof),
        )
        for protocol in _protocols()
    ]
    return table(("Protocol", "Meaning", "Address", "Shows", "Proved against"), rows)


def stages() -> str:
    """Return the table of the stages of a turn that a protocol may show."""
    rows = [(cell(stage), code(metric), cell(DEFINITIONS[metric].definition)) for stage, metric in METRIC_OF.items()]
    return table(("Stage", "Metric", "Definition"), rows)


def address_patterns() -> str:
    """Return the table of the patterns by which an address is assigned to a protocol."""
    rows = [(code(hint), code(protocol.name)) for protocol in _protocols() for hint in protocol.url_hints]
    return table(("Pattern", "Protocol"), rows)


# What the readers of these tables check is on their own pages.
TABLES_TEXT: Final = {
    "forward": "an OTLP endpoint that everything received goes on to; `text` says what happens to texts",
    "rollout": "a staged rollout that is evaluated: `plan_file`, and whether the next stage begins `on-request` (the "
    "default) or `on-promotion`; not read where plans are given by flag or variable",
    "scrape": "a model server whose Prometheus page is read",
}
CREDENTIALS: Final = """
The token is not read from the command line, which every list of processes shows, nor from the file: it comes from the
environment or from a file of its own. Where both are given, the stronger of the two sources decides.
"""


def sidecar_settings() -> str:
    """Return a section for each group of the sidecar's settings, and one for the tables of its file."""
    parts: list[str] = []
    for group in GROUPS:
        settings = [setting for setting in (*SETTINGS, CONFIG) if setting.group == group]
        rows = [_setting(setting) for setting in settings]
        parts += [f"## {group.capitalize()}", table(("Key", "Variable", "Flag", "Default", "Meaning"), rows)]
        parts += [CREDENTIALS] if any(setting.is_secret for setting in settings) else []
    rows = [(code(f"[[{name}]]"), TABLES_TEXT[name]) for name in TABLES]
    return sections([*parts, "## Tables of the file", table(("Table", "Meaning"), rows)])


def _setting(setting: SidecarSetting) -> tuple[str, str, str, str, str]:
    key = code(f"[[{setting.key}]]") if setting.is_repeated else code(setting.key) if setting.in_file else "–"
    flag = "–" if setting.is_secret else code(setting.flag)
    default = "–" if setting.default is None else code(str(setting.default).lower())
    bounds = f" ({setting.expected})" if setting.choices or setting.kind in ("integer", "number") else ""
    return key, code(setting.variable), flag, default, cell(setting.help + bounds)


FIELD_MEANINGS: Final = {
    "id": "name, unique in this corpus",
    "speaker": "the speaker; --mix can weight speakers",
    "domain": "the topic; --mix can weight domains",
    "source": "origin of the recording",
    "sample_rate_hz": f"sample rate, {manifest.RATES_HZ[0]} to {manifest.RATES_HZ[-1]} Hz",
    "samples": "length of the clip",
    "pii_kinds": "kinds of personal data in the text",
    "utterance": "id of an utterance of this corpus",
    "think_s": "pause from the end of the previous reply to the first speech sample of this turn, s",
    "intent": "the intent that the agent should recognize",
    "barge_in_after_s": "interrupt the previous reply this long after its first audible sample, s",
}


def manifest_fields() -> str:
    """Return the table of an utterance's fields, with the comment behind each, its entry here, or the comment above."""
    file = Path(manifest.__file__)
    above = {name: group.comment for group in comments.groups(file, "Utterance") for name in group.names}
    behind = comments.trailing(file, "Utterance")
    meanings = {name: behind[name] or FIELD_MEANINGS.get(name) or above[name] for name in behind}
    rows = [
        (code(field.name), "yes" if field.default is MISSING else "", cell(meanings.get(field.name, "")))
        for field in fields(manifest.Utterance)
    ]
    return table(("Field", "Required", "Meaning"), rows)


def conversation_fields() -> str:
    """Return the table of the fields of a conversation's turn."""
    turns: list[Any] = list(msgspec.structs.fields(ConversationTurn))
    rows = [(code(field.name), "yes" if field.required else "", cell(FIELD_MEANINGS[field.name])) for field in turns]
    return table(("Field of a turn", "Required", "Meaning"), rows)


def caller_states() -> str:
    """Return the table of a caller's states."""
    return _meanings("State", State)


def caller_inputs() -> str:
    """Return the table of a caller's inputs."""
    return _meanings("Input", Input)


def caller_diagram() -> str:
    """Return the diagram of a caller's states."""
    return diagram(TRANSITIONS)


def caller_transitions() -> str:
    """Return the table of a caller's transitions."""
    return _transitions(TRANSITIONS)


def plan() -> str:
    """Return the states, the diagram, the transitions and the inputs of a caller's plan."""
    drawn = (diagram(PLAN_TRANSITIONS), _transitions(PLAN_TRANSITIONS))
    return sections((_meanings("State", PlanState), *drawn, _meanings("Input", PlanInput)))


def diagram(of: Transitions) -> str:
    """Draw a table of states with Mermaid: an arrow for all the inputs that lead from one state to another."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in of.items():
        for happened, following in row.items():
            arrows.setdefault((state.name, following.name), []).append(happened.name)
    drawn = (f"    {start} --> {end}: {'<br/>'.join(inputs)}" for (start, end), inputs in arrows.items())
    return "\n".join(["```mermaid", "stateDiagram-v2", *drawn, "```"])


def _meanings(head: str, of: type[Enum]) -> str:
    rows = [(code(member.name), cell(f"{member.value[0].upper()}{member.value[1:]}.")) for member in of]
    return table((head, "Meaning"), rows)


def _transitions(of: Transitions) -> str:
    rows = [
        (code(state.name), code(happened.name), code(following.name))
        for state, row in of.items()
        for happened, following in row.items()
    ]
    return table(("State", "Input", "Next state"), rows)
