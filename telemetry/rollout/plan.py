"""A rollout's plan (who is compared with whom, on what, by which margins, in which stages), and its history. Pure.

The history is passed into the gate, and given back by it. Bounds need no memory: they hold at every moment. Earlier
looks still count: a plan that was edited, a clock that went back and turns that vanished would each let somebody look
until the verdict suits.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Final, Literal, get_args

import msgspec

from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import nearest
from telemetry.model.formatting import (
    NS_PER_S,
    declared_figure,
    declared_points,
    figure,
    signed_difference,
    significant,
)
from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.semconv import Source
from telemetry.model.turns import NAME_OF

AssignmentUnit = Literal["call", "user"]
# A check compares either a quantile of a metric, or a ratio that is better when it is smaller.
CheckKind = Literal[
    "quantile",
    "tail",
    "good_turns",
    "objective",
    "no_reply",
    "errors",
    "fallback",
    "abandonment",
    "wer",
    "cache_misses",
    "cost_per_turn",
]
CHECK_KINDS: Final[tuple[CheckKind, ...]] = get_args(CheckKind)
FRACTIONS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# The tail is always watched: a p95 does not move when the slowest 2 % alone become slower. One more turn in a hundred.
DEFAULT_TAIL_MARGIN: Final = 0.01
# Turns are seen when they have ended: in the first seconds of a stage all that will time out are missing.
DEFAULT_SHORTEST: Final = Duration.parse("5m")
# In a fingerprint the default means no time, as plans that state none had it in earlier versions.
_SHORTEST_NS: Final = {DEFAULT_SHORTEST.ns: 0, 0: DEFAULT_SHORTEST.ns}
# Caches are watched where they are reported: a candidate that answers from them less often costs more, at any latency.
_DEFAULT_CACHE_MISSES_MARGIN: Final = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """One figure on which the candidate may not be worse than the control by more than `margin`.

    The margin is in the metric's unit (ns) for quantiles, a share for ratios, and in the unit of the prices for cost.
    `is_optional`: a default that the plan's file does not state. It takes part only where both cohorts report what it
    compares (`applied_checks`), and is no part of the fingerprint: plans of earlier versions do not have it.
    """

    name: str
    kind: CheckKind
    margin: float
    metric: str = HEADLINE
    statistic: str = "p95"
    within: float | None = None  # of good_turns: a turn is good up to this value of the metric
    price_per_token: float = 0.0
    price_per_audio_minute: float = 0.0
    objective: str | None = None  # of the kind objective: its name
    promise: str | None = None  # and what it promises, once it is known
    is_optional: bool = False

    @property
    def fraction(self) -> float:
        """The fraction of the quantile, 0.95 for p95."""
        return FRACTIONS[self.statistic]

    @property
    def counted_by(self) -> str | None:
        """The name of the objective whose turns it counts: one of a file, or for good turns its own."""
        if self.kind == "good_turns":
            return f"{self.metric} within {self._good_within:g}"
        return self.objective if self.kind == "objective" else None

    @property
    def _good_within(self) -> float:
        if self.within is None:
            raise ValueError(f"the check {self.name} does not say within what a turn is good")
        return self.within

    @property
    def figure_kind(self) -> str:
        """The kind of its figures, as `formatting.figure` reads it."""
        if self.kind == "quantile":
            return METRICS[self.metric].kind
        return "ratio" if self.kind == "cost_per_turn" else "share"

    @property
    def sentence(self) -> str:
        """The compared figure as text: `p95 of voice to voice`."""
        match self.kind:
            case "quantile":
                return f"{self.statistic} of {METRICS[self.metric].phrase}"
            case "tail":
                return f"share of turns beyond the control's p99 of {METRICS[self.metric].phrase}"
            case "good_turns":
                metric = METRICS[self.metric]
                return (
                    f"share of turns with {metric.phrase} not within {declared_figure(self._good_within, metric.kind)}"
                )
            case "objective":
                return f"share of turns that miss the objective {self.objective}"
            case "cost_per_turn":
                return "cost per turn"
            case "wer":
                return "word error rate"
            case "cache_misses":
                return "share of turns that no cache answered"
            case _:
                return f"{self.kind.replace('_', ' ')} ratio"

    def format_margin(self) -> str:
        """The formatted margin."""
        if self.figure_kind == "share":
            return declared_points(self.margin)
        return declared_figure(self.margin, self.figure_kind)

    def format(self, value: float | None) -> str:
        """A formatted figure of this check."""
        return significant(value) if self.kind == "cost_per_turn" else figure(value, self.figure_kind)

    def format_difference(self, value: float | None) -> str:
        """A formatted difference of two figures, with its sign; for shares in percentage points."""
        return signed_difference(value, "ratio" if self.kind == "cost_per_turn" else self.figure_kind)


# What a plan watches if its file neither states a margin for it nor leaves it out.
DEFAULT_CACHE_MISSES: Final = Check("cache_misses", "cache_misses", _DEFAULT_CACHE_MISSES_MARGIN, is_optional=True)


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the rollout: the candidate's share of all callers, and the conditions for the next one.

    `control_share` is the control's share; less than the rest if further cohorts are served.
    """

    name: str
    share: float
    control_share: float
    shortest: Duration
    fewest_turns: int

    @property
    def has_control(self) -> bool:
        """Whether there is a control to compare with."""
        return self.control_share > 0


@dataclass(frozen=True, slots=True)
class Completeness:
    """The limits within which anything but holding is allowed: the most telemetry lost and the most invalid turns,
    as shares, below which probability the cohorts' sizes do not fit the plan, the largest share of units (calls or
    users) that met both cohorts, and the most turns without an answer of calls that name no cohort, as a share of the
    candidate's turns if all of them are its own."""

    telemetry_loss: float = 0.0
    invalid_turns: float = 0.01
    sample_ratio_p: float = 0.0005
    contaminated_units: float = 0.01
    unassigned_turns: float = 0.01


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The way in which a stage's shares take effect: the file of flags that is edited, or the command that is run;
    one of the two. Nothing here can change a verdict.

    `settle` is how long after a change the turns of a stage begin to count: callers whose call began before it go on.
    """

    flags: str | None = None  # a path, relative to the plan's folder
    flag: str = "voice"
    command: tuple[str, ...] = ()
    timeout: Duration = Duration(30 * NS_PER_S)  # noqa: RUF009 - immutable
    settle: Duration = Duration(60 * NS_PER_S)  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """A plan as its file states it. `begins_unix_ns` is when the first stage begins; None: with the first look.

    `source` says whose turns are compared: as the client heard them, or as the service reports them of itself. Where
    `services` names some, only their turns are: services by their names, endpoints that callers heard by HOST:PORT.
    `left_out` are the defaults that the file removes.
    """

    name: str
    control: str
    candidate: str
    unit: AssignmentUnit
    stages: tuple[Stage, ...]
    primary: Check
    guardrails: tuple[Check, ...]
    error_level: float = 0.05
    power: float = 0.9
    slices: tuple[str, ...] = ()  # of turns.SLICES
    completeness: Completeness = Completeness()
    is_paired: bool = False
    begins_unix_ns: int | None = None
    source: Source = "client"
    apply: ShareChange | None = None  # None: the split is changed elsewhere, and only watched
    services: tuple[str, ...] = ()
    left_out: tuple[CheckKind, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes with anything in the plan that can change a verdict; not with comments or the order of keys, and not
        with a setting of a later version that the plan does not have."""
        content = msgspec.to_builtins(replace(self, apply=None))
        content["guardrails"] = [guardrail for guardrail in content["guardrails"] if not guardrail["is_optional"]]
        for check in (content["primary"], *content["guardrails"]):
            del check["is_optional"]
        for stage in content["stages"]:
            stage["shortest"]["ns"] = _SHORTEST_NS.get(stage["shortest"]["ns"], stage["shortest"]["ns"])
        for name in ("services", "left_out"):
            if not content[name]:
                del content[name]
        for name in ("contaminated_units", "unassigned_turns"):
            if content["completeness"][name] == getattr(Completeness(), name):
                del content["completeness"][name]
        return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()

    @property
    def checks(self) -> tuple[Check, ...]:
        """The primary check and every guardrail."""
        return (self.primary, *self.guardrails)

    def stage(self, name: str) -> Stage:
        """The stage of this name. Raises ConfigError for an unknown one."""
        stage = next((stage for stage in self.stages if stage.name == name), None)
        if stage is None:
            known = ", ".join(stage.name for stage in self.stages)
            raise ConfigError(f"rollout {self.name}", [f"there is no stage {name!r}; known are {known}"])
        return stage

    def stage_after(self, name: str) -> Stage | None:
        """The stage that a promotion leads to; None after the last one. Raises ConfigError for an unknown name."""
        position = self.stages.index(self.stage(name)) + 1
        return self.stages[position] if position < len(self.stages) else None

    def rollback_level(self, check: Check) -> float:
        """The check's part of the error level for rolling back: of each stage's equal part, half is the primary's, and
        the guardrails share the rest.

        Any check rolls back, at any stage with a control, so the chances of a false alarm add up over both (Bonferroni,
        weighted; for a first rejection Holm's procedure asks the same). A promotion needs all checks, and one through
        every stage needs all stages, so nothing adds up there (Berger's intersection-union test): each check is held
        to the whole error level at each stage.
        """
        level = self.error_level / max(1, sum(stage.has_control for stage in self.stages))
        if check == self.primary:
            return level / (2 if self.guardrails else 1)
        return level / 2 / len(self.guardrails)

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the objectives that its checks are about."""
        return tuple(check.objective for check in self.checks if check.objective is not None)

    def with_promises(self, promises: Mapping[str, str]) -> "RolloutPlan":
        """The plan with the targets of its objectives, which are then part of its fingerprint.

        Raises ConfigError for an objective that is not among them.
        """
        unknown = [name for name in self.objectives if name not in promises]
        if unknown:
            faults = [f"there is no objective {name!r}{nearest(name, tuple(promises))}" for name in unknown]
            raise ConfigError(f"rollout {self.name}", faults)
        guardrails = tuple(
            check if check.objective is None else replace(check, promise=promises[check.objective])
            for check in self.guardrails
        )
        return replace(self, guardrails=guardrails)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that its checks read, by name."""
        read = ("quantile", "tail", "good_turns")
        return tuple(dict.fromkeys(check.metric for check in self.checks if check.kind in read))


def conflicts(plans: Sequence[RolloutPlan]) -> list[str]:
    """A sentence for each pair of plans that cannot be evaluated at the same time.

    The candidate of one plan may have no part in another: neither would be compared with what it states. A control may
    serve several, where each states its own share of it. Plans that name other services have nothing to do with each
    other.
    """
    return [sentence for one, other in combinations(plans, 2) for sentence in _conflict(one, other)]


def _conflict(one: RolloutPlan, other: RolloutPlan) -> Iterable[str]:
    both = f"the plans {one.name} and {other.name}"
    if one.name == other.name:
        yield f"two plans have the name {one.name}; give each rollout a name of its own"
    if one.services and other.services and not set(one.services) & set(other.services):
        return
    shared = [
        cohort for cohort in (one.candidate, one.control) if cohort in (other.candidate, other.control)
    ]  # the control of both may be one
    for cohort in shared:
        if cohort == one.control == other.control:
            taken = [1 - stage.share - stage.control_share for plan in (one, other) for stage in plan.stages]
            if any(rest <= 1e-9 for rest in taken):
                yield f"{both} share the control {cohort}, and one takes all callers; state control_share in its stages"
        else:
            yield f"{both} are both about the cohort {cohort}; end one of them, or give it another cohort"


def slice_name(dimension: str, value: str) -> str:
    """The display name of a slice: `noise = clean`."""
    return f"{NAME_OF.get(dimension, dimension)} = {value}"


def moment(unix_ns: int) -> str:
    """A time for sentences, in UTC."""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


Decision = Literal["promote", "hold", "roll_back"]


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a stage: its time, the numbers of eligible turns of each cohort, and the verdict."""

    at_unix_ns: int
    stage: str
    candidate_turns: int
    control_turns: int
    verdict: Decision


class RolloutHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The current stage of a rollout, and every look at it so far. `fingerprint` is the plan's."""

    plan: str
    fingerprint: str
    stage: str
    stage_since_unix_ns: int | None = None  # None: with the first turn
    looks: tuple[Look, ...] = ()

    @property
    def last_look(self) -> Look | None:
        """The newest look; None before the first."""
        return self.looks[-1] if self.looks else None

    @property
    def is_rolled_back(self) -> bool:
        """Whether any look ended in a roll back, which later looks do not undo."""
        return any(look.verdict == "roll_back" for look in self.looks)

    def with_look(self, look: Look) -> "RolloutHistory":
        """The history after one more look."""
        return msgspec.structs.replace(self, looks=(*self.looks, look))

    def at_stage(self, stage: str, since_unix_ns: int | None) -> "RolloutHistory":
        """The history at another stage, which is judged by its own turns: those since then."""
        return msgspec.structs.replace(self, stage=stage, stage_since_unix_ns=since_unix_ns)


def encode_history(history: RolloutHistory) -> bytes:
    """A history as JSON."""
    return msgspec.json.format(msgspec.json.encode(history), indent=2) + b"\n"


def decode_history(content: bytes, where: str) -> RolloutHistory:
    """A history from JSON. Raises ConfigError; `where` names the file."""
    try:
        return msgspec.json.decode(content, type=RolloutHistory)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        sentence = f"does not hold the history of a rollout ({error}); restore it, or begin a rollout of another name"
        raise ConfigError(where, [sentence]) from error
