"""The findings of a bench: sentences, tables of the terminal, and the JSON object. Pure."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rich.table import Table

from loadtest.exit_codes import ExitCode
from loadtest.llm.figures import MIN_COUNT_FOR, RULE, Figure, Percentile, Rate
from loadtest.llm.plan import Plan
from loadtest.llm.prices import CostRow
from loadtest.llm.rows import BenchRows, CountedShare, LoadRow
from loadtest.llm.voice import (
    BUDGETS_S,
    LOST_S,
    OtherStages,
    VoiceRow,
    declared,
    lost_sentence,
    seconds,
    stall_sentence,
    verdict,
)
from loadtest.reports.json_of import value_json
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
    rows: BenchRows
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
        """Exit code of the command: a missed objective takes precedence over a target that did not answer."""
        judged = [objective.met for verdicts in self.verdicts.values() for objective in verdicts]
        if self.rows.interrupted:
            return ExitCode.INTERRUPTED
        if False in judged:
            return ExitCode.OBJECTIVE_MISSED
        if self.rows.given_up or not self._has_measured:
            return ExitCode.UNREACHABLE
        return ExitCode.UNDECIDED if None in judged else ExitCode.OK

    @property
    def _has_measured(self) -> bool:
        paths = any(row.round_trip_s.n or row.tcp_s.n for row in self.rows.network)
        return bool(self.rows.answers) or paths

    @property
    def headlines(self) -> list[str]:
        """The stall of each target, and then the verdict."""
        asked = any(experiment != "network" for experiment in self.plan.experiments)
        stalls = [stall_sentence(stall) for stall in self.rows.stalls] if asked else []
        return [*stalls, verdict(self.rows, self.voices)] if asked else ["only the way to the endpoints was measured"]


def sentences(report: BenchReport) -> Iterator[str]:
    """The sentences below the tables."""
    rows = report.rows
    if any(row.voice_to_voice_s.n for row in report.voices):
        yield from map(lost_sentence, report.voices)
        yield f"predicted voice-to-voice: the first sentence and {report.others.sentence}, taken as independent"
    yield from _measuring_sentences(rows)
    yield from (
        f"{note} of a request: it is left out, and lengths are also asked for by the prompt" for note in report.notes
    )
    yield from _load_sentences(rows)
    yield from map(_cost, report.costs)
    for target, kinds in rows.faults.items():
        for kind, fault in kinds.items():
            yield f"{target}: {fault.n} × {_words(kind)}, in no figure: {fault.sentence}"
    for target, oddities in rows.oddities.items():
        yield from (f"{target}: {number(times)} {what}" for what, times in oddities.items() if times)
    for target, sentence in rows.given_up.items():
        yield f"{target}: asked no more: {sentence}"
    for target, verdicts in report.verdicts.items():
        yield from (f"{target}: {objective.sentence}" for objective in verdicts)
    yield f"{count(rows.answers, 'answer')} in {clock(report.elapsed_s)}"
    if report.store is not None:
        yield f"in the store {report.store}: {', '.join(report.runs.values())}"
    if rows.interrupted:
        yield "interrupted: these are the figures so far"


def _measuring_sentences(rows: BenchRows) -> Iterator[str]:
    yield from (f"{target}: answered by {', '.join(models)}" for target, models in rows.served_by.items() if models)
    for target, sources in rows.counted_by.items():
        if sources:
            yield f"{target}: tokens are counted by the {' and by a '.join(sources)}"
    for target, error in rows.stamp_error_s.items():
        if error.n:
            at = f"{seconds(error.value('p50'))} in the median answer, {pair(error, 'p90')} ms at p90"
            yield f"{target}: when its pieces came is known to {at}"


def _load_sentences(rows: BenchRows) -> Iterator[str]:
    for row in rows.saturation:
        saturation = row.saturation
        if saturation is None:
            yield f"{row.target}: saturation is not known: it needs three levels with ten answers or more"
        elif not saturation.is_reached:
            yield f"{row.target}: not saturated up to {count(saturation.level, 'caller')} ({RULE})"
        else:
            between = f"95 % interval: {saturation.lower} to {saturation.upper}"
            yield f"{row.target}: saturated from {count(saturation.level, 'caller')} on ({RULE}; {between})"


def _cost(row: CostRow) -> str:
    saved = "what caching saves is not known: the server does not count it"
    if row.saved is not None:
        saved = f"caching saves {row.saved:.3g} {row.currency} of each"
    cost = "not known" if row.cost is None else f"{row.cost:.3g} {row.currency}"
    return f"{row.target}: an answer of {row.experiment} costs {cost} ({count(row.answers, 'answer')}); {saved}"


ShownTable = tuple[str, Sequence[str], list[Sequence[str]]]
_Columns = Mapping[str, Callable[[Any], str]]


def tables(report: BenchReport) -> Iterator[ShownTable]:
    """Each table as a title, headings and rows of texts; a single target is not named in them."""
    measured = report.rows
    several = len(measured.targets) > 1
    for title, rows, columns in (
        ("By output length (± 10 %): p50 · p90 in ms", measured.lengths, _LENGTHS),
        ("Rates and gaps by output length: gaps in ms", [row for row in measured.lengths if row.n], _RATES),
        ("First token in ms, with its 95 % interval", measured.lengths, _FIRST_TOKENS),
        (
            "The voice turn: predicted voice-to-voice in ms, shares of turns",
            [row for row in report.voices if row.voice_to_voice_s.n],
            _voice_columns(),
        ),
        ("The way to the endpoint, without its model: p50 · p90 in ms", measured.network, _NETWORK),
        ("Prefix cache: first token after a system prompt, in ms", measured.cache, _CACHE),
        ("Structured output: times in ms", measured.structured, _STRUCTURED),
        ("Loops of an agent: times in ms", measured.agent, _AGENT),
        (
            f"Under load, in ms: good answers have their first token within {declared(report.plan.within_s)}",
            measured.load,
            _LOAD,
        ),
        ("Right answers", measured.quality, {**_QUALITY, "cost of an answer": partial(_cost_of_right, report)}),
    ):
        shown: _Columns = {**({"target": lambda row: row.target} if several else {}), **columns}
        yield title, tuple(shown), [tuple(cell(row) for cell in shown.values()) for row in rows]


def _interval(name: str, statistic: str) -> Callable[[Any], str]:
    return lambda row: with_interval(getattr(row, name).at(statistic))


def load_text(row: LoadRow) -> str:
    """A load level in words."""
    return count(int(row.level), "caller") if row.kind == "closed" else f"{row.level:g}/s open"


_LENGTHS: Final[_Columns] = {
    "tokens": lambda row: number(row.tokens),
    "n": lambda row: number(row.n),
    "others": lambda row: causes(row.others),
    "first token": lambda row: pair(row.figures["first_token_s"]),
    "first answer": lambda row: pair(row.figures["first_answer_token_s"]),
    "first sentence": lambda row: pair(row.figures["first_sentence_s"]),
}
_RATES: Final[_Columns] = {
    "tokens": lambda row: number(row.tokens),
    "tokens/s": lambda row: plain(row.figures["tokens_per_s"]),
    "wall/s": lambda row: plain(row.figures["tokens_per_s_wall"]),
    "per chunk": lambda row: plain(row.figures["tokens_per_chunk"]),
    **{f"gap {name}": lambda row, name=name: pair(row.figures["gap_s"], name) for name in ("p50", "p90", "p99")},
    **{f"a token {name}": lambda row, name=name: pair(row.figures["token_gap_s"], name) for name in ("p50", "p99")},
}
_FIRST_TOKENS: Final[_Columns] = {
    "tokens": lambda row: number(row.tokens),
    "first byte p50": lambda row: with_interval(row.figures["first_byte_s"].at("p50")),
    **{name: lambda row, name=name: with_interval(row.figures["first_token_s"].at(name)) for name in MIN_COUNT_FOR},
}
_NETWORK: Final[_Columns] = {
    **{name: lambda row, name=name: pair(getattr(row, f"{name.lower()}_s")) for name in ("DNS", "TCP", "TLS")},
    "round trip": lambda row: pair(row.round_trip_s),
    "of the first token": lambda row: percent(row.of_first_token),
    "faults": lambda row: number(row.faults),
}
_CACHE: Final[_Columns] = {
    "system": lambda row: number(row.system_tokens),
    "state": lambda row: row.state,
    "first token p50": _interval("first_token_s", "p50"),
    "p90": _interval("first_token_s", "p90"),
    "n": lambda row: number(row.first_token_s.n),
    "prompt, cached tokens": lambda row: f"{number(row.prompt_tokens)}, {number(row.cached_tokens)}",
    "the server's count": lambda row: (
        causes({"proved": row.as_stated, "contrary": row.contrary, "unproved": row.unproved})
        + (" by /metrics" if "metrics" in row.counted_by else "")
    ),
}
_STRUCTURED: Final[_Columns] = {
    "asked as": lambda row: row.asked_as,
    "first byte p50": _interval("first_byte_s", "p50"),
    "wall p50": _interval("wall_s", "p50"),
    "wall p90": _interval("wall_s", "p90"),
    "valid": lambda row: with_share(row.valid),
    "faults": lambda row: causes(row.faults),
}
_AGENT: Final[_Columns] = {
    "calls": lambda row: f"{row.calls} {row.order}",
    "loops": lambda row: number(row.total_s.n),
    "total p50": _interval("total_s", "p50"),
    "a call p50": _interval("call_s", "p50"),
    "a call p90": _interval("call_s", "p90"),
    "failed": lambda row: number(row.failed),
}
_LOAD: Final[_Columns] = {
    "load": load_text,
    "sent": lambda row: rate(row.sent_per_s),
    "answers": lambda row: with_rate(row.rate),
    "goodput": lambda row: with_rate(row.goodput),
    "good": lambda row: with_share(row.good),
    "first token p50": _interval("first_token_s", "p50"),
    "p90": _interval("first_token_s", "p90"),
    "left out": lambda row: (
        DASH if row.rate is None else seconds(row.rate.left_out_s) + ("" if row.rate.is_steady else ", not steady")
    ),
    "faults": lambda row: causes({**row.faults, "not sent": row.dropped, "unfinished": row.unfinished}),
}
_QUALITY: Final[_Columns] = {
    "right": lambda row: with_share(row.accuracy),
    "by kind": lambda row: (
        ", ".join(f"{kind} {tally.good}/{tally.total}" for kind, tally in row.by_kind.items()) or DASH
    ),
    "faults": lambda row: number(row.faults),
}


def _voice_columns() -> _Columns:
    return {
        **{name: _interval("voice_to_voice_s", name) for name in ("p50", "p90", "p95")},
        "n": lambda row: number(row.above_900_ms.total),
        **{
            f"≤ {declared(budget)}": lambda row, at=at: bare_share(row.within[at].share)
            for at, budget in enumerate(BUDGETS_S)
        },
        f"> {declared(LOST_S)}": lambda row: bare_share(row.above_900_ms),
    }


def _cost_of_right(report: BenchReport, row: Any) -> str:
    of = [cost for cost in report.costs if (cost.target, cost.experiment) == (row.target, "quality")]
    return next((f"{cost.cost:.3g} {cost.currency}" for cost in of if cost.cost is not None), DASH)


def rich_tables(report: BenchReport) -> Iterator[Table]:
    """The tables for a terminal: a target is a letter there, and left out where there is only one."""
    letters = letters_of(report.rows.targets)
    for title, headings, rows in tables(report):
        if not rows:
            continue
        shown = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for heading in headings:
            justify = "left" if heading == "target" else "right"
            shown.add_column(heading, justify=justify, overflow="fold", header_style=SOFT)
        for first, *cells in rows:
            shown.add_row(letters.get(first, first), *cells)
        yield shown


def letters_of(targets: Sequence[str]) -> dict[str, str]:
    """The short name of each target; nothing for a single one."""
    names = [chr(ord("A") + place) if place < 26 else str(place + 1) for place in range(len(targets))]
    return dict(zip(targets, names, strict=True)) if len(targets) > 1 else {}


def causes(by_cause: Mapping[str, int]) -> str:
    """Return how many by cause; a dash where there are none."""
    return formatting.causes({_words(cause): times for cause, times in by_cause.items() if times}) or DASH


def _words(kind: str) -> str:
    return kind.replace("_", " ")


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
    value, low, high = (seconds(value_s).removesuffix(" ms") for value_s in (of.value, of.lower, of.upper))
    return f"{value} [{low}, {high}]"


def with_share(of: CountedShare) -> str:
    """A share, its interval and its number."""
    return DASH if of.ratio is None else f"{bare_share(of)} of {of.total}"


def bare_share(of: CountedShare) -> str:
    """A share and its interval."""
    if of.ratio is None or of.interval is None:
        return DASH
    low, high = (percent(side).removesuffix(" %") for side in of.interval)
    return f"{percent(of.ratio)} [{low}, {high}]"


def with_rate(of: Rate | None) -> str:
    """A rate and its interval."""
    return TOO_FEW if of is None else f"{of.value:.2f}/s [{of.lower:.2f}, {of.upper:.2f}]"


def as_object(report: BenchReport) -> dict[str, Any]:
    """The JSON object: durations in seconds, null where it is not known or n is too few."""
    plan, rows = value_json(report.plan), value_json(report.rows)
    return {
        "schema_version": SCHEMA_VERSION,
        "exit_code": int(report.exit_code),
        "headlines": report.headlines,
        "sentences": list(sentences(report)),
        "runs": dict(report.runs),
        "plan": plan | {"prompts": [prompt.name for prompt in report.plan.prompts]},
        "elapsed_s": report.elapsed_s,
        "store": report.store,
        "voice": {"others": report.others.sentence, "rows": value_json(report.voices)},
        "cost": value_json(report.costs),
        "objectives": {
            target: [
                {"name": objective.name, "met": objective.met, "sentence": objective.sentence} for objective in verdicts
            ]
            for target, verdicts in report.verdicts.items()
        },
        **rows,
    }
