"""The gauges of rollouts in `/metrics`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry

from telemetry.objectives import series
from telemetry.rollout.plan import Decision
from telemetry.rollout.verdict import CheckVerdict
from telemetry.sidecar.counts.text import Family, ShownFamilies, with_registry
from telemetry.sidecar.rollouts.evaluation import RolloutState
from telemetry.sidecar.rollouts.thread import RolloutThread

_DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
_NS_PER_S: Final = 1e9
_BY: Final = series.ROLLOUT_LABEL


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", text, (_BY, *labels))


FAMILIES: Final = (
    _gauge(
        series.ROLLOUT_VERDICT, "1 for what is to be done with the rollout now; hold while nothing is known.", "verdict"
    ),
    _gauge(series.ROLLOUT_STAGE, "1 for the stage at which the rollout is.", "stage"),
    _gauge(series.ROLLOUT_SHARE, "The candidate's share of callers at this stage."),
    _gauge(series.ROLLOUT_NEEDED, "More turns of the candidate that the verdict waits for; absent where unknown."),
    _gauge(series.ROLLOUT_EVALUATED, "When a verdict was last kept; 0 before the first."),
    _gauge(series.ROLLOUT_EVERY, "How often the rollout is evaluated."),
    _gauge(
        series.ROLLOUT_BEYOND_MARGIN,
        "The candidate's share of turns beyond the control's quantile and the margin; the upper bound decides.",
        "bound",
    ),
    _gauge(series.ROLLOUT_ALLOWED, "What share may be there: a promotion needs the upper bound below it."),
    _gauge(
        series.ROLLOUT_EXCESS,
        "The candidate's share of turns beyond the control's quantile - the control's own; a roll back needs the lower "
        "bound above 0.",
        "bound",
    ),
    _gauge(
        series.ROLLOUT_DIFFERENCE,
        "Candidate - control of the primary quantile, with a 95 % interval of one look; decides nothing.",
        "bound",
    ),
    _gauge(series.ROLLOUT_MARGIN, "By how much the primary metric may be worse at most."),
)
_Samples = Mapping[tuple[str, ...], float | None]
_OF_PRIMARY: Final = (
    *(series.ROLLOUT_BEYOND_MARGIN, series.ROLLOUT_ALLOWED, series.ROLLOUT_EXCESS),
    *(series.ROLLOUT_DIFFERENCE, series.ROLLOUT_MARGIN),
)


def with_rollouts(page: bytes, thread: RolloutThread) -> bytes:
    """A page of `/metrics` with the gauges of rollouts behind its own; without rollouts it stays as it is."""
    if not thread.names:
        return page
    samples = {name: _samples(thread, name) for name in thread.names}

    def families() -> Iterator[Any]:
        for family in FAMILIES:
            yield family.of(
                ((name, *labels), value)
                for name, of_family in samples.items()
                for labels, value in of_family[family.name].items()
                if value is not None
            )

    registry = CollectorRegistry()
    registry.register(ShownFamilies(families))  # type: ignore[arg-type] - it has all that is asked of a collector
    return with_registry(page, registry)


def _samples(thread: RolloutThread, name: str) -> Mapping[str, _Samples]:
    known, newest = thread.state(name), thread.newest(name)
    state = known if isinstance(known, RolloutState) else None
    decision = "hold" if state is None else state.decision
    kept_unix_ns = None if newest is None else newest.kept_unix_ns
    return {
        **_primary_samples(None if state is None else state.primary),
        series.ROLLOUT_VERDICT: {(each,): int(each == decision) for each in _DECISIONS},
        series.ROLLOUT_STAGE: {} if newest is None else {(each,): int(each == newest.stage) for each in newest.stages},
        series.ROLLOUT_SHARE: {(): None if newest is None else newest.verdict.share},
        series.ROLLOUT_NEEDED: {(): None if state is None else state.verdict.turns_needed},
        series.ROLLOUT_EVALUATED: {(): 0 if kept_unix_ns is None else kept_unix_ns / _NS_PER_S},
        series.ROLLOUT_EVERY: {(): thread.every_s},
    }


def _primary_samples(primary: CheckVerdict | None) -> Mapping[str, _Samples]:
    """Return what is not known has no sample."""
    found: dict[str, _Samples] = {family: {} for family in _OF_PRIMARY}
    if primary is None:
        return found
    shares = primary.shares
    figures = {"lower": primary.lower, "estimate": primary.difference, "upper": primary.upper}
    found[series.ROLLOUT_DIFFERENCE] = {(name,): value for name, value in figures.items()}
    found[series.ROLLOUT_MARGIN] = {(): primary.margin}
    if shares is not None:
        found[series.ROLLOUT_BEYOND_MARGIN] = {("estimate",): shares.beyond_margin, ("upper",): shares.upper}
        found[series.ROLLOUT_ALLOWED] = {(): shares.allowed}
        found[series.ROLLOUT_EXCESS] = {("lower",): shares.lower, ("estimate",): shares.beyond - shares.control}
    return found
