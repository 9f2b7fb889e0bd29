"""Every question of the store with several filters, the reports of runs and the figures of `/metrics`, as plain values.

Left out of every answer is what names the inside of the store that gave it: `skipped_segments` and `turns_to_roll_up`
(there are no segments and no roll-ups any more), the question `state` (a number that only changes), and the folder of
the store. Of what a run declares it is left out which of its processes did so last, as they do at one moment. What
explains a selection of very many turns is a sample of them, and not compared. Fields without a value are left out too,
so that an answer may get new ones.
"""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from loadtest.run.artifacts import JUNIT, MARKDOWN, SUMMARY, artifacts
from loadtest.run.judged_run import judged_run, read_pictures
from telemetry.model.metrics import METRIC_NAMES
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.cohort_turns import CALL, OUTCOME, CohortTurns
from telemetry.rollout.verdict import RolloutVerdict
from telemetry.sidecar.counts.families import INGESTED, STORED
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from telemetry.store.wire import answer
from tests.goldens.comparing import NOT_COMPARED

Parameters = dict[str, Any]
# Asks a question by its name and its parameters, which are JSON.
Ask = Callable[[str, Parameters], object]
LEFT_OUT: Final = frozenset({"skipped_segments", "turns_to_roll_up", "faults"})
_DECLARED_LEFT_OUT: Final = frozenset({"process_id", "worker"})
_SUMMARY_LEFT_OUT: Final = frozenset({"store", "unreadable_segments"})
_OBJECTIVES: Final[list[Parameters]] = [
    *map(msgspec.to_builtins, default_objectives()),
    {"name": "cached", "kind": "cache", "target": 0.2},
    {"name": "without fallback", "kind": "fallback", "target": 0.9, "window": "7d"},
    {"name": "babble", "kind": "metric", "target": 0.9, "metric": "wer", "threshold": 0.2, "noise_profile": "babble"},
    {"name": "fast rate", "kind": "metric", "target": 0.5, "metric": "tokens_per_s", "threshold": 40.0},
]


@dataclasses.dataclass(frozen=True)
class Asked:
    """The runs of a store: the newest of callers, another one, one of a service alone, and the two cohorts of one."""

    run: str
    other: str
    service: str
    cohorts: tuple[str, str, str]  # the run, the candidate and the control
    since_unix_ns: int
    until_unix_ns: int
    turns: tuple[tuple[str, int], ...]  # traces, each with a turn's place in its call
    single_turns: bool = True  # whether answers that are single turns are asked for


def of_reader(reader: StoreReader) -> Ask:
    """The questions to a reader."""

    def asked(name: str, parameters: Parameters) -> object:
        if name == "run_figures":
            return _run_figures(asked, parameters)
        return answer(reader, name, json.dumps(parameters).encode())

    return asked


def _run_figures(ask: Ask, parameters: Parameters) -> object:
    """Return the figures of one run: its row of the list of runs, its processes, and of a miss the cause.

    The list names no cause in its sentence; the runs that are asked for have none that is shown.
    """
    run_id, objectives = parameters["run_id"], parameters["objectives"]
    given = {name: value for name, value in parameters.items() if name != "run_id"}
    runs: Any = ask("run_list", given)
    (listed,) = (run for run in runs if run.run.run_id == run_id)
    verdict, evidence = listed.verdict, ask("run_verdict", {"f": {"run_id": run_id}, "objectives": objectives})
    if verdict is not None and verdict.state == "missed":
        verdict = dataclasses.replace(verdict, cause=evidence.cause)  # type: ignore[attr-defined]
    processes = ask("processes", {"run_id": run_id})
    return {
        "totals": {name: getattr(listed, name) for name in ("turns", "invalid", "p50", "p95", "p99", "cohorts")},
        **({"processes": processes} if processes else {}),
        "verdict": verdict,
        "loss": listed.loss,
        "is_generator_limited": listed.is_generator_limited,
    }


def questions(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    """All of them, each with its parameters."""
    yield "runs", {}
    for f in filters(asked):
        for name in ("summary", "stage_budget", "calls", "dimension_values"):
            yield name, {"f": f}
        for name in ("objective_counts", "run_verdict"):
            yield name, {"f": f, "objectives": _OBJECTIVES}
        yield "timeline", {"f": f, "buckets": 12}
    for f in ({}, {"run_id": asked.run}, {"run_id": asked.service}, {"cohort": asked.cohorts[1]}):
        yield "burn_rates", {"f": f, "objectives": _OBJECTIVES}
        yield "objectives_page", {"f": f, "objectives": _OBJECTIVES}
    yield from _of_pages(asked)
    yield from _of_runs(asked)
    yield from _of_cohorts(asked)
    yield from _of_metrics(asked)
    if asked.single_turns:
        yield from _of_turns(asked)


def filters(asked: Asked) -> Iterator[Parameters]:
    """Everything, runs, and one by each dimension, by a window of time, and by several together."""
    window = {"since_unix_ns": asked.since_unix_ns, "until_unix_ns": asked.until_unix_ns}
    yield {}
    yield {"run_id": asked.run}
    yield {"run_id": asked.other}
    yield {"run_id": asked.run, "phase": "steady", "route": "cache"}
    yield {"length_class": "short", "run_id": asked.other}
    if not asked.single_turns:
        return
    yield {"run_id": asked.service}
    yield {"run_id": "gone"}
    yield window
    yield {"cohort": asked.cohorts[1]}
    yield {"run_id": asked.run, "noise_profile": "babble", "channel_profile": "g711", **window}


def _of_pages(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    views: list[Parameters] = [
        {},
        {"filter": {"run_id": asked.run}, "objectives": _OBJECTIVES},
        {"filter": {"run_id": asked.service}},
        {"filter": {"run_id": asked.run, "cohort": asked.cohorts[1]}, "window_ns": 200 * 1_000_000_000},
        {"filter": {"run_id": "gone"}},
    ]
    for view in views:
        own = {"slowest": 3 * asked.single_turns, "with_cause": True}
        yield "page", {"asked": view | own}
        yield "cache_page", {"asked": view}
        yield "instrument_page", {"asked": view}
        yield "cohorts_page", {"asked": {"view": view, "turns": "chosen"}}
    turns = [{}, {"filter": {"run_id": asked.run}, "order": "newest", "page": 1}]
    turns += [{"filter": {"run_id": asked.run}, "search": {"outcome": "ok", "model": "large", "from_ns": 5 * 10**8}}]
    turns += [{"filter": {"run_id": asked.other}, "metric": "llm_ttft", "search": {"text": "utterance-1"}}]
    turns += [{"filter": {"run_id": asked.service}}]
    for turn in turns:
        yield "turns_page", {"asked": turn}
    yield "page", {"asked": {"filter": {"run_id": asked.other}, "metric": "llm_ttft"}}
    yield "rollout_page", {}
    yield "rollout_page", {"name": "fast", "objectives": _OBJECTIVES}
    yield "rollouts", {"most_entries": 2}
    yield "model_servers", {"since_unix_ns": asked.since_unix_ns, "until_unix_ns": asked.until_unix_ns}


def _of_runs(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    for run_id in (asked.run, asked.other, asked.service, "gone"):
        yield "processes", {"run_id": run_id}
        yield "run_details", {"run_id": run_id}
        if run_id != "gone":  # the list has no row of it
            yield "run_figures", {"run_id": run_id, "objectives": _OBJECTIVES}
        yield "generator_points", {"f": {"run_id": run_id, "until_unix_ns": asked.until_unix_ns}}
    yield "run_figures", {"run_id": asked.run, "objectives": _OBJECTIVES, "now_unix_ns": asked.since_unix_ns}
    selections: list[Parameters] = [
        {"objective": _OBJECTIVES[0]},
        {"metric": "voice_to_voice", "at_least": 6e8, "below": 2e9},
        {"metric": "itl", "at_least": 3.5e7, "since_unix_ns": asked.since_unix_ns},
    ]
    for selection in selections:
        for run_id in (asked.run, asked.service):
            yield "explanation", {"asked": {"selection": selection, "filter": {"run_id": run_id}}}


def _of_cohorts(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    run_id, candidate, control = asked.cohorts
    chosen = {"candidate": candidate, "control": control}
    yield "cohorts_page", {"asked": {"view": {"filter": {"run_id": run_id}}, **chosen}}
    yield "cohorts_page", {"asked": {**chosen, "turns": "verdict"}}
    if not asked.single_turns:
        return  # the others are columns of single turns
    question = {
        "metrics": ["voice_to_voice", "asr_final_latency"],
        "reported": ["fallback", "cache_hit", "wer_errors"],
        "objectives": [_OBJECTIVES[0]],
    }
    for own in ({"unit": "user"}, {"with_audio": True, "slices": ["noise_profile"]}, {"source": "service"}):
        yield "rollout_turns", {"asked": {**chosen, **question, **own, "filter": {"run_id": run_id}}}
    for asked_id in (run_id, asked.run):
        yield "run_turns", {"asked": {"run_id": asked_id, **question}}
    yield "run_turns", {"asked": {"run_id": "gone"}}


def _of_metrics(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    for metric in METRIC_NAMES:
        yield "timeline", {"f": {"run_id": asked.run}, "metric": metric, "buckets": 4}
        if asked.single_turns:
            yield "slowest", {"f": {"run_id": asked.run}, "metric": metric, "limit": 1}


def _of_turns(asked: Asked) -> Iterator[tuple[str, Parameters]]:
    for run_id in (asked.run, asked.other, asked.service):
        for own in ({}, {"offset": 40, "source": "client"}, {"outcome": "error"}, {"source": "service"}):
            yield "turns", {"f": {"run_id": run_id}, "limit": 2, **own}
    for trace_id, turn_index in asked.turns:
        yield "turn", {"trace_id": trace_id, "turn_index": turn_index}
        yield "turn_view", {"trace_id": trace_id, "turn_index": turn_index, "whole_call": turn_index == 0}
        yield "spans", {"trace_id": trace_id}


def answers(ask: Ask, asked: Asked, only: Sequence[str] = ()) -> dict[str, object]:
    """Return the answers by the question with its parameters; to all, or only to questions of these names."""
    chosen = [(name, parameters) for name, parameters in questions(asked) if not only or name in only]
    return {key_of(name, parameters): plain(ask(name, parameters)) for name, parameters in chosen}


def key_of(name: str, parameters: Parameters) -> str:
    """A question as a line of text; the objectives, which are many, by their number."""

    def shown(value: object) -> object:
        if isinstance(value, dict):
            return {key: shown(member) for key, member in value.items()}
        return f"all {len(value)}" if isinstance(value, list) and len(value) == len(_OBJECTIVES) else value

    return f"{name} {json.dumps(shown(parameters), sort_keys=True)}"


def reports(reader: StoreReader, asked: Asked, now_unix_ns: int) -> dict[str, object]:
    """The summary, the JUnit and the Markdown of the report of each run, and its raw values of each metric."""
    shown_reports: dict[str, object] = {}
    for run_id in (asked.run, asked.other, asked.service):
        result = judged_run(reader, run_id, default_objectives(), now_unix_ns=now_unix_ns)
        files = artifacts(replace(result, pictures=read_pictures(reader, result.summary)))
        summary = _without_store(json.loads(files[SUMMARY]))
        shown_reports[f"report {run_id} {SUMMARY}"] = summary
        for name in (JUNIT, MARKDOWN):
            text = files[name].decode().replace(str(reader.directory), "STORE")
            shown_reports[f"report {run_id} {name}"] = text.splitlines()
        for metric in METRIC_NAMES:
            values = reader.metric_values(Filter(run_id=run_id), metric)
            if values:
                few = {"first": values[:3], "last": values[-1], "sum": math.fsum(values)}
                shown_reports[f"values {run_id} {metric}"] = {"n": len(values), **few}
    return shown_reports


def _without_store(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_store(member) for key, member in value.items() if key not in _SUMMARY_LEFT_OUT}
    return [_without_store(element) for element in value] if isinstance(value, list) else value


def plain(value: object) -> Any:
    """An answer as what JSON has, without fields that have no value."""
    if isinstance(value, CohortTurns):
        return _plain_cohort(value)
    if isinstance(value, RolloutVerdict):  # an object of which every key is there
        return plain(msgspec.json.decode(msgspec.json.encode(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _filled({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, msgspec.Struct):
        return _filled(msgspec.structs.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(member) for key, member in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return repr(value)


def _filled(fields: Mapping[str, object]) -> dict[str, Any]:
    if fields.get("is_sample"):
        return {"is_sample": NOT_COMPARED}
    content = {name: plain(value) for name, value in fields.items() if name not in LEFT_OUT}
    if "declared" in content:
        content["declared"] = {k: v for k, v in content["declared"].items() if k not in _DECLARED_LEFT_OUT}
    return {name: value for name, value in content.items() if value is not None and value not in ([], {})}


def _plain_cohort(of: CohortTurns) -> dict[str, Any]:
    """A cohort's columns as lists; codes as their values, and those of calls and audio in the order of their
    first turns, as their numbers mean nothing."""
    content = _filled({field.name: getattr(of, field.name) for field in dataclasses.fields(of)})
    content["numbers"] = {name: [None if math.isnan(v) else v for v in of.number(name)] for name in of.numbers}  # type: ignore[union-attr]
    content["codes"] = {}
    for name in of.codes:
        codes = of.code(name).tolist()
        if name in of.labels:
            codes = [None if code < 0 else of.labels[name][code] for code in codes]
        elif name != OUTCOME:
            first = {code: place for place, code in enumerate(dict.fromkeys(codes))}
            codes = [first[code] for code in codes]
        content["codes"][name] = codes
    assert CALL in of.codes or not of.turns
    content.pop("labels", None)
    return content


# What receivers count is no answer of the store.
_OF_RECEIVERS: Final = {family.name for family in (*INGESTED.values(), STORED)}


def exposed(page: str) -> dict[str, object]:
    """The figures of a page of `/metrics`, a family a key: every series of counters and gauges, and of histograms every
    count and sum, and the buckets that hold something, over all labels together."""
    families: dict[str, object] = {}
    for family in text_string_to_metric_families(page):
        if family.name in _OF_RECEIVERS:
            continue
        series: dict[str, float] = {}
        buckets: defaultdict[float, float] = defaultdict(float)
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                buckets[float(sample.labels["le"])] += sample.value
            else:
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()) if value)
                series[f"{sample.name.removeprefix(family.name)}{{{labels}}}"] = sample.value
        shown: dict[str, object] = {"type": family.type, "help": family.documentation, "series": series}
        if buckets:
            counts = [buckets[le] for le in sorted(buckets)]
            steps = zip(sorted(buckets), counts, [0.0, *counts[:-1]], strict=True)
            shown["buckets"] = {repr(le): count - before for le, count, before in steps if count > before}
            shown["bounds"] = [repr(le) for le in sorted(buckets)]
        families[f"/metrics {family.name}"] = shown
    return families
