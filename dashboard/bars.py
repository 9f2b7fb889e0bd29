"""Stacked bars as HTML: where a turn's time goes, and how the turns ended."""

from collections.abc import Mapping, Sequence
from typing import Final

from dashboard.markup import css_percent, escape
from telemetry.model import formatting
from telemetry.model.semconv import OUTCOME_LABELS, OUTCOMES
from telemetry.objectives.objective import Objective
from telemetry.store.answers import StageStats, TurnCounts

STAGE_LABELS: Final[dict[str, str]] = {
    "endpointing": "endpointing",
    "asr": "ASR",
    "llm": "LLM",
    "tts": "TTS",
    "leading_silence": "leading silence",
    "unexplained": "network, playout, unexplained",
}


# Objectives on these metrics hold from the end of the caller's speech on: how far the stages up to there may reach.
_REACHED: Final = {"asr_final_latency": "ASR", "llm_first_token_latency": "LLM", "voice_to_voice": "voice to voice"}


def budget(found: Mapping[str, StageStats], objectives: Sequence[Objective] = ()) -> str:
    """Where voice-to-voice goes at the median turn and at each stage's p95, on one scale, with a tick where each
    objective asks that a stage is over."""
    head = '<div class="vp-head"><h2>Where a turn\'s time goes <span class="hint">each stage at p50 and at p95, ms; \
percentiles of stages do not add up to that of the whole</span></h2></div>'
    known = [stage for stage in found.values() if stage.p50_ns is not None]
    if not known:
        return f'<div class="vp">{head}<span class="hint">no turn shows its stages</span></div>'
    ticks = {
        _REACHED[objective.metric]: objective.threshold
        for objective in objectives
        if objective.metric in _REACHED and objective.threshold and not objective.is_of_a_part
    }
    reach = max(_length(known, "p50_ns"), _length(known, "p95_ns"), *ticks.values())
    legend = "".join(
        f'<span><span class="vp-key vp-s-{stage.name}"></span>{STAGE_LABELS[stage.name]} '
        f"<b>{_value(stage, stage.p50_ns)}</b> / {_p95(stage)}</span>"
        for stage in known
    )
    legend += "".join(
        f'<span><span class="vp-budget-key" aria-hidden="true"></span>{name} over by '
        f"<b>{formatting.declared_milliseconds(at)}</b></span>"
        for name, at in ticks.items()
    )
    marks = "".join(
        f'<u class="vp-budget" style="left:{css_percent(at / reach)}" title="{name}: {_by(at)}"></u>'
        for name, at in ticks.items()
    )
    rows = f"{_stack(known, 'p50_ns', reach, marks)}{_stack(known, 'p95_ns', reach, marks)}"
    return f'<div class="vp">{head}{rows}<div class="vp-legend">{legend}</div></div>'


def _by(at_ns: float) -> str:
    return f"its objective is {formatting.declared_milliseconds(at_ns)} after the caller's speech"


def _p95(stage: StageStats) -> str:
    return _value(stage, stage.p95_ns) if stage.p95_ns is not None else f"too few ({stage.n})"


def _value(stage: StageStats, ns: float | None, *, unit: bool = False) -> str:
    return formatting.estimate_if(stage.approximate, formatting.milliseconds(ns, unit=unit))


def _length(known: Sequence[StageStats], name: str) -> float:
    return sum(max(0.0, getattr(stage, name) or 0.0) for stage in known)


def _stack(known: Sequence[StageStats], name: str, reach: float, marks: str) -> str:
    label = name.removesuffix("_ns")
    if all(getattr(stage, name) is None for stage in known):
        return (
            f'<div class="vp-stackrow"><span class="hint">{label}</span><span class="hint">too few turns</span></div>'
        )
    pieces = "".join(
        f'<i class="vp-s-{stage.name}" style="width:{css_percent(value / reach)}" '
        f'title="{STAGE_LABELS[stage.name]}: {_value(stage, value, unit=True)}"></i>'
        for stage in known
        if (value := getattr(stage, name)) is not None and value > 0
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
