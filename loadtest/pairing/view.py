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


def paired_view(found: PairedRun) -> Group:
    """The sentence on each variant and the table of differences."""
    parts: list[Any] = []
    for place in range(1, len(found.variants)):
        parts.append(Text(verdict_sentence(found, place), style="bold"))
        parts.append(_differences(found, place))
    parts.append(_beside(found))
    if found.interrupted:
        parts.append(Text("It was interrupted: what was said until then is shown.", style="yellow"))
    return Group(*parts)


def verdict_sentence(found: PairedRun, place: int) -> str:
    """Return what is decided about one variant, and by how much."""
    name, control = found.variants[place].name, found.variants[0].name
    request, headline = found.request, found.headline(place)
    decision, turned = found.judged(headline, place)
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


def _differences(found: PairedRun, place: int) -> Table:
    table = Table(title=f"{found.variants[place].name} minus {found.variants[0].name}, ms", title_justify="left")
    table.add_column("stage")
    for quantile in QUANTILES:
        table.add_column(f"Δp{100 * quantile:g} (95 %)", justify="right")
    table.add_column("pairs", justify="right")
    for metric in STAGES:
        each = [found.difference(place, metric, quantile) for quantile in QUANTILES]
        if each[0] is not None:
            shown = (interval_text(None, None, None) if one is None else _interval(one) for one in each)
            table.add_row(METRICS[metric].label, *shown, f"{each[0].pairs:,}")
    return table


def _interval(each: PairedDifference) -> str:
    return interval_text(each.value, each.lower, each.upper)


def interval_text(value_ns: float | None, lower_ns: float | None, upper_ns: float | None) -> str:
    """A difference and its interval for a table, in ms without the unit."""
    if value_ns is None:
        return "too few"
    value, lower, upper = (formatting.signed_milliseconds(ns, unit=False) for ns in (value_ns, lower_ns, upper_ns))
    return f"{value} ({lower} to {upper})"


def _beside(found: PairedRun) -> Table:
    table = Table(title="In addition to time", title_justify="left")
    headings = ("word error rate", "unanswered", "cache hits", "fallback", "whole answers", "words", "audible gaps")
    for heading in ("variant", *headings, "tokens in", "out"):
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for place, variant in enumerate(found.variants):
        shares = (found.unanswered(place), found.share(place, _is_hit), found.share(place, _is_fallback))
        work = found.work(place)
        table.add_row(
            variant.name,
            formatting.percent(found.word_error_rate(place)),
            *(_of(part, whole) for part, whole in shares),
            _of(*found.share(place, is_whole)),
            mean_text(answer_words(found, place)),
            _of(*found.share(place, has_gap)),
            mean_text(work.get("input_tokens")),
            mean_text(work.get("output_tokens")),
        )
    return table


def mean_text(mean: float | None) -> str:
    """A mean of counts for a table."""
    return "–" if mean is None else f"{mean:,.1f}"


def answer_words(found: PairedRun, place: int) -> float | None:
    """Return how many words an answer of a variant has, in the mean."""
    return found.mean(place, lambda turn: turn["answer_words"])


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


def paired_object(found: PairedRun) -> dict[str, Any]:
    """The comparison as one JSON object; times in nanoseconds."""
    return {
        "run_id": found.run_id,
        "metric": found.request.metric,
        "quantile": found.request.quantile,
        "smallest_ns": found.request.smallest_ms * _MS,
        "pairs": len(found.pairs),
        "interrupted": found.interrupted,
        "variants": [variant_object(found, place) for place in range(len(found.variants))],
    }


def variant_object(found: PairedRun, place: int) -> dict[str, Any]:
    """One variant: what it differs by from the first, which has no differences."""
    part, whole = found.unanswered(place)
    own: dict[str, Any] = {
        "name": found.variants[place].name,
        "word_error_rate": found.word_error_rate(place),
        "unanswered": part,
        "turns": whole,
        "whole_answers": ratio(*found.share(place, is_whole)),
        "answer_words": answer_words(found, place),
        "audible_gaps": ratio(*found.share(place, has_gap)),
        "cache_hits": ratio(*found.share(place, _is_hit)),
        "cache_hits_by_tier": found.hits_by_tier(place),
        "fallbacks": ratio(*found.share(place, _is_fallback)),
        "routes": {
            route: ratio(
                *found.share(place, lambda turn, route=route: None if turn["route"] is None else turn["route"] == route)
            )
            for route in ("local", "cloud", "rule", "cache")
        },
        "work": found.work(place),
    }
    if place:
        own["decision"] = found.decision(place)
        own["sentence"] = verdict_sentence(found, place)
        own["differences"] = [
            difference_object(metric, each)
            for metric in STAGES
            for quantile in QUANTILES
            if (each := found.difference(place, metric, quantile)) is not None
        ]
    return own


def difference_object(metric: str, each: PairedDifference) -> dict[str, Any]:
    """One difference; its figures are None where there are too few pairs."""
    return {
        "metric": metric,
        "quantile": each.quantile,
        "pairs": each.pairs,
        "control_ns": each.control,
        "variant_ns": each.variant,
        "difference_ns": each.value,
        "lower_ns": each.lower,
        "upper_ns": each.upper,
        "too_few": each.too_few,
    }
