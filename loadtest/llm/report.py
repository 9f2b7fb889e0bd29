"""The findings of a bench: sentences, tables of the terminal, and the JSON object. Pure."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from loadtest.exit_codes import ExitCode
from loadtest.llm.figures import MIN_COUNT_FOR, RULE, Figure, Percentile, Rate
from loadtest.llm.plan import Plan
from loadtest.llm.prices import CostRow
from loadtest.llm.rows import BenchRows, CountedShare, LoadRow
from loadtest.llm.voice import (
    OtherStages,
    VoiceRow,
    declared,
    lost_sentence,
    seconds,
    stall_sentence,
    verdict,
)
from telemetry.model import formatting
from telemetry.model.formatting import DASH, clock, count, number, percent, rate
from telemetry.objectives.slo import Verdict

SCHEMA_VERSION: Final = 1
TOO_FEW: Final = "too few"
SOFT: Final = "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """All that is shown. `verdicts` are by target, on the objectives of the file that was given."""

    plan: Plan
    found: BenchRows
    others: OtherStages
    voices: Sequence[VoiceRow]
    costs: Sequence[CostRow] = ()
    verdicts: Mapping[str, Sequence[Verdict]] = dataclasses.field(default_factory=dict[str, Sequence[Verdict]])
    runs: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # the run of each target in the store
    store: str | None = None
    notes: Sequence[str] = ()
    elapsed_s: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """How the command ends: a missed objective before all else, then a target that did not answer."""
        judged = [each.met for verdicts in self.verdicts.values() for each in verdicts]
        if self.found.is_interrupted:
            return ExitCode.INTERRUPTED
        if False in judged:
            return ExitCode.OBJECTIVE_MISSED
        if self.found.given_up or not self._has_measured:
            return ExitCode.UNREACHABLE
        return ExitCode.UNDECIDED if None in judged else ExitCode.OK

    @property
    def _has_measured(self) -> bool:
        paths = any(row.round_trip_s.n or row.tcp_s.n for row in self.found.network)
        return bool(self.found.answers) or paths

    @property
    def headlines(self) -> list[str]:
        """The stall of each target, and then the verdict."""
        asked = any(experiment != "network" for experiment in self.plan.experiments)
        stalls = [stall_sentence(each) for each in self.found.stalls] if asked else []
        return [*stalls, verdict(self.found, self.voices)] if asked else ["only the way to the endpoints was measured"]


def sentences(report: BenchReport) -> Iterator[str]:
    """The sentences below the tables."""
    found = report.found
    if any(row.voice_to_voice_s.n for row in report.voices):
        yield from map(lost_sentence, report.voices)
        yield f"predicted voice-to-voice: the first sentence and {report.others.sentence}, taken as independent"
    for target, sources in found.counted_by.items():
        if sources:
            yield f"{target}: tokens are counted by the {' and by a '.join(sources)}"
    yield from (
        f"{each} of a request: it is left out, and lengths are also asked for by the prompt" for each in report.notes
    )
    yield from _of_load(found)
    yield from map(_cost, report.costs)
    for target, kinds in found.faults.items():
        for kind, (times, sentence) in kinds.items():
            yield f"{target}: {times} × {kind}, in no figure: {sentence}"
    for target, sentence in found.given_up.items():
        yield f"{target}: asked no more: {sentence}"
    for target, verdicts in report.verdicts.items():
        yield from (f"{target}: {each.sentence}" for each in verdicts)
    yield f"{count(found.answers, 'answer')} in {clock(report.elapsed_s)}"
    if report.store is not None:
        yield f"in the store {report.store}: {', '.join(report.runs.values())}"
    if found.is_interrupted:
        yield "interrupted: these are the figures so far"


def _of_load(found: BenchRows) -> Iterator[str]:
    for row in found.saturation:
        each = row.saturation
        if each is None:
            yield f"{row.target}: saturation is not known: it needs three levels with ten answers or more"
        elif not each.is_reached:
            yield f"{row.target}: not saturated up to {count(each.level, 'caller')} ({RULE})"
        else:
            between = f"95 % interval: {each.lower} to {each.upper}"
            yield f"{row.target}: saturated from {count(each.level, 'caller')} on ({RULE}; {between})"


def _cost(row: CostRow) -> str:
    saved = "what caching saves is not known: the server does not count it"
    if row.saved is not None:
        saved = f"caching saves {row.saved:.3g} {row.currency} of each"
    cost = "not known" if row.cost is None else f"{row.cost:.3g} {row.currency}"
    return f"{row.target}: an answer of {row.experiment} costs {cost} ({count(row.answers, 'answer')}); {saved}"


ShownTable = tuple[str, Sequence[str], list[Sequence[str]]]


def tables(report: BenchReport) -> Iterator[ShownTable]:
    """Each table as a title, headings and rows of texts."""
    for make in (_lengths, _first_tokens, _voices, _ways, _caches, _forms, _loops, _loads, _right):
        yield make(report)


def _lengths(report: BenchReport) -> ShownTable:
    return (
        "By output length (± 10 %): p50 · p90 in ms",
        ("target", "tokens", "n", "others", "first token", "first answer", "first sentence", "tokens/s",
         "wall/s", "per chunk", "gap"),
        [
            (
                row.target,
                number(row.tokens),
                number(row.n),
                causes(row.others),
                *(pair(row.figures[name]) for name in ("first_token_s", "first_answer_token_s", "first_sentence_s")),
                *(plain(row.figures[name]) for name in ("tokens_per_s", "tokens_per_s_wall", "tokens_per_chunk")),
                pair(row.figures["gap_s"]),
            )
            for row in report.found.lengths
        ],
    )  # fmt: skip


def _first_tokens(report: BenchReport) -> ShownTable:
    return (
        "First token in ms, with its 95 % interval",
        ("target", "tokens", "first byte p50", "p50", "p90", "p95", "p99"),
        [
            (
                row.target,
                number(row.tokens),
                with_interval(row.figures["first_byte_s"].at("p50")),
                *(with_interval(row.figures["first_token_s"].at(name)) for name in MIN_COUNT_FOR),
            )
            for row in report.found.lengths
        ],
    )


def _voices(report: BenchReport) -> ShownTable:
    return (
        "The voice turn: predicted voice-to-voice in ms",
        (
            "target",
            "p50",
            "p90",
            "p95",
            *(f"within {declared(budget)}" for budget, _ in _budgets(report)),
            "above 900 ms",
        ),
        [
            (
                row.target,
                *(with_interval(row.voice_to_voice_s.at(name)) for name in ("p50", "p90", "p95")),
                *(with_share(part) for _, part in row.within),
                with_share(row.lost),
            )
            for row in report.voices
            if row.voice_to_voice_s.n
        ],
    )


def _ways(report: BenchReport) -> ShownTable:
    return (
        "The way to the endpoint, without its model: p50 · p90 in ms",
        ("target", "DNS", "TCP", "TLS", "round trip", "of the first token", "faults"),
        [
            (
                row.target,
                *(pair(each) for each in (row.dns_s, row.tcp_s, row.tls_s, row.round_trip_s)),
                percent(row.of_first_token),
                number(row.faults),
            )
            for row in report.found.network
        ],
    )


def _caches(report: BenchReport) -> ShownTable:
    return (
        "Prefix cache: first token after a system prompt, in ms",
        ("target", "system", "state", "first token p50", "p90", "n", "prompt, cached tokens", "the server's count"),
        [
            (
                row.target,
                number(row.system_tokens),
                row.state,
                with_interval(row.first_token_s.at("p50")),
                with_interval(row.first_token_s.at("p90")),
                number(row.first_token_s.n),
                f"{number(row.prompt_tokens)}, {number(row.cached_tokens)}",
                causes({"proved": row.as_stated, "contrary": row.contrary, "unproved": row.unproved})
                + (" by /metrics" if "metrics" in row.counted_by else ""),
            )
            for row in report.found.cache
        ],
    )


def _forms(report: BenchReport) -> ShownTable:
    return (
        "Structured output: times in ms",
        ("target", "asked as", "first byte p50", "wall p50", "wall p90", "valid", "faults"),
        [
            (
                row.target,
                row.asked_as,
                with_interval(row.first_byte_s.at("p50")),
                with_interval(row.wall_s.at("p50")),
                with_interval(row.wall_s.at("p90")),
                with_share(row.valid),
                causes(row.faults),
            )
            for row in report.found.structured
        ],
    )


def _loops(report: BenchReport) -> ShownTable:
    return (
        "Loops of an agent: times in ms",
        ("target", "calls", "loops", "total p50", "a call p50", "a call p90", "failed"),
        [
            (
                row.target,
                f"{row.calls} {row.order}",
                number(row.total_s.n),
                with_interval(row.total_s.at("p50")),
                with_interval(row.call_s.at("p50")),
                with_interval(row.call_s.at("p90")),
                number(row.failed),
            )
            for row in report.found.agent
        ],
    )


def _loads(report: BenchReport) -> ShownTable:
    return (
        f"Under load, in ms: good answers have their first token within {declared(report.plan.within_s)}",
        ("target", "load", "sent", "answers", "goodput", "good", "first token p50", "p90", "left out", "faults"),
        [
            (
                row.target,
                load_text(row),
                rate(row.sent_per_s),
                with_rate(row.rate),
                with_rate(row.goodput),
                with_share(row.good),
                with_interval(row.first_token_s.at("p50")),
                with_interval(row.first_token_s.at("p90")),
                DASH
                if row.rate is None
                else seconds(row.rate.left_out_s) + ("" if row.rate.is_steady else ", not steady"),
                causes({**row.faults, "not sent": row.dropped, "unfinished": row.unfinished}),
            )
            for row in report.found.load
        ],
    )


def _right(report: BenchReport) -> ShownTable:
    return (
        "Right answers",
        ("target", "right", "by kind", "faults", "cost of an answer"),
        [
            (
                row.target,
                with_share(row.accuracy),
                ", ".join(f"{kind} {each.good}/{each.total}" for kind, each in row.by_kind.items()) or DASH,
                number(row.faults),
                next((f"{cost.cost:.3g} {cost.currency}" for cost in report.costs if cost.target == row.target
                      and cost.experiment == "quality" and cost.cost is not None), DASH),
            )
            for row in report.found.quality
        ],
    )  # fmt: skip


def rich_tables(report: BenchReport) -> Iterator[Table]:
    """The tables for a terminal: a target is a letter there, and left out where there is only one."""
    letters = letters_of(report.found.targets)
    for title, headings, rows in tables(report):
        if not rows:
            continue
        shown = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for heading in headings if letters else headings[1:]:
            justify = "left" if heading == headings[0] else "right"
            shown.add_column(heading, justify=justify, overflow="fold", header_style=SOFT)
        for target, *cells in rows:
            shown.add_row(*([letters[target]] if letters else []), *cells)
        yield shown


def letters_of(targets: Sequence[str]) -> dict[str, str]:
    """The short name of each target; nothing for a single one."""
    names = [chr(ord("A") + place) if place < 26 else str(place + 1) for place in range(len(targets))]
    return dict(zip(targets, names, strict=True)) if len(targets) > 1 else {}


def _budgets(report: BenchReport) -> Sequence[tuple[float, CountedShare]]:
    return report.voices[0].within if report.voices else ()


def load_text(row: LoadRow) -> str:
    """A load level in words."""
    return count(int(row.level), "caller") if row.kind == "closed" else f"{row.level:g}/s open"


def causes(by_cause: Mapping[str, int]) -> str:
    """How many by cause; a dash where there are none."""
    return formatting.causes({cause: times for cause, times in by_cause.items() if times}) or DASH


def pair(of: Figure, *names: str) -> str:
    """Two percentiles: p50 and p90, or those that are named, in ms without the unit."""
    return " · ".join(_bare(of, name) for name in names or ("p50", "p90"))


def _bare(of: Figure, name: str) -> str:
    value = of.value(name)
    return (TOO_FEW if of.n else DASH) if value is None else seconds(value).removesuffix(" ms")


def plain(of: Figure) -> str:
    """The median of what has no unit."""
    value = of.value("p50")
    return DASH if value is None else f"{value:,.1f}"


def with_interval(of: Percentile | None) -> str:
    """A duration and its interval in ms without the unit, a dash for a side that n does not bound."""
    if of is None:
        return TOO_FEW
    value, low, high = (seconds(each).removesuffix(" ms") for each in (of.value, of.lower, of.upper))
    return f"{value} [{low}, {high}]"


def with_share(of: CountedShare) -> str:
    """A share, its interval and its number."""
    if of.ratio is None or of.interval is None:
        return DASH
    low, high = (percent(side).removesuffix(" %") for side in of.interval)
    return f"{percent(of.ratio)} [{low}, {high}] of {of.total}"


def with_rate(of: Rate | None) -> str:
    """A rate and its interval."""
    return TOO_FEW if of is None else f"{of.value:.2f}/s [{of.lower:.2f}, {of.upper:.2f}]"


def as_object(report: BenchReport) -> dict[str, Any]:
    """The JSON object: durations in seconds, null where it is not known or n is too few."""
    found, plan = report.found, report.plan
    rows = ("lengths", "cache", "structured", "agent", "load", "saturation", "network", "quality")
    return {
        "schema_version": SCHEMA_VERSION,
        "exit_code": int(report.exit_code),
        "headlines": report.headlines,
        "sentences": list(sentences(report)),
        "targets": list(found.targets),
        "runs": dict(report.runs),
        "plan": {
            "experiments": list(plan.experiments),
            "samples": plan.samples,
            "lengths": list(plan.lengths),
            "seed": plan.seed,
            "prompts": [prompt.name for prompt in plan.prompts],
            "within_s": plan.within_s,
            "level_s": plan.level_s,
        },
        "answers": found.answers,
        "elapsed_s": report.elapsed_s,
        "store": report.store,
        "interrupted": found.is_interrupted,
        "faults": {
            target: {kind: {"n": times, "sentence": sentence} for kind, (times, sentence) in kinds.items()}
            for target, kinds in found.faults.items()
        },
        "given_up": dict(found.given_up),
        "counted_by": {target: list(sources) for target, sources in found.counted_by.items()},
        "stalls": [
            {"target": each.target, "source": each.source, "first_sentence_s": each.first_sentence_s.as_object()}
            for each in found.stalls
        ],
        "voice": {"others": report.others.sentence, "rows": [_voice(row) for row in report.voices]},
        "cost": [_plain(row) for row in report.costs],
        "objectives": {
            target: [{"name": each.name, "met": each.met, "sentence": each.sentence} for each in verdicts]
            for target, verdicts in report.verdicts.items()
        },
        **{name: [_plain(row) for row in getattr(found, name)] for name in rows},
    }


def _voice(row: VoiceRow) -> dict[str, Any]:
    return {
        "target": row.target,
        "voice_to_voice_s": row.voice_to_voice_s.as_object(),
        "within": [{"budget_s": budget} | _plain(part) for budget, part in row.within],
        "above_900_ms": _plain(row.lost),
    }


def _plain(value: Any) -> Any:
    """A value of rows as JSON."""
    if isinstance(value, Figure):
        return value.as_object()
    if dataclasses.is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value
