"""Stacked bars as HTML: where a turn's time goes, and how the turns ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dashboard.components.markup import css_percent, escape
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS, OUTCOMES
from telemetry.objectives.objective import Objective
from telemetry.store.answers import STAGE_LABELS, StageStats, TurnCounts

# Objectives on these metrics hold from the end of the caller's speech on: how far the stages up to there may reach.
_REACHED: Final = {"asr_final_latency": "ASR", "llm_first_token_latency": "LLM", "voice_to_voice": "voice to voice"}
# Those on these are about one stage: how far it may reach from where it begins.
_ALONE: Final = {
    "endpointing": "endpointing",
    "llm_ttft": "llm",
    "tts_first_chunk_latency": "tts",
    "leading_silence": "leading_silence",
}


@dataclass(frozen=True, slots=True)
class _Budgets:
    """What objectives ask: by when the stages up to one are over, the earliest first, and how long one may take."""

    over_by: Mapping[str, float]
    alone: Mapping[str, float]


def _budgets(objectives: Sequence[Objective]) -> _Budgets:
    asked = {each.metric: each.threshold for each in objectives if each.threshold and not each.is_of_a_part}
    by = {name: at for metric, name in _REACHED.items() if (at := asked.get(metric)) is not None}
    alone = {stage: at for metric, stage in _ALONE.items() if (at := asked.get(metric)) is not None}
    return _Budgets(dict(sorted(by.items(), key=lambda each: each[1])), alone)


def budget(found: Mapping[str, StageStats], objectives: Sequence[Objective] = ()) -> str:
    """Where voice-to-voice goes at the median turn and at each stage's p95, on one scale, with a tick where each
    objective asks that a stage is over."""
    head = '<div class="vp-head"><h2>Where a turn\'s time goes <span class="hint">each stage at p50 and at p95, ms, as \
the service reports it, else as the caller saw it, over the answered turns; percentiles of stages do not add up to \
that of the whole</span></h2></div>'
    known = [stage for stage in found.values() if stage.p50_ns is not None]
    if not known:
        return f'<div class="vp">{head}<span class="hint">no turn shows its stages</span></div>'
    asked = _budgets(objectives)
    ticks = {name: _ticks(known, name, asked) for name in ("p50_ns", "p95_ns")}
    ends = [tick.at for each in ticks.values() for tick in each]
    reach = max(_length(known, "p50_ns"), _length(known, "p95_ns"), *ends)
    legend = "".join(
        f'<span><span class="vp-key vp-s-{stage.name}"></span>{stage.label} '
        f"<b>{_value(stage, stage.p50_ns)}</b> / {_p95(stage)}</span>"
        for stage in known
    )
    legend += "".join(_key(f"{name} over by", at) for name, at in asked.over_by.items())
    legend += "".join(
        _key(f"{STAGE_LABELS[stage.name]} within", asked.alone[stage.name], " alone")
        for stage in known
        if stage.name in asked.alone
    )
    rows = "".join(_stack(known, name, reach, marks) for name, marks in ticks.items())
    return f'<div class="vp">{head}{rows}<div class="vp-legend">{legend}</div></div>'


def _key(text: str, ns: float, css: str = "") -> str:
    return (
        f'<span><span class="vp-budget-key{css}" aria-hidden="true"></span>{text} '
        f"<b>{formatting.declared_milliseconds(ns)}</b></span>"
    )


@dataclass(frozen=True, slots=True)
class _Tick:
    """A budget on the bar: from its beginning, in ns."""

    at: float
    title: str
    css: str = ""


def _ticks(known: Sequence[StageStats], name: str, asked: _Budgets) -> list[_Tick]:
    """The ticks of a row: of the stages up to one at a fixed time, of one alone from where it begins in this row."""
    found = [
        _Tick(at, f"{what}: its objective is {formatting.declared_milliseconds(at)} after the caller's speech")
        for what, at in asked.over_by.items()
    ]
    begins = 0.0
    for stage in known:
        value, own = getattr(stage, name), asked.alone.get(stage.name)
        if value is not None and own is not None:
            title = f"{STAGE_LABELS[stage.name]}: its objective is {formatting.declared_milliseconds(own)} for it alone"
            found.append(_Tick(begins + own, title, " alone"))
        begins += max(0.0, value or 0.0)
    return found


def _p95(stage: StageStats) -> str:
    return _value(stage, stage.p95_ns) if stage.p95_ns is not None else f"too few ({stage.n})"


def _value(stage: StageStats, ns: float | None, *, unit: bool = False) -> str:
    return formatting.estimate_if(stage.approximate, formatting.milliseconds(ns, unit=unit))


def _length(known: Sequence[StageStats], name: str) -> float:
    return sum(max(0.0, getattr(stage, name) or 0.0) for stage in known)


def _stack(known: Sequence[StageStats], name: str, reach: float, ticks: Sequence[_Tick]) -> str:
    label = name.removesuffix("_ns")
    if all(getattr(stage, name) is None for stage in known):
        return (
            f'<div class="vp-stackrow"><span class="hint">{label}</span><span class="hint">too few turns</span></div>'
        )
    pieces = "".join(
        f'<i class="vp-s-{stage.name}" style="width:{css_percent(value / reach)}" '
        f'title="{stage.label}: {_value(stage, value, unit=True)}"></i>'
        for stage in known
        if (value := getattr(stage, name)) is not None and value > 0
    )
    marks = "".join(
        f'<u class="vp-budget{tick.css}" style="left:{css_percent(tick.at / reach)}" title="{tick.title}"></u>'
        for tick in ticks
    )
    return (
        f'<div class="vp-stackrow"><span class="hint">{label}</span><div class="vp-stacked">'
        f'<div class="vp-stack">{pieces}</div>{marks}</div></div>'
    )


def _cut_by(turns: TurnCounts) -> str:
    """What of the generator's ended turns before their end."""
    if not turns.cut_by:
        return ""
    causes = ", ".join(f"{escape(name)} {formatting.number(count)}" for name, count in turns.cut_by.items())
    return f'<p class="hint">cut by {causes}: counted against the service only where it was late by then</p>'


def outcomes(turns: TurnCounts) -> str:
    """How every turn ended, invalid ones included."""
    shown = [name for name in OUTCOMES if turns.by_outcome.get(name)]
    pieces = "".join(
        f'<i class="vp-o-{name}" style="width:{css_percent(turns.by_outcome[name] / turns.total)}" '
        f'title="{OUTCOME_LABELS[name]}: {formatting.number(turns.by_outcome[name])}"></i>'
        for name in shown
    )
    legend = "".join(
        f'<span><span class="vp-key vp-o-{name}"></span>{escape(OUTCOME_LABELS[name])} '
        f"<b>{formatting.number(turns.by_outcome[name])}</b> "
        f"{formatting.share(turns.by_outcome[name], turns.total)}</span>"
        for name in shown
    )
    return (
        '<div class="vp"><div class="vp-head"><h2>Outcomes <span class="hint">of every turn</span></h2></div>'
        f'<div class="vp-stack" style="margin-bottom:4px">{pieces}</div><div class="vp-legend">{legend}</div>'
        f"{_cut_by(turns)}</div>"
    )
