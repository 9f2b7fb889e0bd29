"""Objectives from a file in the OpenSLO format (openslo/v1, kind SLO, `ratioMetric`); every fault is reported at once.

good.metricSource:  type: voiceprobe, spec: one of
    metric: voice_to_voice   with   threshold: 800ms        a duration, or a number for what is no duration
    outcome: ok   or   outcome: [ok, interrupted]
    fallback: none                                          answered without a fallback
    cache: hit                                              answered from a cache, of the turns that say
  and optionally  cohort, length, noise, channel, route     only such turns count
total.metricSource: type: voiceprobe, spec: {turns: eligible}
objectives: one, with  target: 0.95  or  targetPercent: 95
"""

import difflib
import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, cast

import yaml

from telemetry.model import semconv
from telemetry.model.errors import ConfigError
from telemetry.model.formatting import declared_figure, declared_percent
from telemetry.model.metrics import CONNECT, ITL, METRICS

Kind = Literal["metric", "outcome", "fallback", "cache"]
Counted = Literal["turns", "calls"]

_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(ns|us|µs|ms|s|m)")
_NS_OF: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_WINDOW: Final = re.compile(r"[1-9][0-9]{0,3}[mhdwMQY]")
_DIMENSIONS: Final = ("cohort", "length", "noise", "channel", "route")
_KINDS: Final[tuple[Kind, ...]] = ("metric", "outcome", "fallback", "cache")


@dataclass(frozen=True, slots=True)
class Objective:
    """What is promised: at least `target` of the eligible turns are good.

    A turn is good by its `kind`: `metric` at or below `threshold` (in the metric's unit, integer ns for durations; at
    or above it where higher is better), an outcome of `outcomes`, no `fallback`, or a `cache` hit. The dimensions
    narrow which turns count; None means any.
    """

    name: str
    kind: Kind
    target: float
    metric: str | None = None
    threshold: float | None = None
    outcomes: tuple[str, ...] = ()
    cohort: str | None = None
    length_class: str | None = None
    noise_profile: str | None = None
    channel_profile: str | None = None
    route: str | None = None
    display_name: str | None = None
    description: str | None = None
    window: str | None = None

    @property
    def counts(self) -> Counted:
        """What good ones are counted of: a call connects once, whatever number of turns it has."""
        return "calls" if self.metric == CONNECT else "turns"

    @property
    def sentence(self) -> str:
        """The promise in words: `95 % of turns: voice_to_voice at most 800 ms`."""
        share = f"{declared_percent(self.target)} of {self.counts}"
        only = [
            value
            for value in (self.cohort, self.length_class, self.noise_profile, self.channel_profile, self.route)
            if value is not None
        ]
        narrowed = f" ({', '.join(only)})" if only else ""
        return f"{share}{narrowed}: {self._promise()}"

    def _promise(self) -> str:
        if self.kind == "metric" and self.metric is not None and self.threshold is not None:
            metric = METRICS[self.metric]
            bound = "at least" if metric.higher_is_better else "at most"
            return f"{self.metric} {bound} {declared_figure(self.threshold, metric.kind)}"
        if self.kind == "outcome":
            return f"outcome {' or '.join(self.outcomes)}"
        return "no fallback" if self.kind == "fallback" else "answered from a cache"


def parse_objectives(text: str, where: str) -> list[Objective]:
    """The objectives of a multi-document OpenSLO text. Raises ConfigError with every fault; `where` names the file."""
    try:
        documents = cast(list[object], list(yaml.load_all(text, _StrictLoader)))
    except yaml.YAMLError as error:
        raise ConfigError(where, [_yaml_fault(error)]) from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-45; brackets a thousand deep
        raise ConfigError(where, [f"is no valid YAML: {error}"]) from error
    faults: list[str] = []
    objectives: list[Objective] = []
    first_use: dict[str, int] = {}
    for number, document in enumerate(documents, 1):
        if document is None:
            continue  # an empty document, as after a closing `---`
        reader = _Reader(f"document {number}", faults)
        objective = reader.slo(document)
        if objective is not None:
            objectives.append(objective)
        used_in = first_use.setdefault(reader.name, number) if reader.name else number
        if used_in != number:
            faults.append(
                f"document {number}, metadata.name: {reader.name} is also the name of document {used_in}; "
                "names are unique"
            )
    if not objectives and not faults:
        faults.append("holds no objective; add a document with apiVersion: openslo/v1 and kind: SLO")
    if faults:
        raise ConfigError(where, faults)
    return objectives


def duration_ns(text: str) -> int | None:
    """`800ms`, `1.5s`, `200us` in ns; None when it is no duration."""
    match = _DURATION.fullmatch(text)
    return None if match is None else round(Fraction(match[1]) * _NS_OF[match[2]])


class _StrictLoader(yaml.SafeLoader):
    """YAML lets a repeated key win silently; here it is a fault."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _yaml_fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or 'no valid YAML'}"
    return f"is no valid YAML: {' '.join(str(error).split())}"


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


class _Reader:
    """Reads one document. Each fault goes to the list with its place; reading goes on with what is there."""

    def __init__(self, document: str, faults: list[str]) -> None:
        self._document, self._faults = document, faults
        self.name = ""  # once read, and only if it is one

    def slo(self, document: object) -> Objective | None:
        before = len(self._faults)
        top = self._mapping(document, "", ("apiVersion", "kind", "metadata", "spec"))
        if top is None:
            return None
        self._constant(top, "apiVersion", "apiVersion", "openslo/v1")
        self._constant(top, "kind", "kind", "SLO")
        metadata = self._section(top, "metadata", "metadata", ("name", "displayName", "labels", "annotations"))
        if metadata is not None:
            self.name = self._name(metadata)
        spec_keys = ("description", "service", "indicator", "timeWindow", "budgetingMethod", "objectives")
        spec = self._section(top, "spec", "spec", spec_keys)
        if metadata is None or spec is None:
            return None
        display_name = self._text(metadata, "displayName", "metadata.displayName")
        self._text(spec, "service", "spec.service")
        description = self._text(spec, "description", "spec.description")
        if "budgetingMethod" in spec:
            self._constant(spec, "budgetingMethod", "spec.budgetingMethod", "Occurrences")
        window = self._window(spec)
        target = self._target(spec)
        good = self._indicator(spec)
        kind, fields = self._good(good) if good is not None else (None, {})
        if len(self._faults) > before or target is None or kind is None:
            return None
        return Objective(
            name=self.name,
            kind=kind,
            target=target,
            display_name=display_name,
            description=description,
            window=window,
            **fields,
        )

    def _fault(self, path: str, problem: str) -> None:
        place = f"{self._document}, {path}" if path else self._document
        self._faults.append(f"{place}: {problem}")

    def _mapping(self, value: object, path: str, known: tuple[str, ...]) -> dict[str, object] | None:
        if not isinstance(value, dict):
            self._fault(path, "a mapping of keys is expected")
            return None
        mapping = {str(key): entry for key, entry in cast(dict[object, object], value).items()}
        for key in mapping:
            if key not in known:
                self._fault(f"{path}.{key}" if path else key, f"is no known key{_nearest(key, known)}")
        return mapping

    def _section(
        self, parent: dict[str, object], key: str, path: str, known: tuple[str, ...]
    ) -> dict[str, object] | None:
        """A mapping within `parent`; None after a fault."""
        if key not in parent:
            self._fault(path, f"is missing; it holds {', '.join(known)}")
            return None
        return self._mapping(parent[key], path, known)

    def _constant(self, parent: dict[str, object], key: str, path: str, wanted: str) -> None:
        if parent.get(key) != wanted:
            found = f"is {parent[key]!r}" if key in parent else "is missing"
            self._fault(path, f"{found}; write {wanted}")

    def _text(self, parent: dict[str, object], key: str, path: str) -> str | None:
        value = parent.get(key)
        if value is not None and not isinstance(value, str):
            self._fault(path, f"is {value!r}; text is expected")
            return None
        return value

    def _name(self, metadata: dict[str, object]) -> str:
        name = metadata.get("name")
        if isinstance(name, str) and _NAME.fullmatch(name):
            return name
        found = f"is {name!r}" if "name" in metadata else "is missing"
        self._fault("metadata.name", f"{found}; a name has up to 63 letters, digits, '.', '_' and '-'")
        return ""

    def _window(self, spec: dict[str, object]) -> str | None:
        if "timeWindow" not in spec:
            return None
        entries = spec["timeWindow"]
        if not isinstance(entries, list) or len(cast(list[object], entries)) != 1:
            self._fault("spec.timeWindow", "a list of one window is expected")
            return None
        path = "spec.timeWindow[0]"
        entry = self._mapping(cast(list[object], entries)[0], path, ("duration", "isRolling", "calendar")) or {}
        duration = entry.get("duration")
        if not isinstance(duration, str) or not _WINDOW.fullmatch(duration):
            self._fault(f"{path}.duration", f"is {duration!r}; write a window such as 28d or 1h")
            return None
        return duration

    def _indicator(self, spec: dict[str, object]) -> dict[str, object] | None:
        """The spec of the good turns' metric source; None after a fault."""
        indicator = self._section(spec, "indicator", "spec.indicator", ("metadata", "spec"))
        if indicator is None:
            return None
        inner = self._section(indicator, "spec", "spec.indicator.spec", ("description", "ratioMetric"))
        if inner is None:
            return None
        path = "spec.indicator.spec.ratioMetric"
        ratio = self._section(inner, "ratioMetric", path, ("counter", "good", "total"))
        if ratio is None:
            return None
        total = self._source(ratio, "total", path, ("turns",))
        if total is not None and total.get("turns") != "eligible":
            self._fault(f"{path}.total.metricSource.spec.turns", "write eligible: every turn that is not invalid")
        return self._source(ratio, "good", path, ("threshold", *_KINDS, *_DIMENSIONS))

    def _source(
        self, ratio: dict[str, object], key: str, path: str, known: tuple[str, ...]
    ) -> dict[str, object] | None:
        path = f"{path}.{key}"
        outer = self._section(ratio, key, path, ("metricSource",))
        if outer is None:
            return None
        path = f"{path}.metricSource"
        source = self._section(outer, "metricSource", path, ("type", "spec", "metricSourceRef"))
        if source is None:
            return None
        self._constant(source, "type", f"{path}.type", "voiceprobe")
        return self._section(source, "spec", f"{path}.spec", known)

    def _target(self, spec: dict[str, object]) -> float | None:
        entries = spec.get("objectives")
        if not isinstance(entries, list) or len(cast(list[object], entries)) != 1:
            self._fault("spec.objectives", "one objective is expected; write another document for another target")
            return None
        path = "spec.objectives[0]"
        entry = self._mapping(cast(list[object], entries)[0], path, ("displayName", "target", "targetPercent"))
        if entry is None:
            return None
        if ("target" in entry) == ("targetPercent" in entry):
            self._fault(path, "write either target: 0.95 or targetPercent: 95")
            return None
        key, whole = ("target", 1) if "target" in entry else ("targetPercent", 100)
        value = entry[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < whole:
            self._fault(f"{path}.{key}", f"is {value!r}; a number above 0 and below {whole} is expected")
            return None
        return float(Fraction(str(value)) / whole)

    def _good(self, good: dict[str, object]) -> tuple[Kind | None, dict[str, Any]]:
        path = "spec.indicator.spec.ratioMetric.good.metricSource.spec"
        kinds: list[Kind] = [kind for kind in _KINDS if kind in good]
        if len(kinds) != 1:
            self._fault(path, f"exactly one of {', '.join(_KINDS)} says which turns are good")
            return None, {}
        kind: Kind = kinds[0]
        fields = self._dimensions(good, path)
        if kind == "metric":
            fields |= self._metric(good, path)
        elif "threshold" in good:
            self._fault(f"{path}.threshold", "only a metric has a threshold")
        if kind == "outcome":
            fields["outcomes"] = self._outcomes(good["outcome"], f"{path}.outcome")
        elif kind == "fallback":
            self._constant(good, "fallback", f"{path}.fallback", "none")
        elif kind == "cache":
            self._constant(good, "cache", f"{path}.cache", "hit")
        return kind, fields

    def _metric(self, good: dict[str, object], path: str) -> dict[str, Any]:
        name = good["metric"]
        if name == ITL:
            self._fault(f"{path}.metric", "itl is many values per turn; tokens_per_s judges a stream by turn")
            return {}
        if not isinstance(name, str) or name not in METRICS:
            self._fault(f"{path}.metric", f"{name!r} is no known metric{_nearest(str(name), tuple(METRICS))}")
            return {}
        threshold = good.get("threshold")
        if METRICS[name].unit == "ns":
            bound = duration_ns(threshold) if isinstance(threshold, str) else None
            wanted = "a duration such as 800ms or 1.5s"
        else:
            number = threshold if isinstance(threshold, int | float) and not isinstance(threshold, bool) else math.nan
            bound = number if math.isfinite(number) and number >= 0 else None
            wanted = "a number that is not negative"
        if bound is None:
            found = f"is {threshold!r}" if "threshold" in good else "is missing"
            self._fault(f"{path}.threshold", f"{found}; {name} needs {wanted}")
        return {"metric": name, "threshold": bound}

    def _outcomes(self, value: object, path: str) -> tuple[str, ...]:
        entries = cast(list[object], value) if isinstance(value, list) else [value]
        known = tuple(outcome for outcome in semconv.OUTCOMES if outcome not in ("cut", "invalid"))
        for entry in entries:
            if entry not in known:
                self._fault(path, f"{entry!r} is no outcome of an eligible turn{_nearest(str(entry), known)}")
        if not entries:
            self._fault(path, "is empty; write for instance ok")
        return tuple(str(entry) for entry in entries)

    def _dimensions(self, good: dict[str, object], path: str) -> dict[str, Any]:
        allowed = {"length": semconv.LENGTH_CLASSES, "route": semconv.ROUTES}
        fields: dict[str, Any] = {}
        names = {"length": "length_class", "noise": "noise_profile", "channel": "channel_profile"}
        for key in _DIMENSIONS:
            if key not in good:
                continue
            value = good[key]
            if not isinstance(value, str) or not value:
                self._fault(f"{path}.{key}", f"is {value!r}; text is expected")
            elif key in allowed and value not in allowed[key]:
                self._fault(f"{path}.{key}", f"{value!r} is unknown{_nearest(value, allowed[key])}")
            else:
                fields[names.get(key, key)] = value
        return fields
