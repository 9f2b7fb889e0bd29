"""`voiceprobe llm`: everything checked at once, the bench carried out, and what it found shown, written and judged."""

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar, cast

import numpy as np
from rich.console import Console

from corpora.output_paths import unwritable, unwritable_folder
from corpora.progress import progress_bar
from loadtest.engine.tls import TlsClient, tls_client
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.llm import plan as plans
from loadtest.llm.answers import LlmAnswer
from loadtest.llm.bodies import KEY_VARIABLES, LlmTarget, Wire, key_of, wire_of
from loadtest.llm.client import LlmClient, run
from loadtest.llm.plan import Plan
from loadtest.llm.prices import CostRow, Prices, load_prices
from loadtest.llm.prompts import Prompt, checkable, load_prompts
from loadtest.llm.report import BenchReport, as_object, letters_of, rich_tables, sentences
from loadtest.llm.rows import rows_of
from loadtest.llm.running import LlmBench, Results
from loadtest.llm.turns import StoredRun, store_turns, turns_of
from loadtest.llm.voice import OtherStages, declared, predict
from loadtest.protocols.address import public_target
from loadtest.run.json_file import write_json, write_result
from loadtest.run.request import out_folder
from loadtest.run.runs import list_default, named_runs
from telemetry.client_tls import sidecar_token
from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.file_faults import nearest
from telemetry.model.formatting import NS_PER_S, count
from telemetry.model.semconv import RAMP
from telemetry.objectives.judgment import count_turns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import NO_OBJECTIVES, judge, load_objectives, objectives_text
from telemetry.store.questions.comparisons import RunTurnsQuestion
from telemetry.store.reader import open_store
from telemetry.store.run_folders.places import BENCH_NAME, OBJECTIVES_NAME, STORE_FOLDER, is_store

MOST_SAMPLES: Final = 10_000
MOST_TOKENS: Final = 100_000
MOST_CALLERS: Final = 1_000
T = TypeVar("T")
LONGEST_NAME: Final = 63  # of a cohort in the plan of a rollout
_COHORT: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OF_A_RUN: Final = ("voice_to_voice", "asr_final_latency", "llm_first_token_latency", "time_to_first_sentence")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmBenchRequest:
    """The arguments of the command, as texts where they are yet to be read."""

    urls: Sequence[str] | None
    model: Sequence[str] | None = None
    wire: Sequence[str] | None = None
    key: Sequence[str] | None = None
    cohort: Sequence[str] | None = None
    ca_file: str | None = None
    only: str = ""
    prompts: Path | None = None
    prices: Path | None = None
    slo: Path | None = None
    samples: int = 15
    lengths: str = ""
    concurrency: str = ""
    rates: str = ""
    loops: str = ""
    level_time: str = "20s"
    within: str = "500ms"
    timeout: str = "120s"
    endpointing: str = "200ms"
    asr: str = "150ms"
    tts: str = "200ms"
    from_run: str | None = None
    seed: int = 1
    out: Path
    json_file: Path | None = None
    html_file: Path | None = None


@dataclass(frozen=True, slots=True)
class CheckedBench:
    """A request that can be carried out, with what was loaded to find that out."""

    plan: Plan
    targets: list[LlmTarget]
    cohorts: list[str]
    others: OtherStages
    objectives: list[Objective]
    prices: Prices | None
    timeout_s: float
    tls: TlsClient


@dataclass(slots=True)
class _Faults:
    """Collects what is wrong with a request."""

    lines: list[str] = field(default_factory=list[str])

    def duration(self, flag: str, text: str, *, least_s: float = 0.0) -> float:
        """A duration in seconds."""
        try:
            duration_s = Duration.parse(text).seconds
        except DurationError as error:
            self.lines.append(f"{flag} {error}")
            return 1.0
        if duration_s < least_s:
            self.lines.append(f"{flag} {text} is out of range: {declared(least_s)} or more")
        return duration_s

    def numbers(self, flag: str, text: str, most: float, *, is_whole: bool = True) -> tuple[float, ...]:
        """Numbers apart by commas, all above 0, each once; none for an empty text."""
        numbers: dict[float, None] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            try:
                value = float(int(part) if is_whole else float(part))
            except ValueError:
                self.lines.append(f"{flag} {part!r} is not a {'whole ' if is_whole else ''}number")
                continue
            if not 0 < value <= most:
                self.lines.append(f"{flag} {part} is out of range: above 0, and {most:,.0f} at most")
            numbers[value] = None
        return tuple(numbers)

    def ask(self, load: Callable[[], T], otherwise: T) -> T:
        """Load something and collect its faults; `otherwise` where it has any."""
        try:
            return load()
        except ConfigError as error:
            self.lines += [f"{error.where} {fault}" for fault in error.faults]
        except (UsageError, StoreError) as error:
            self.lines += str(error).splitlines()
        return otherwise


def check(request: LlmBenchRequest, environment: Mapping[str, str] = os.environ) -> CheckedBench:
    """Everything that can be wrong with a request, at once. Raises UsageError with one sentence a line."""
    faults = _Faults()
    targets = _targets(request, environment, faults)
    cohorts = _cohorts(request.cohort, [target.name for target in targets], faults)
    plan = _plan(request, faults)
    stages = {
        "endpointing": faults.duration("--endpointing", request.endpointing),
        "ASR": faults.duration("--asr", request.asr),
        "TTS": faults.duration("--tts", request.tts),
    }
    named = ", ".join(f"{name} {declared(value)}" for name, value in stages.items())
    others = OtherStages((sum(stages.values()),), f"{named}, as given or assumed")
    if request.from_run is not None:
        others = faults.ask(lambda: _stages_of(str(request.from_run)), others)
    slo, prices = request.slo, request.prices
    objectives = [] if slo is None else faults.ask(lambda: load_objectives(slo), [])
    known = None if prices is None else faults.ask(lambda: load_prices(prices), None)
    timeout_s = faults.duration("--timeout", request.timeout, least_s=0.1)
    tls = faults.ask(lambda: tls_client(request.ca_file), TlsClient())
    outputs = (request.json_file, request.html_file)
    faults.lines += [fault for file in outputs if file is not None and (fault := unwritable(file))]
    faults.lines += [fault] if (fault := unwritable_folder(request.out)) else []
    if faults.lines:
        raise UsageError("\n".join(faults.lines))
    return CheckedBench(plan, targets, cohorts, others, objectives, known, timeout_s, tls)


def _targets(request: LlmBenchRequest, environment: Mapping[str, str], faults: _Faults) -> list[LlmTarget]:
    """A target for each URL and its model: one model for all, one for each, or several at one URL."""
    urls, models = request.urls or (), request.model or ()
    many = max(len(urls), len(models), 1)
    columns: list[list[str | None]] = []
    flags = {"URL": urls, "--model": models, "--wire": request.wire or (), "--key": request.key or ()}
    for flag, given in flags.items():
        if len(given) not in (0, 1, many):
            faults.lines.append(f"{len(given)} × {flag} for {many} targets: give one for all of them, or one for each")
        columns.append([*given, *[None] * many][:many] if len(given) == many else [*given[:1], None][:1] * many)
    if not urls:
        faults.lines.append("no address is given: name an endpoint such as http://127.0.0.1:8000/v1")
        return []
    targets: list[LlmTarget] = []
    for url, model, wire, key in zip(*columns, strict=True):
        if wire is not None and wire not in KEY_VARIABLES:
            faults.lines.append(f"--wire {wire!r} is not known{nearest(wire, KEY_VARIABLES)}")
            continue
        is_name = key is None or re.fullmatch(r"[A-Za-z_]\w*", key) is not None
        if not is_name:
            faults.lines.append("--key is not the name of an environment variable: put the key into one, and name that")
        try:
            spoken = wire_of(url or "") if wire is None else cast("Wire", wire)
            target = LlmTarget(url or "", model, wire=spoken, key=key_of(spoken, environment, key if is_name else None))
        except UsageError as error:
            faults.lines += [line for line in str(error).splitlines() if line not in faults.lines]
            continue
        same = sum(earlier.name.partition(" #")[0] == target.name for earlier in targets)
        target.name += f" #{same + 1}" if same else ""
        targets.append(target)
    return targets


def _cohorts(given: Sequence[str] | None, names: Sequence[str], faults: _Faults) -> list[str]:
    """The cohort of each target: as given, else its name as the plan of a rollout can write it."""
    if given is None:
        return list(map(_label, names))
    if len(given) != len(names):
        faults.lines.append(f"{len(given)} × --cohort for {count(len(names), 'target')}: give one for each")
    faults.lines += [
        f"--cohort {name!r}: a name has up to {LONGEST_NAME} letters, digits, '.', '_' and '-', and begins and ends "
        "with a letter or digit"
        for name in given
        if not _COHORT.fullmatch(name)
    ]
    faults.lines += [f"--cohort {name} is given twice" for name, times in Counter(given).items() if times > 1]
    return list(given)


def _label(name: str) -> str:
    """A name of letters, digits, '.' and '-': another one for each target, however long its name is."""
    label = re.sub(r"[^A-Za-z0-9.]+", "-", name.partition("://")[2] or name).strip("-.")
    if len(label) <= LONGEST_NAME:
        return label
    return f"{label[: LONGEST_NAME - 9].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _plan(request: LlmBenchRequest, faults: _Faults) -> Plan:
    names = [name.strip() for name in request.only.split(",") if name.strip()]
    unknown = [name for name in names if name not in plans.EXPERIMENTS]
    faults.lines += [f"--only {name!r} is not an experiment{nearest(name, plans.EXPERIMENTS)}" for name in unknown]
    chosen = tuple(name for name in plans.EXPERIMENTS if name in (names or plans.QUICK))
    if not 1 <= request.samples <= MOST_SAMPLES:
        faults.lines.append(f"--samples {request.samples} is out of range: 1 to {MOST_SAMPLES:,}")
    prompts: list[Prompt] = faults.ask(lambda: load_prompts(request.prompts), [])
    if "quality" in names and prompts and not checkable(prompts):
        faults.lines.append(f"{request.prompts} has no prompt with expect: leave quality out of --only, or add some")
    lengths = faults.numbers("--lengths", request.lengths, MOST_TOKENS)
    levels = faults.numbers("--concurrency", request.concurrency, MOST_CALLERS)
    rates = faults.numbers("--rates", request.rates, MOST_CALLERS, is_whole=False)
    loops = faults.numbers("--loops", request.loops, MOST_CALLERS)
    if (levels or rates) and "concurrency" not in chosen:
        faults.lines.append("--concurrency and --rates are of the experiment concurrency: add it to --only")
    if loops and "agent" not in chosen:
        faults.lines.append("--loops is of the experiment agent: add it to --only")
    return Plan(
        prompts=prompts,
        experiments=chosen,
        lengths=tuple(int(length) for length in sorted(lengths)) or plans.LENGTHS,
        samples=request.samples,
        loops=tuple(map(int, loops)) or plans.LOOPS,
        levels=tuple(map(int, levels)) or (() if rates else plans.LEVELS),
        rates=rates,
        level_s=faults.duration("--level-time", request.level_time, least_s=1.0),
        within_s=faults.duration("--within", request.within, least_s=0.001),
        seed=request.seed,
    )


def _stages_of(named: str) -> OtherStages:
    """The time that each turn of a run takes without its model. Raises UsageError."""
    (entry,) = named_runs([named], list_default)
    with open_store(entry.store, sidecar_token()) as reader:
        run = reader.run_turns(RunTurnsQuestion(entry.run_id, _OF_A_RUN))
    if run is None:
        raise UsageError(f"--from-run {named}: the store holds no turn of this run")
    heard, final, token, sentence = (run.turns.number(name) for name in _OF_A_RUN)
    if heard is None or final is None or token is None or sentence is None:
        raise UsageError(f"--from-run {named}: the store does not hold its stages")
    # The model's part of a turn is from the transcript to the first sentence, or the first token where that is unknown.
    # A transcript after the first token was made in parallel to the answer: the model did not wait for it.
    model = np.where(token < final, np.nan, np.where(np.isnan(sentence), token, sentence) - final)
    rests = (heard - model)[np.isfinite(heard - model)] / NS_PER_S
    if not rests.size:
        raise UsageError(
            f"--from-run {named}: no turn of it, ramps left out, has voice-to-voice and a final transcript before the "
            "first token: give --endpointing, --asr and --tts"
        )
    return OtherStages(
        tuple(map(float, rests)), f"all but the model of {count(rests.size, 'turn')} of the run {entry.title}"
    )


def run_bench(request: LlmBenchRequest, console: Console, client: LlmClient | None = None) -> ExitCode:
    """Carry it out. Raises UsageError, EndpointUnreachable where no target answers, StoreError, OutputError."""
    checked = check(request)
    names = [target.name for target in checked.targets]
    units = sum(unit.calls for unit in plans.schedule(checked.plan, len(names)))
    loads = len(plans.load_cells(checked.plan)) * len(names) if "concurrency" in checked.plan.experiments else 0
    console.print(_expectation(checked, units, loads), soft_wrap=True, markup=False, highlight=False)
    began_s = time.monotonic()
    bench = LlmBench(
        checked.plan, checked.targets, client or LlmClient(checked.tls, limit_s=checked.timeout_s), time.perf_counter_ns
    )
    with progress_bar("asking") as progress:
        done = [0]

        def on_calls(calls: int) -> None:
            done[0] += calls
            progress(done[0], units)

        bench.on_calls = on_calls
        try:
            run(_carried_out(bench))
        except KeyboardInterrupt:
            bench.results.is_interrupted = True
    results = bench.results
    if len(results.given_up) == len(names) and not any(sample.answer.fault is None for sample in results.samples):
        sentences_ = [f"{names[place]}: {fault.sentence}" for place, fault in results.given_up.items()]
        raise EndpointUnreachable("\n".join(sentences_))
    report = _report(request, checked, results, time.monotonic() - began_s)
    _show(report, console)
    kept = None if report.store is None else request.out / BENCH_NAME
    for file in filter(None, (kept, request.json_file)):
        write_json(file, as_object(report))
    if request.html_file is not None:
        from loadtest.llm.page import as_html  # imports what draws, which takes 0.3 s

        write_result(request.html_file, as_html(report).encode())
    return report.exit_code


async def _carried_out(bench: LlmBench) -> None:
    async with bench.client:
        await bench.run()


def _expectation(checked: CheckedBench, units: int, loads: int) -> str:
    targets = count(len(checked.targets), "target")
    load = f", then {count(loads, 'load level')} of {declared(checked.plan.level_s)}" if loads else ""
    return f"{count(units, 'request')} to {targets}, in blocks of random order (seed {checked.plan.seed}){load}"


def _report(request: LlmBenchRequest, checked: CheckedBench, results: Results, elapsed_s: float) -> BenchReport:
    plan, names = checked.plan, [target.name for target in checked.targets]
    rows = rows_of(results, plan, names)
    offset_ns = time.time_ns() - time.perf_counter_ns()
    runs = [
        StoredRun(run_id, public_target(target.url), target.model, cohort, offset_ns)
        for run_id, target, cohort in zip(
            _run_ids(request.out, checked.cohorts), checked.targets, checked.cohorts, strict=True
        )
    ]
    turns = [turns_of(results, place, run) for place, run in enumerate(runs)]
    stored = {}
    if any(turns):
        request.out.mkdir(parents=True, exist_ok=True)
        store_turns(request.out / STORE_FOLDER, list(zip(runs, turns, strict=True)), plan.seed)
        stored = {name: run.run_id for name, run, of in zip(names, runs, turns, strict=True) if of}
        # Without objectives of its own it would be judged by those of a voice, which count from the end of speech.
        judged_by = NO_OBJECTIVES if request.slo is None else objectives_text(request.slo)
        write_result(request.out / OBJECTIVES_NAME, judged_by.encode())
    verdicts = {
        name: judge(checked.objectives, count_turns(turn for turn in of if turn.phase_kind != RAMP))
        for name, of in zip(names, turns, strict=True)
        if checked.objectives
    }
    return BenchReport(
        plan=plan,
        rows=rows,
        others=checked.others,
        voices=[predict(stall, checked.others, plan.seed) for stall in rows.stalls],
        costs=[] if checked.prices is None else _costs(checked, results, checked.prices),
        verdicts=verdicts,
        runs=stored,
        notes=[
            f"{target.name} refuses {', '.join(sorted(target.refused))}" for target in checked.targets if target.refused
        ],
        store=str(request.out / STORE_FOLDER) if stored else None,
        elapsed_s=elapsed_s,
    )


def _run_ids(out: Path, cohorts: Sequence[str]) -> list[str]:
    """The folder's name, and the cohort's where there are several; a folder that holds runs gets new ones."""
    name = out_folder(None).name if is_store(out / STORE_FOLDER) else out.absolute().name
    return [name if len(cohorts) == 1 else f"{name}-{cohort}" for cohort in cohorts]


def _costs(checked: CheckedBench, results: Results, prices: Prices) -> list[CostRow]:
    rows: list[CostRow] = []
    for place, target in enumerate(checked.targets):
        for experiment in dict.fromkeys(sample.experiment for sample in results.samples):
            answers: list[LlmAnswer] = [
                sample.answer for sample in results.samples if (sample.target, sample.experiment) == (place, experiment)
            ]
            served = next((answer.served_model for answer in answers if answer.served_model), None)
            row = prices.cost((target.name, target.model, served), target.name, experiment, answers)
            rows += [row] if row is not None else []
    return rows


def _show(report: BenchReport, console: Console) -> None:
    first, *others = report.headlines
    console.print(first, style="bold", soft_wrap=True, markup=False, highlight=False)
    for line in others:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    for name, letter in letters_of(report.rows.targets).items():
        console.print(f"{letter}: {name}", soft_wrap=True, markup=False, highlight=False)
    for shown in rich_tables(report):
        console.print()
        console.print(shown, markup=False)
    console.print()
    for sentence in sentences(report):
        console.print(sentence, style="dim", soft_wrap=True, markup=False, highlight=False)
