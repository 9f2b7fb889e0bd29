"""The result of a paired comparison, for people and for machines."""

from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from loadtest.pairing.differences import QUANTILES, PairedDifference
from loadtest.pairing.job import AUDIBLE_GAP_NS, STAGES, PairedRun
from telemetry.model import formatting
from telemetry.model.formatting import count
from telemetry.model.metrics import METRICS

_MS: Final = 1e6


def paired_view(run: PairedRun) -> Group:
    """The sentence on each variant and the table of differences."""
    parts: list[Any] = []
    for place in range(1, len(run.variants)):
        parts.append(Text(verdict_sentence(run, place), style="bold"))
        parts.append(_differences(run, place))
    parts.append(_quality_table(run))
    if run.interrupted:
        parts.append(Text("It was interrupted: what was said until then is shown.", style="yellow"))
    return Group(*parts)


def verdict_sentence(run: PairedRun, place: int) -> str:
    """Return what is decided about one variant, and by how much."""
    name, control = run.variants[place].name, run.variants[0].name
    request, headline = run.request, run.headline(place)
    decision, turned = run.judged(headline, place)
    stage = f"{METRICS[request.metric].phrase} p{100 * request.quantile:g}"
    if headline is None or headline.value is None:
        why = "no turn of both has it" if headline is None else f"too few: {headline.too_few}"
        return f"{name} against {control}: {stage} is undecided ({why})."
    value, lower, upper = map(formatting.signed_milliseconds, (headline.value, headline.lower, headline.upper))
    interval = f"{value} ({lower} to {upper})"
    figures = f"{interval} over {count(headline.pairs, 'pair')}"
    if turned is not None:
        return f"{name} against {control}: {stage} is undecided at {figures}: {turned}."
    if decision == "undecided":
        return f"{name} against {control}: {stage} is undecided at {figures}; say more with --pairs."
    if decision == "no difference worth having":
        least = formatting.declared_milliseconds(request.smallest_ms * _MS)
        return f"{name} against {control}: {stage} differs by less than {least}: {figures}."
    return f"{name} is {decision} than {control}: {stage} {figures}."


def _differences(run: PairedRun, place: int) -> Table:
    table = Table(title=f"{run.variants[place].name} minus {run.variants[0].name}, ms", title_justify="left")
    table.add_column("stage")
    for quantile in QUANTILES:
        table.add_column(f"Δp{100 * quantile:g} (95 %)", justify="right")
    table.add_column("pairs", justify="right")
    for metric in STAGES:
        differences = [run.difference(place, metric, quantile) for quantile in QUANTILES]
        if differences[0] is not None:
            shown = (interval_text(None, None, None) if one is None else _interval(one) for one in differences)
            table.add_row(METRICS[metric].label, *shown, f"{differences[0].pairs:,}")
    return table


def _interval(difference: PairedDifference) -> str:
    return interval_text(difference.value, difference.lower, difference.upper)


def interval_text(value_ns: float | None, lower_ns: float | None, upper_ns: float | None) -> str:
    """A difference and its interval for a table, in ms without the unit."""
    if value_ns is None:
        return "too few"
    value, lower, upper = (formatting.signed_milliseconds(ns, unit=False) for ns in (value_ns, lower_ns, upper_ns))
    return f"{value} ({lower} to {upper})"


def _quality_table(run: PairedRun) -> Table:
    table = Table(title="In addition to time", title_justify="left")
    headings = ("word error rate", "unanswered", "cache hits", "fallback", "whole answers", "words", "audible gaps")
    for heading in ("variant", *headings, "tokens in", "out"):
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for place, variant in enumerate(run.variants):
        shares = (run.unanswered(place), run.share(place, _is_hit), run.share(place, _is_fallback))
        work = run.work(place)
        table.add_row(
            variant.name,
            formatting.percent(run.word_error_rate(place)),
            *(_of(part, whole) for part, whole in shares),
            _of(*run.share(place, is_whole)),
            mean_text(answer_words(run, place)),
            _of(*run.share(place, has_gap)),
            mean_text(work.get("input_tokens")),
            mean_text(work.get("output_tokens")),
        )
    return table


def mean_text(mean: float | None) -> str:
    """A mean of counts for a table."""
    return "–" if mean is None else f"{mean:,.1f}"


def answer_words(run: PairedRun, place: int) -> float | None:
    """Return how many words an answer of a variant has, in the mean."""
    return run.mean(place, lambda turn: turn["answer_words"])


def is_whole(turn: dict[str, Any]) -> bool | None:
    """Return whether the answer ends with a sentence, and was not cut in the middle of one."""
    return turn["answer_whole"]


def has_gap(turn: dict[str, Any]) -> bool | None:
    """Return whether a listener hears a gap in the answer."""
    worst = turn["values"].get("underrun_worst")
    return None if worst is None else worst[0] > AUDIBLE_GAP_NS


def _is_hit(turn: dict[str, Any]) -> bool | None:
    return turn["cache_hit"]


def _is_fallback(turn: dict[str, Any]) -> bool | None:
    if turn["fallback"] is None and turn["route"] is None:
        return None  # this endpoint does not say how it answered
    return turn["fallback"] not in (None, "none")


def ratio(part: int, whole: int) -> float | None:
    """A share; None of nothing."""
    return part / whole if whole else None


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}" if whole else "–"


def paired_object(run: PairedRun) -> dict[str, Any]:
    """The comparison as one JSON object; times in nanoseconds."""
    return {
        "run_id": run.run_id,
        "metric": run.request.metric,
        "quantile": run.request.quantile,
        "smallest_ns": run.request.smallest_ms * _MS,
        "pairs": len(run.pairs),
        "interrupted": run.interrupted,
        "variants": [variant_object(run, place) for place in range(len(run.variants))],
    }


def variant_object(run: PairedRun, place: int) -> dict[str, Any]:
    """One variant: what it differs by from the first, which has no differences."""
    part, whole = run.unanswered(place)
    own: dict[str, Any] = {
        "name": run.variants[place].name,
        "word_error_rate": run.word_error_rate(place),
        "unanswered": part,
        "turns": whole,
        "whole_answers": ratio(*run.share(place, is_whole)),
        "answer_words": answer_words(run, place),
        "audible_gaps": ratio(*run.share(place, has_gap)),
        "cache_hits": ratio(*run.share(place, _is_hit)),
        "cache_hits_by_tier": run.hits_by_tier(place),
        "fallbacks": ratio(*run.share(place, _is_fallback)),
        "routes": {
            route: ratio(
                *run.share(place, lambda turn, route=route: None if turn["route"] is None else turn["route"] == route)
            )
            for route in ("local", "cloud", "rule", "cache")
        },
        "work": run.work(place),
    }
    if place:
        own["decision"] = run.decision(place)
        own["sentence"] = verdict_sentence(run, place)
        own["differences"] = [
            difference_object(metric, difference)
            for metric in STAGES
            for quantile in QUANTILES
            if (difference := run.difference(place, metric, quantile)) is not None
        ]
    return own


def difference_object(metric: str, difference: PairedDifference) -> dict[str, Any]:
    """One difference; its figures are None where there are too few pairs."""
    return {
        "metric": metric,
        "quantile": difference.quantile,
        "pairs": difference.pairs,
        "control_ns": difference.control,
        "variant_ns": difference.variant,
        "difference_ns": difference.value,
        "lower_ns": difference.lower,
        "upper_ns": difference.upper,
        "too_few": difference.too_few,
    }
