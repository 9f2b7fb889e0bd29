"""The rows of figures that a bench shows, by experiment. Pure.

An answer with a fault has no figure; it is counted by its fault. What cannot be known is None, never 0.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loadtest.llm.answers import SECOND_NS, LlmAnswer, NetworkPath
from loadtest.llm.figures import Figure, Rate, Saturation, figure, mean, rate_in_steady_state, saturation, steady_rate
from loadtest.llm.plan import (
    CACHE_TURNS,
    RESERVATION,
    SPOKEN_TOKENS,
    SYSTEM_TOKENS,
    TIMER,
    Plan,
    is_in_row,
    load_cells,
    loop_of,
)
from loadtest.llm.prompts import NoJson, checkable, is_valid
from loadtest.llm.running import AgentLoop, AskedSample, LevelResult, Results
from telemetry.model.intervals import wilson_interval

# From this share of a prompt's tokens on a request counts as answered from the cache, and below it as not.
CACHED_SHARE: Final = 0.5
FIGURES: Final[Mapping[str, Callable[[LlmAnswer], float | None]]] = {
    "first_byte_s": lambda answer: answer.first_byte_s,
    "first_token_s": lambda answer: answer.first_token_s,
    "first_answer_token_s": lambda answer: answer.first_answer_token_s,
    "first_sentence_s": lambda answer: answer.first_sentence_s,
    "wall_s": lambda answer: answer.wall_s,
    "tokens_per_s": lambda answer: answer.tokens_per_s,
    "tokens_per_s_wall": lambda answer: answer.tokens_per_s_wall,
    "tokens_per_chunk": lambda answer: answer.tokens_per_chunk,
}


@dataclass(frozen=True, slots=True)
class CountedShare:
    """So many of a total, with Wilson's 95 % interval; `ratio` is None of nothing."""

    good: int
    total: int
    ratio: float | None = None
    interval: tuple[float, float] | None = None


def share(good: int, total: int) -> CountedShare:
    """A share with its interval."""
    return CountedShare(good, total, good / total if total else None, wilson_interval(good, total))


@dataclass(frozen=True, slots=True)
class LengthRow:
    """Answers of a length, within 10 %: their figures, and by cause how many others there were. The gaps are those
    between chunks of all answers; `token_gap_s` is per token, where the server counts them as it goes."""

    target: str
    tokens: int
    n: int
    others: Mapping[str, int]
    figures: Mapping[str, Figure]
    prompt_tokens: float | None
    cached_tokens: float | None


@dataclass(frozen=True, slots=True)
class CacheRow:
    """First tokens after a system prompt that is new (`cold`), repeated (`warm`) or of a conversation's second turn.
    `as_stated` are the answers of which the server's own count shows what the row claims, `contrary` those of which it
    shows the opposite and which are not in the figure; `unproved` those of which it shows nothing. `counted_by` says
    whether the count is of the answers or of the page of the server's metrics."""

    target: str
    system_tokens: int
    state: str
    first_token_s: Figure
    as_stated: int
    contrary: int
    unproved: int
    faults: int
    prompt_tokens: float | None
    cached_tokens: float | None
    counted_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StructuredRow:
    """Answers that a program reads; `valid` is of those without a fault."""

    target: str
    asked_as: str
    first_byte_s: Figure
    wall_s: Figure
    valid: CountedShare
    faults: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoopRow:
    """Loops of an agent: how long one takes, and a call of it. Failed ones have no figure."""

    target: str
    order: str
    calls: int
    total_s: Figure
    call_s: Figure
    failed: int


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A time of constant load. `goodput` are the answers a second that are within the objective, of the steady state;
    first tokens count from the intended moment of asking, and from after the time that was left out. `unfinished` are
    the requests that were on their way when the level was interrupted."""

    target: str
    kind: str
    level: float
    sent_per_s: float
    sent: int
    dropped: int
    unfinished: int
    rate: Rate | None
    goodput: Rate | None
    first_token_s: Figure
    good: CountedShare
    faults: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SaturationRow:
    """The concurrency above which more callers bring no more answers; None: too few levels."""

    target: str
    saturation: Saturation | None


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """The way to a target. `of_first_token` is the median round trip over the median first token."""

    target: str
    dns_s: Figure
    tcp_s: Figure
    tls_s: Figure
    round_trip_s: Figure
    asked: str
    of_first_token: float | None
    faults: int


@dataclass(frozen=True, slots=True)
class QualityRow:
    """Right answers of those to prompts that can be checked, all and by kind; a fault counts as not right."""

    target: str
    accuracy: CountedShare
    by_kind: Mapping[str, CountedShare]
    faults: int


@dataclass(frozen=True, slots=True)
class Stall:
    """The wait for a first sentence of the answers that a voice would say. `source` says which answers these are."""

    target: str
    source: str
    first_sentence_s: Figure
    values_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FaultCount:
    """The number of faults of a kind, with the sentence of the first."""

    n: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRows:
    """All of a bench. `faults` are by target and kind, each with how many and one of its sentences; `oddities` are how
    many there were of what makes no fault; `counted_by` says whose count of tokens the figures are from,
    `served_by` which models the answers name, `stamp_error_s` how wide the widest stamp of an answer is."""

    targets: Sequence[str]
    stalls: Sequence[Stall]
    lengths: Sequence[LengthRow] = ()
    cache: Sequence[CacheRow] = ()
    structured: Sequence[StructuredRow] = ()
    agent: Sequence[LoopRow] = ()
    load: Sequence[LoadRow] = ()
    saturation: Sequence[SaturationRow] = ()
    network: Sequence[NetworkRow] = ()
    quality: Sequence[QualityRow] = ()
    faults: Mapping[str, Mapping[str, FaultCount]] = field(default_factory=dict[str, Mapping[str, FaultCount]])
    oddities: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    given_up: Mapping[str, str] = field(default_factory=dict[str, str])
    counted_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    served_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    stamp_error_s: Mapping[str, Figure] = field(default_factory=dict[str, Figure])
    answers: int = 0
    interrupted: bool = False


def rows_of(results: Results, plan: Plan, targets: Sequence[str]) -> BenchRows:
    """Everything that the results show, by experiment."""

    def of(experiment: str, *cells: str) -> Iterator[tuple[int, str, str, list[AskedSample]]]:
        """The samples of each cell of each target, where the plan has the experiment."""
        for place, name in enumerate(targets if experiment in plan.experiments else ()):
            yield from ((place, name, cell, _of(results.samples, experiment, place, cell)) for cell in cells)

    loops = [f"{order} {calls}" for order in ("sequential", "parallel") for calls in plan.loops]
    levels = sorted(results.loads, key=lambda level: (level.target, level.kind, level.level))
    load = [_load(level, targets[level.target], plan.within_s) for level in levels]
    everything = [*results.samples, *(sample for level in results.loads for sample in level.samples)]
    return BenchRows(
        targets=targets,
        stalls=[_stall(results.samples, place, name) for place, name in enumerate(targets)],
        lengths=[
            _length(samples, name, int(cell)) for _, name, cell, samples in of("lengths", *map(str, plan.lengths))
        ],
        cache=[
            _cache(name, int(cell), state, [sample for sample in samples if sample.state == state])
            for _, name, cell, samples in of("cache", *map(str, SYSTEM_TOKENS))
            for state in CACHE_TURNS
        ],
        structured=[_structured(name, cell, samples) for _, name, cell, samples in of("structured", "schema", "tool")],
        agent=[
            _agent(name, cell, samples, [loop for loop in results.loops if (loop.target, loop.cell) == (place, cell)])
            for place, name, cell, samples in of("agent", *loops)
        ],
        network=[
            _network(
                name,
                [path for target, path in results.paths if target == place],
                _without_fault(_of(results.samples, "lengths", place)),
            )
            for place, name, _, _ in of("network", "path")
        ],
        quality=[
            _quality(name, _of(results.samples, "quality", place), plan) for place, name, _, _ in of("quality", "")
        ],
        load=load,
        saturation=_saturation(load, plan, targets),
        faults={name: _faults(everything, results, place) for place, name in enumerate(targets)},
        oddities={name: _oddities(everything, place) for place, name in enumerate(targets)},
        given_up={targets[place]: fault.sentence for place, fault in results.given_up.items()},
        counted_by={name: _counted_by(everything, place) for place, name in enumerate(targets)},
        served_by={name: _served_by(everything, place) for place, name in enumerate(targets)},
        stamp_error_s={
            name: figure(
                sample.answer.stamp_error_s
                for sample in everything
                if sample.target == place and not sample.answer.fault
            )
            for place, name in enumerate(targets)
        },
        answers=sum(sample.answer.fault is None for sample in everything),
        interrupted=results.is_interrupted,
    )


def _of(samples: Iterable[AskedSample], experiment: str, target: int, cell: str | None = None) -> list[AskedSample]:
    return [
        sample
        for sample in samples
        if sample.experiment == experiment and sample.target == target and cell in (None, sample.cell)
    ]


def _fault_kinds(samples: Iterable[AskedSample]) -> dict[str, int]:
    return dict(Counter(sample.answer.fault.kind for sample in samples if sample.answer.fault is not None))


def _without_fault(samples: Iterable[AskedSample]) -> list[LlmAnswer]:
    return [sample.answer for sample in samples if sample.answer.fault is None]


def _length(samples: Sequence[AskedSample], target: str, tokens: int) -> LengthRow:
    others = Counter[str](_fault_kinds(samples))
    row: list[LlmAnswer] = []
    for answer in _without_fault(samples):
        if is_in_row(answer.tokens, tokens):
            row.append(answer)
        else:
            others["not counted" if answer.tokens is None else "shorter" if answer.tokens < tokens else "longer"] += 1
    figures = {name: figure(map(value, row)) for name, value in FIGURES.items()}
    figures["gap_s"] = figure(gap for answer in row for gap in answer.gaps_s)
    figures["token_gap_s"] = figure(gap for answer in row for gap in answer.token_gaps_s)
    return LengthRow(target, tokens, len(row), dict(others), figures, *_prompt_tokens(row))


def _prompt_tokens(answers: Sequence[LlmAnswer]) -> tuple[float | None, float | None]:
    """The mean of the prompt's tokens, and of those from the cache."""
    usages = [answer.usage for answer in answers if answer.usage is not None]
    return mean(usage.prompt for usage in usages), mean(map(_cached, answers))


def _cached(answer: LlmAnswer) -> int | None:
    """The prompt's tokens from the cache, as the usage or the server's own times count them."""
    if answer.usage is not None and answer.usage.cached is not None:
        return answer.usage.cached
    return None if answer.timings is None else answer.timings.cache_n


def _is_warm(answer: LlmAnswer) -> bool | None:
    """Return whether the server's count shows that the prompt came from the cache; None where it shows nothing."""
    cached = _cached(answer)
    if cached is None or answer.usage is None or not answer.usage.prompt:
        return None
    return cached >= CACHED_SHARE * answer.usage.prompt


def _cache(target: str, size: int, state: str, samples: Sequence[AskedSample]) -> CacheRow:
    answers, is_meant = _without_fault(samples), state != "cold"
    states = [_is_warm(answer) for answer in answers]
    kept = [answer for answer, is_warm in zip(answers, states, strict=True) if is_warm is not (not is_meant)]
    return CacheRow(
        target,
        size,
        state,
        figure(answer.first_token_s for answer in kept),
        states.count(is_meant),
        states.count(not is_meant),
        states.count(None),
        len(samples) - len(answers),
        *_prompt_tokens(kept),
        tuple(sorted({_cached_by(answer) for answer in answers if _cached(answer) is not None})),
    )


def _cached_by(answer: LlmAnswer) -> str:
    return "answer" if answer.usage is None else answer.usage.cached_by


def _structured(target: str, cell: str, samples: Sequence[AskedSample]) -> StructuredRow:
    answers = _without_fault(samples)
    first, wall = figure(answer.first_byte_s for answer in answers), figure(answer.wall_s for answer in answers)
    valid = sum(map(_is_reservation if cell == "schema" else _is_timer, answers))
    return StructuredRow(target, cell, first, wall, share(valid, len(answers)), _fault_kinds(samples))


def _is_reservation(answer: LlmAnswer) -> bool:
    return is_valid(_strict(answer.structured), RESERVATION)


def _is_timer(answer: LlmAnswer) -> bool:
    is_named = any(call.name == TIMER["name"] for call in answer.tool_calls[:1])
    return is_named and is_valid(_strict(answer.structured), TIMER["parameters"])


def _strict(text: str) -> Any:
    """The JSON value that a whole text is, as a program would read it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NoJson


def _agent(target: str, cell: str, samples: Sequence[AskedSample], loops: Sequence[AgentLoop]) -> LoopRow:
    calls_s = figure(answer.wall_s for answer in _without_fault(samples))
    failed = sum(loop.total_s is None for loop in loops)
    return LoopRow(target, *loop_of(cell), figure(loop.total_s for loop in loops), calls_s, failed)


def _load(level: LevelResult, target: str, within_s: float) -> LoadRow:
    whole = [
        sample for sample in level.samples if sample.answer.fault is None and sample.answer.finished_ns is not None
    ]
    good = [sample for sample in whole if _is_within(sample, within_s)]
    length_s = (level.end_ns - level.begin_ns) / SECOND_NS

    def moments(samples: Sequence[AskedSample]) -> list[float]:
        finished_s = [((sample.answer.finished_ns or 0) - level.begin_ns) / SECOND_NS for sample in samples]
        return [moment for moment in finished_s if moment <= length_s]

    steady = steady_rate(moments(whole), length_s)
    from_ns = level.begin_ns + round((steady.left_out_s if steady is not None else 0.0) * SECOND_NS)
    kept = [sample for sample in level.samples if sample.answer.started_ns >= from_ns]
    # An arrival that was never sent is not good: the ones before it were not answered.
    total = len(kept) + level.dropped
    return LoadRow(
        target,
        level.kind,
        level.level,
        level.sent / length_s,
        level.sent,
        level.dropped,
        level.sent - len(level.samples),
        steady,
        None if steady is None else rate_in_steady_state(steady, moments(good), length_s),
        figure(_first_token_s(sample) for sample in kept),
        share(sum(_is_within(sample, within_s) for sample in kept), total),
        _fault_kinds(level.samples),
    )


def _first_token_s(sample: AskedSample) -> float | None:
    first = sample.answer.first_answer_token_s
    return None if first is None else first + sample.late_s + (sample.answer.connect_s or 0.0) * (sample.late_s > 0)


def _is_within(sample: AskedSample, within_s: float) -> bool:
    first = _first_token_s(sample)
    return first is not None and first <= within_s


def _saturation(load: Sequence[LoadRow], plan: Plan, targets: Sequence[str]) -> list[SaturationRow]:
    if not any(kind == "closed" for kind, _ in load_cells(plan)) or not load:
        return []
    rows: list[SaturationRow] = []
    for name in targets:
        rates = {int(row.level): row.rate for row in load if row.target == name and row.kind == "closed" and row.rate}
        rows.append(SaturationRow(name, saturation(rates, plan.seed)))
    return rows


def _network(target: str, paths: Sequence[NetworkPath], answers: Sequence[LlmAnswer]) -> NetworkRow:
    dns, tcp, tls, round_trip = (
        figure(getattr(path, name) for path in paths) for name in ("dns_s", "tcp_s", "tls_s", "round_trip_s")
    )
    first, trip = figure(answer.first_token_s for answer in answers).value("p50"), round_trip.value("p50")
    asked = next((path.asked for path in paths if path.asked), "")
    share_of_first = None if not first or trip is None else trip / first
    return NetworkRow(
        target, dns, tcp, tls, round_trip, asked, share_of_first, sum(path.fault is not None for path in paths)
    )


def _quality(target: str, samples: Sequence[AskedSample], plan: Plan) -> QualityRow:
    expected = {prompt.name: prompt.expect for prompt in checkable(plan.prompts) if prompt.expect is not None}
    right: dict[str, list[bool]] = {}
    for sample in samples:
        expect = expected[sample.prompt]
        is_right = sample.answer.fault is None and expect.is_met(sample.answer.text)
        right.setdefault(expect.kind, []).append(is_right)
    by_kind = {kind: share(sum(outcomes), len(outcomes)) for kind, outcomes in right.items()}
    every = share(sum(tally.good for tally in by_kind.values()), len(samples))
    return QualityRow(target, every, by_kind, len(samples) - len(_without_fault(samples)))


def _stall(samples: Sequence[AskedSample], target: int, name: str) -> Stall:
    """The stall over the lengths that a voice would say; without them, over the first experiment that has answers."""
    for experiment in ("lengths", "quality", "cache", "agent"):
        of = _of(samples, experiment, target)
        if experiment == "lengths":
            of = [sample for sample in of if int(sample.cell) <= SPOKEN_TOKENS] or of
        values = [value for sample in of if (value := sample.answer.first_sentence_s) is not None]
        if values:
            longest = max((int(sample.cell) for sample in of), default=0) if experiment == "lengths" else None
            source = experiment if longest is None else f"answers of up to {longest:,} tokens"
            return Stall(name, source, figure(values), tuple(values))
    return Stall(name, "no answer", Figure(), ())


def _faults(samples: Iterable[AskedSample], results: Results, target: int) -> dict[str, FaultCount]:
    """Those of the answers and of the ways to a target, by kind."""
    answer_faults = [sample.answer.fault for sample in samples if sample.target == target]
    path_faults = [path.fault for place, path in results.paths if place == target]
    counts: dict[str, FaultCount] = {}
    for fault in (*answer_faults, *path_faults):
        if fault is not None:
            before = counts.get(fault.kind, FaultCount(0, fault.sentence))
            counts[fault.kind] = FaultCount(before.n + 1, before.sentence)
    return counts


def _oddities(samples: Iterable[AskedSample], target: int) -> dict[str, int]:
    answers = [sample.answer for sample in samples if sample.target == target]
    fewer = sum(
        answer.tokens is not None and answer.tokens < sum(of.events for of in answer.chunks) for answer in answers
    )
    return {
        "comments that keep the connection alive, in no figure": sum(answer.keep_alives for answer in answers),
        "answers of fewer tokens than pieces: the count is wrong, or something on the way splits tokens": fewer,
    }


def _served_by(samples: Iterable[AskedSample], target: int) -> tuple[str, ...]:
    return tuple(
        sorted({name for sample in samples if sample.target == target and (name := sample.answer.served_model)})
    )


def _counted_by(samples: Iterable[AskedSample], target: int) -> tuple[str, ...]:
    usages = [sample.answer.usage for sample in samples if sample.target == target and sample.answer.fault is None]
    return tuple(sorted({usage.counted_by for usage in usages if usage is not None}))
