"""Objectives from a file in the OpenSLO format (openslo/v1, kind SLO, `ratioMetric`); every fault is reported at once.

good.metricSource:  type: voiceprobe, spec: one of
    metric: voice_to_voice   with   threshold: 800ms        a duration, or a number for a metric without unit s
    outcome: ok   or   outcome: [ok, interrupted]
    fallback: none                                          answered without a fallback
    cache: hit                                              answered from a cache, of the turns that say
  and optionally  cohort, length, noise, channel, route     only such turns count
total.metricSource: type: voiceprobe, spec: {turns: eligible}
objectives: one, with  target: 0.95  or  targetPercent: 95
timeWindow: one, rolling, of 28 days, or none

Documents of OpenSLO's other kinds, and alertPolicies, are passed over, with a line in the log.
"""

import logging
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final, Literal, cast, get_args

import yaml
from pydantic import Field, PlainValidator, StringConstraints, ValidationError, WrapValidator

from telemetry.model import semconv
from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import FaultAt, Path, nearest, path_text, shown
from telemetry.model.foreign_text import one_line
from telemetry.model.metrics import ITL, METRICS
from telemetry.model.validation import NAME_HELP, CheckedTable, Name, is_name, one_of, refused, validated
from telemetry.objectives.error_budgets import PERIOD, PERIOD_DAYS
from telemetry.objectives.objective import Kind, Objective


@dataclass(frozen=True, slots=True)
class _Document:
    """One document of a text, `number` counted from 1."""

    number: int
    value: object
    _root: yaml.Node
    _entries: dict[int, dict[object, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of the value at a path, counted from 1; if it is missing, of its nearest parent."""
        node, line = self._root, self._root.start_mark.line
        for part in path:
            if isinstance(node, yaml.MappingNode):
                entry = self._of_mapping(node).get(part)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line, entry[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
        return line + 1

    def _of_mapping(self, node: yaml.MappingNode) -> dict[object, tuple[yaml.Node, yaml.Node]]:
        if id(node) not in self._entries:
            self._entries[id(node)] = {key.value: (key, value) for key, value in node.value if _is_text(key)}
        return self._entries[id(node)]


def _read_documents(text: str, where: str) -> list[_Document]:
    """The documents of a text that are not empty. Raises ConfigError, which names the file `where`."""
    try:
        return _documents(text)
    except yaml.YAMLError as error:
        raise ConfigError(where, [_fault(error)]) from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-45; brackets a thousand deep
        raise ConfigError(where, [f"is not valid YAML: {one_line(str(error))}"]) from error


def _documents(text: str) -> list[_Document]:
    loader = _StrictLoader(text)
    documents: list[_Document] = []
    number = 0
    try:
        while loader.check_node():
            number += 1
            node = loader.get_node()
            value = loader.construct_document(node) if node is not None else None
            if node is not None and value is not None:  # an empty document, as after a closing `---`, holds nothing
                documents.append(_Document(number, value, node))
    finally:
        loader.dispose()
    return documents


class _StrictLoader(yaml.SafeLoader):
    """Reports a repeated key as a fault; YAML's own loader silently uses the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if _is_text(key) and key.value in seen:
                problem = f"the key {shown(key.value)} is there twice; give it once"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if _is_text(key):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _is_text(key: yaml.Node) -> bool:
    return isinstance(key.value, str)


def _fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {one_line(error.problem or 'is not valid YAML')}"
    return f"is not valid YAML: {one_line(' '.join(str(error).split()))}"


_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# Of OpenSLO's windows, those that have the same length at any time; months, quarters and years do not.
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_MINUTES: Final = {"m": 1, "h": 60, "d": 1440, "w": 10_080}
_BUDGETS: Final = f"error budgets are those of the last {PERIOD_DAYS} days"
# Kinds of OpenSLO documents that may be in a file with objectives, and hold none.
_OTHER_KINDS: Final = ("Service", "DataSource", "SLI", "AlertPolicy", "AlertCondition", "AlertNotificationTarget")
_OUTCOMES: Final = tuple(outcome for outcome in semconv.OUTCOMES if outcome not in ("cut", "invalid", "pending"))


def duration_ns(text: str) -> int | None:
    """`800ms`, `1.5s`, `200us` in ns; None for a text that is not a duration, or has no unit."""
    try:
        return Duration.parse(text, bare=False).ns
    except DurationError:
        return None


def _read_document(document: _Document, first_use: dict[str, int]) -> tuple["_SloDocument | None", list[FaultAt]]:
    """The model of a document, None after a fault, and all faults; `first_use` maps names to numbers of documents."""
    model, faults = validated(_SloDocument, document.value)
    name = _name_of(document.value)
    used_in = first_use.setdefault(name, document.number) if name is not None else document.number
    if used_in != document.number:
        sentence = f"{name} is also the name of document {used_in}; give each objective a name of its own"
        faults.append(FaultAt(("metadata", "name"), sentence))
    return model, faults


def _faults_with_places(document: _Document, faults: list[FaultAt]) -> list[str]:
    """The faults with their places, in the order of the lines."""
    by_line = sorted(((document.line(fault.path), fault) for fault in faults), key=lambda item: item[0])
    return [
        f"{', '.join(filter(None, (f'document {document.number}', f'line {line}', path_text(fault.path))))}: "
        f"{fault.sentence}"
        for line, fault in by_line
    ]


def _name_of(document: object) -> str | None:
    """The name of a document, also of one that is faulty elsewhere; None when it has none that can be used."""
    table = cast("dict[object, Any]", document) if isinstance(document, dict) else {}
    metadata = table.get("metadata")
    name = cast("dict[object, Any]", metadata).get("name") if isinstance(metadata, dict) else None
    return name if is_name(name) else None


def _bound(metric: str, threshold: object) -> float | None:
    """A threshold in the unit of a known metric; None when it is not one."""
    if METRICS[metric].unit == "ns":
        return duration_ns(threshold) if isinstance(threshold, str) else None
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        return None
    try:
        return threshold if math.isfinite(threshold) and threshold >= 0 else None
    except OverflowError:  # a whole number of more than 308 digits
        return None


def _minutes(window: object) -> int | None:
    """Return the length of a rolling window; None for anything else."""
    match = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    return None if match is None else int(match[1]) * _MINUTES[match[2]]


def _other_kind(document: object) -> str | None:
    """The kind of a document of OpenSLO that is not an objective, with its name; None of any other document."""
    table = cast("dict[object, Any]", document) if isinstance(document, dict) else {}
    kind, version = table.get("kind"), table.get("apiVersion")
    if kind not in _OTHER_KINDS or not isinstance(version, str) or not version.startswith("openslo/"):
        return None
    return " ".join(filter(None, (str(kind), _name_of(document))))


def _no_objective(document: _Document) -> FaultAt:
    """The fault of a document of another kind in a file that holds no objective."""
    return FaultAt(("kind",), f"is {shown(cast('dict[str, object]', document.value)['kind'])}; write SLO")


def _not_read(document: "_SloDocument") -> list[str]:
    """The keys of an objective that OpenSLO defines but that are ignored here."""
    source = document.spec.indicator.spec.ratio_metric
    refs = (source.good.metric_source.metric_source_ref, source.total.metric_source.metric_source_ref)
    return [
        *(["alertPolicies"] if document.spec.alert_policies else []),
        *(["metricSourceRef"] if any(refs) else []),
    ]


def _metric(value: object) -> str:
    if value == ITL:
        raise refused("itl is many values per turn; tokens_per_s judges a stream by turn")
    if not isinstance(value, str) or value not in METRICS:
        name = value if isinstance(value, str) else ""
        raise refused(f"{shown(value)} is not a known metric{nearest(name, tuple(METRICS))}")
    return value


def _one_or_several(value: object, read: Callable[[object], list[str]]) -> list[str]:
    """Read a single value as a list of one; its fault then has no position in a list."""
    if isinstance(value, list):
        return read(cast("list[object]", value))
    try:
        return read([value])
    except ValidationError as error:
        raise refused(error.errors(include_url=False)[0].get("ctx", {})["sentence"]) from error


_TEXT: Final = "text is expected"
_Text = Annotated[str | None, Field(default=None, description=_TEXT)]
_Dimension = Annotated[str, StringConstraints(min_length=1), Field(default="", description=_TEXT)]


class _SloMetadata(CheckedTable):
    name: Name = Field(description=NAME_HELP)
    display_name: str | None = Field(default=None, alias="displayName", description=_TEXT)
    labels: object = None
    annotations: object = None


class _TimeWindow(CheckedTable):
    duration: object = None
    is_rolling: object = Field(default=None, alias="isRolling")
    calendar: object = None

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """The window that budgets have: a promise over another one would be accepted and not kept."""
        del faulty
        mend = f"{_BUDGETS}: write duration: {PERIOD} and isRolling: true, or leave timeWindow out"
        if table.get("calendar") is not None or table.get("isRolling", True) is False:
            yield (), f"is a window of the calendar; {mend}"
        elif table.get("isRolling", True) is not True:
            yield ("isRolling",), f"is {shown(table['isRolling'])}; write true"
        elif _minutes(table.get("duration")) != PERIOD_DAYS * _MINUTES["d"]:
            fault = f"is {shown(table['duration'])}" if "duration" in table else "is missing"
            yield ("duration",), f"{fault}; {mend}"


class _SloTarget(CheckedTable):
    display_name: object = Field(default=None, alias="displayName")
    target: float = Field(default=0.0, gt=0, lt=1, description="a number above 0 and below 1 is expected")
    target_percent: float = Field(
        default=0.0, gt=0, lt=100, alias="targetPercent", description="a number above 0 and below 100 is expected"
    )

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """One of two ways to say it."""
        del faulty
        if ("target" in table) == ("targetPercent" in table):
            yield (), "write either target: 0.95 or targetPercent: 95"


class _Good(CheckedTable):
    """Good turns, by one of `KINDS`; and the turns that count at all: any where a text is empty."""

    metric: Annotated[str, PlainValidator(_metric)] = ""
    threshold: object = None
    outcome: Annotated[
        list[Annotated[str, one_of(_OUTCOMES, "an outcome of an eligible turn")]], WrapValidator(_one_or_several)
    ] = Field(default=[], min_length=1, description="write for instance ok")
    fallback: Literal["none"] = Field(default="none", description="write none")
    cache: Literal["hit"] = Field(default="hit", description="write hit")
    cohort: _Dimension
    length: Annotated[str, one_of(semconv.LENGTH_CLASSES, "a known length")] = ""
    noise: _Dimension
    channel: _Dimension
    route: Annotated[str, one_of(semconv.ROUTES, "a known route")] = ""

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """One kind, and a threshold of the metric's unit where that is a metric."""
        given = [kind for kind in _KINDS if kind in table]
        if len(given) != 1:
            yield (), f"exactly one of {', '.join(_KINDS)} says which turns are good"
        elif given != ["metric"]:
            if "threshold" in table:
                yield ("threshold",), "only a metric has a threshold; leave it out"
        elif "metric" not in faulty and _bound(table["metric"], table.get("threshold")) is None:
            is_duration = METRICS[table["metric"]].unit == "ns"
            wanted = "a duration such as 800ms or 1.5s" if is_duration else "a number that is not negative"
            fault = f"is {shown(table['threshold'])}" if "threshold" in table else "is missing"
            yield ("threshold",), f"{fault}; {table['metric']} needs {wanted}"

    @property
    def kind(self) -> Kind:
        """The one of `KINDS` that is given."""
        return next(kind for kind in _KINDS if kind in self.model_fields_set)

    @property
    def bound(self) -> float | None:
        """The threshold in the unit of the metric; None without a metric."""
        return _bound(self.metric, self.threshold) if self.metric else None


class _Total(CheckedTable):
    turns: Literal["eligible"] = Field(
        description="write eligible: every turn counts, but silent ones and those of a ramp"
    )


class _MetricSource(CheckedTable):
    type: Literal["voiceprobe"] = Field(description="write voiceprobe")
    metric_source_ref: object = Field(default=None, alias="metricSourceRef")


class _GoodSource(_MetricSource):
    spec: _Good


class _TotalSource(_MetricSource):
    spec: _Total


class _GoodTurns(CheckedTable):
    metric_source: _GoodSource = Field(alias="metricSource")


class _TotalTurns(CheckedTable):
    metric_source: _TotalSource = Field(alias="metricSource")


class _RatioMetric(CheckedTable):
    counter: object = None
    good: _GoodTurns
    total: _TotalTurns


class _IndicatorSpec(CheckedTable):
    description: object = None
    ratio_metric: _RatioMetric = Field(alias="ratioMetric")


class _Indicator(CheckedTable):
    metadata: object = None
    spec: _IndicatorSpec


class _SloSpec(CheckedTable):
    description: _Text
    service: _Text
    alert_policies: object = Field(default=None, alias="alertPolicies")
    indicator: _Indicator
    time_window: list[_TimeWindow] = Field(
        default=[], min_length=1, max_length=1, alias="timeWindow", description="a list of one window is expected"
    )
    budgeting_method: Literal["Occurrences"] = Field(
        default="Occurrences", alias="budgetingMethod", description="write Occurrences"
    )
    objectives: list[_SloTarget] = Field(
        min_length=1,
        max_length=1,
        description="a list of one objective is expected; write another document for another target",
    )


class _SloDocument(CheckedTable):
    """A whole document."""

    api_version: Literal["openslo/v1"] = Field(alias="apiVersion", description="write openslo/v1")
    kind: Literal["SLO"] = Field(description="write SLO")
    metadata: _SloMetadata
    spec: _SloSpec


_log = logging.getLogger(__name__)


def parse_objectives(text: str, where: str) -> list[Objective]:
    """The objectives of a multi-document OpenSLO text. Raises ConfigError with every fault; `where` names the file."""
    faults: list[str] = []
    objectives: list[Objective] = []
    first_use: dict[str, int] = {}
    passed_over: list[str] = []
    others: list[_Document] = []
    for document in _read_documents(text, where):
        if (kind := _other_kind(document.value)) is not None:
            others.append(document)
            passed_over.append(f"{kind} (document {document.number})")
            continue
        model, document_faults = _read_document(document, first_use)
        faults += _faults_with_places(document, document_faults)
        if model is not None:
            objectives.append(_objective(model))
            passed_over += [f"{key} of {model.metadata.name}" for key in _not_read(model)]
    if not objectives and not faults:
        faults += [fault for other in others for fault in _faults_with_places(other, [_no_objective(other)])]
    if not objectives and not faults:
        faults.append("holds no objective; add a document with apiVersion: openslo/v1 and kind: SLO")
    if faults:
        raise ConfigError(where, faults)
    if passed_over:
        _say_once(f"{where}: passed over, as no objective is in it: {', '.join(passed_over)}")
    return objectives


@cache
def _say_once(sentence: str) -> None:
    """Log a sentence once: a file is read again whenever a page or a command needs it."""
    _log.warning("%s", sentence)


def _objective(document: _SloDocument) -> Objective:
    spec, metadata = document.spec, document.metadata
    good = spec.indicator.spec.ratio_metric.good.metric_source.spec
    wanted = spec.objectives[0]
    target, whole = (wanted.target, 1) if "target" in wanted.model_fields_set else (wanted.target_percent, 100)
    return Objective(
        name=metadata.name,
        kind=good.kind,
        target=float(Fraction(str(target)) / whole),
        metric=good.metric or None,
        threshold=good.bound,
        outcomes=tuple(good.outcome),
        cohort=good.cohort or None,
        length_class=good.length or None,
        noise_profile=good.noise or None,
        channel_profile=good.channel or None,
        route=good.route or None,
        display_name=metadata.display_name,
        description=spec.description,
        window=PERIOD if spec.time_window else None,
    )
