"""The file `rollout.toml`, as pydantic models; every fault is reported at once, with its line. A field's description
says how to fix it.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, cast, get_args

from pydantic import AfterValidator, Field, PlainValidator

from telemetry.model.durations import HELP, Duration, DurationError
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import Path, parse_toml, shown
from telemetry.model.metrics import CONNECT, HEADLINE, METRICS
from telemetry.model.turns import SLICES
from telemetry.model.validation import NAME_HELP, CheckedTable, Name, one_of, refused, validated
from telemetry.rollout.plan import (
    CHECK_KINDS,
    DEFAULT_CACHE_MISSES,
    DEFAULT_SHORTEST,
    DEFAULT_TAIL_MARGIN,
    FRACTIONS,
    AssignmentUnit,
    Check,
    CheckKind,
    Completeness,
    RolloutPlan,
    ShareChange,
    Stage,
)
from telemetry.rollout.sequential import LARGEST_LEVEL

_DEFAULT_MARGIN: Final = "100ms"
_SERVICE_CHARS_MAX: Final = 255
# Quantiles that a margin in milliseconds can be about, of values that every turn can have.
_LATENCIES: Final = tuple(name for name, metric in METRICS.items() if metric.unit == "ns" and name != CONNECT)
_RATIO_MARGIN: Final = "a share above 0 and below 1 is expected, such as 0.01"


def parse_plan(text: str, where: str) -> RolloutPlan:
    """The plan of a text. Raises ConfigError with every fault; `where` names the file."""
    toml = parse_toml(text, where)
    document, faults = validated(_PlanTable, toml.table)
    if document is None:
        raise ConfigError(where, [sentence.removeprefix(f"{where}: ") for sentence in toml.sentences(faults)])
    return document.plan()


def _service_name(value: str) -> str:
    if not value.strip() or len(value) > _SERVICE_CHARS_MAX:
        raise refused(f"is {shown(value)}; give the service.name of the service, or HOST:PORT that callers call")
    return value.strip()


def _unit(value: object) -> AssignmentUnit:
    if value == "turn":
        raise refused(
            "is 'turn'; turns of one call are not independent, and a caller would meet both versions: "
            "assign by call or by user"
        )
    if value not in get_args(AssignmentUnit):
        raise refused(f"is {shown(value)}; write call or user")
    return cast("AssignmentUnit", value)


def _duration(value: object) -> Duration:
    try:
        return Duration.of_value(value)
    except DurationError:
        raise refused(f"{shown(value)} is not a duration: write it as {HELP}") from None


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise refused(f"is {shown(value)}; a moment with its time zone is expected, such as 2026-11-02T08:00:00Z")
    return value


def _margin_ns(value: object) -> float | None:
    """A margin with its unit, in ns; None for anything else, and for 0."""
    try:
        return Duration.parse(value, bare=False).ns or None if isinstance(value, str) else None
    except DurationError:
        return None


def _margin_number(value: object) -> float | None:
    """A number above 0; None for anything else, also for one of more than 308 digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _given(margin: float | None) -> float:
    """A margin that the rules of its table have accepted."""
    if margin is None:
        raise ValueError("a margin that the rules of its table refuse has passed them")
    return margin


_DurationField = Annotated[Duration, PlainValidator(_duration)]
_Latency = Annotated[str, one_of(_LATENCIES, "a latency that a turn has")]
_Statistic = Annotated[str, one_of(tuple(FRACTIONS), "a known statistic")]


class _TomlTable(CheckedTable):
    kind_of_value: ClassVar[str] = "table"


class _CohortsTable(_TomlTable):
    control: Name = Field(description="name the cohort that keeps what there is")
    candidate: Name = Field(description="name the cohort that gets the change")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Two cohorts."""
        if not faulty and table.get("control") is not None and table.get("control") == table.get("candidate"):
            yield ("candidate",), "is the control itself; a change is compared with a cohort that does not have it"


class _StageTable(_TomlTable):
    name: Name = Field(description=NAME_HELP)
    share: float = Field(gt=0, le=1, description="the candidate's share of all callers, above 0 and at most 1")
    control_share: float | None = Field(default=None, gt=0, lt=1, description="a share above 0 and below 1 is expected")
    shortest: _DurationField = Field(default=DEFAULT_SHORTEST, description=f"a duration such as {HELP}")
    fewest_turns: int = Field(default=100, ge=1, le=10**9, description="a whole number of turns is expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Check that the shares add up to at most one."""
        both = {"share", "control_share"}
        if both <= set(table) and not both & set(faulty) and table["share"] + table["control_share"] > 1 + 1e-9:
            yield ("control_share",), "is more than the candidate leaves; the two shares add up to 1 at most"

    def stage(self) -> Stage:
        """Convert to the part of the plan."""
        rest = max(0.0, 1 - self.share) if self.control_share is None else self.control_share
        return Stage(self.name, float(self.share), float(rest), self.shortest, self.fewest_turns)


class _PrimaryTable(_TomlTable):
    metric: _Latency = HEADLINE
    statistic: _Statistic = "p95"
    margin: object = _DEFAULT_MARGIN

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """A margin in the unit of the metric."""
        del faulty
        if _margin_ns(table.get("margin", _DEFAULT_MARGIN)) is None:
            yield ("margin",), f"is {shown(table['margin'])}; a duration above 0 with its unit is expected: {HELP}"

    def check(self) -> Check:
        """Convert to the part of the plan."""
        margin = _given(_margin_ns(self.margin))
        return Check(f"{self.metric} {self.statistic}", "quantile", margin, self.metric, self.statistic)


class _GuardrailTable(_TomlTable):
    check: Annotated[str, one_of(CHECK_KINDS, "a known check")] = Field(
        description=f"say what is watched: one of {', '.join(CHECK_KINDS)}"
    )
    margin: object = None
    metric: _Latency = HEADLINE
    statistic: _Statistic = "p95"
    within: object = None
    objective: str | None = Field(default=None, min_length=1, description="name an objective of the file of --slo")
    price_per_token: float = Field(default=0.0, ge=0, description="a price of 0 or more is expected")
    price_per_audio_minute: float = Field(default=0.0, ge=0, description="a price of 0 or more is expected")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """The keys that its kind has, and a margin in the kind's unit."""
        kind = table.get("check")
        if kind is None or "check" in faulty:
            return
        takes = _KEYS.get(kind, ())
        for key in ("metric", "statistic", "within", "objective", "price_per_token", "price_per_audio_minute"):
            if key in table and key not in takes:
                yield (key,), f"does not belong to the check {kind}; leave it out"
        fault = f"is {shown(table['margin'])}" if "margin" in table else "is missing"
        if kind == "quantile":
            if _margin_ns(table.get("margin")) is None:
                yield ("margin",), f"{fault}; a duration above 0 with its unit is expected: {HELP}"
        elif kind == "cost_per_turn":
            if _margin_number(table.get("margin")) is None:
                yield ("margin",), f"{fault}; a cost above 0 is expected, in the unit of the prices"
            if not table.get("price_per_token") and not table.get("price_per_audio_minute"):
                yield ("price_per_token",), "is missing; give the price of a token, of a minute of audio, or both"
        elif (margin := _margin_number(table.get("margin"))) is None or margin >= 1:
            yield ("margin",), f"{fault}; {_RATIO_MARGIN}"
        if kind == "objective" and "objective" not in table:
            yield ("objective",), "is missing; name an objective of the file of --slo"
        if kind == "good_turns" and _margin_ns(table.get("within")) is None:
            given = f"is {shown(table['within'])}" if "within" in table else "is missing"
            yield ("within",), f"{given}; say up to which duration a turn is good, such as 800ms"

    def guardrail(self) -> Check:
        """Convert to the part of the plan."""
        kind = cast("CheckKind", self.check)
        margin = _given((_margin_ns if kind == "quantile" else _margin_number)(self.margin))
        metric_part = f" {self.metric}" if "metric" in _KEYS.get(kind, ()) else ""
        statistic = f" {self.statistic}" if kind == "quantile" else ""
        objective_part = "" if self.objective is None else f" {self.objective}"
        name = f"{kind if kind != 'quantile' else ''}{metric_part}{statistic}{objective_part}".strip()
        return Check(
            name,
            kind,
            margin,
            self.metric,
            self.statistic,
            _margin_ns(self.within),
            float(self.price_per_token),
            float(self.price_per_audio_minute),
            self.objective,
        )


# The keys that a kind of check has in addition to its margin.
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "quantile": ("metric", "statistic"),
    "tail": ("metric",),
    "good_turns": ("metric", "within"),
    "objective": ("objective",),
    "cost_per_turn": ("price_per_token", "price_per_audio_minute"),
}


class _CompletenessTable(_TomlTable):
    telemetry_loss: float = Field(default=0.0, ge=0, lt=1, description="a share from 0 to below 1 is expected")
    invalid_turns: float = Field(default=0.01, ge=0, lt=1, description="a share from 0 to below 1 is expected")
    sample_ratio_p: float = Field(
        default=0.0005, gt=0, le=0.05, description="a probability above 0 and at most 0.05 is expected"
    )
    contaminated_units: float = Field(default=0.01, ge=0, lt=1, description="a share from 0 to below 1 is expected")
    unassigned_turns: float = Field(default=0.01, ge=0, lt=1, description="a share from 0 to below 1 is expected")


class _ApplyTable(_TomlTable):
    flags: str | None = Field(default=None, min_length=1, description="the path of a JSON file of flagd's is expected")
    flag: str = Field(default="voice", min_length=1, description="the key of the flag in the file is expected")
    command: list[str] = Field(default=[], description="the program and its arguments are expected, a text each")
    timeout: _DurationField = Field(default=ShareChange().timeout, description=f"a duration such as {HELP}")
    settle: _DurationField = Field(default=ShareChange().settle, description=f"a duration such as {HELP}")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """One way to change the split."""
        given = [name for name in ("flags", "command") if table.get(name)]
        if not given and not {"flags", "command"} & set(faulty):
            yield ("flags",), "is missing; name the file of flags, or give a command"
        for name in given[1:]:
            yield (name,), f"is given together with {given[0]}; one of them changes the split"
        if "flag" in table and "flags" not in table:
            yield ("flag",), "belongs to flags; leave it out"

    def share_change(self) -> ShareChange:
        """Convert to the part of the plan."""
        return ShareChange(self.flags, self.flag, tuple(self.command), self.timeout, self.settle)


class _PlanTable(_TomlTable):
    name: Name = Field(description=NAME_HELP)
    unit: Annotated[str, PlainValidator(_unit)] = Field(description="say who is assigned to a cohort: call or user")
    cohorts: _CohortsTable
    stages: list[_StageTable] = Field(
        min_length=1, max_length=50, description="write each stage as a table of its own, under [[stages]]"
    )
    begins: Annotated[datetime | None, PlainValidator(_moment)] = None
    error_level: float = Field(
        default=0.05, gt=0, le=LARGEST_LEVEL, description=f"a number above 0 and at most {LARGEST_LEVEL} is expected"
    )
    power: float = Field(default=0.9, ge=0.5, lt=1, description="a number from 0.5 to below 1 is expected")
    source: Literal["client", "service"] = Field(
        default="client", description="write client (as callers heard it) or service (as it reports itself)"
    )
    services: list[Annotated[str, AfterValidator(_service_name)]] = Field(
        default=[], max_length=50, description='a list of names is expected, such as ["front-desk"]'
    )
    paired: bool = Field(default=False, description="true or false is expected")
    slices: list[Annotated[str, one_of(SLICES, "a dimension of a turn")]] = Field(
        default=[], max_length=len(SLICES), description="a list of dimensions is expected"
    )
    primary: _PrimaryTable = _PrimaryTable()
    guardrails: list[_GuardrailTable] = Field(
        default=[], max_length=30, description="write each guardrail as a table of its own, under [[guardrails]]"
    )
    cache_misses: bool = Field(
        default=True, description="write false to leave this default out, or state its margin under [[guardrails]]"
    )
    completeness: _CompletenessTable = _CompletenessTable()
    apply: _ApplyTable | None = Field(default=None, description="a table is expected, under [apply]")

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Check that stages have unique names and grow, and that nothing is checked twice."""
        if "stages" not in faulty and isinstance(table.get("stages"), list):
            yield from _between_stages(table["stages"])
        if "guardrails" not in faulty and isinstance(table.get("guardrails"), list):
            yield from _between_guardrails(table["guardrails"])
            watched = [guardrail["check"] for guardrail in table["guardrails"]]
            if table.get("cache_misses") is False and DEFAULT_CACHE_MISSES.kind in watched:
                place = watched.index(DEFAULT_CACHE_MISSES.kind) + 1
                yield (
                    ("cache_misses",),
                    f"conflicts with guardrails[{place}], which watches them; leave one out",
                )

    def plan(self) -> RolloutPlan:
        """The plan for the gate; the tail and cache misses are checked with default margins if the file states none,
        and cache misses may be left out."""
        guardrails = [table.guardrail() for table in self.guardrails]
        kinds = {guardrail.kind for guardrail in guardrails}
        if "tail" not in kinds:
            guardrails.append(Check(f"tail {self.primary.metric}", "tail", DEFAULT_TAIL_MARGIN, self.primary.metric))
        if self.cache_misses and DEFAULT_CACHE_MISSES.kind not in kinds:
            guardrails.append(DEFAULT_CACHE_MISSES)
        limits = self.completeness
        return RolloutPlan(
            name=self.name,
            control=self.cohorts.control,
            candidate=self.cohorts.candidate,
            unit=cast("AssignmentUnit", self.unit),
            stages=tuple(stage.stage() for stage in self.stages),
            primary=self.primary.check(),
            guardrails=tuple(guardrails),
            error_level=float(self.error_level),
            power=float(self.power),
            slices=tuple(dict.fromkeys(self.slices)),
            completeness=Completeness(
                float(limits.telemetry_loss),
                float(limits.invalid_turns),
                float(limits.sample_ratio_p),
                float(limits.contaminated_units),
                float(limits.unassigned_turns),
            ),
            is_paired=self.paired,
            source=self.source,
            begins_unix_ns=None if self.begins is None else round(self.begins.timestamp() * 1e6) * 1000,
            apply=None if self.apply is None else self.apply.share_change(),
            services=tuple(dict.fromkeys(self.services)),
            left_out=() if self.cache_misses else (DEFAULT_CACHE_MISSES.kind,),
        )


def _between_stages(stages: list[Mapping[str, Any]]) -> Iterator[tuple[Path, str]]:
    names: set[str] = set()
    share = 0.0
    for position, stage in enumerate(stages):
        if stage["name"] in names:
            yield ("stages", position, "name"), f"{stage['name']!r} is given twice; give each stage a name of its own"
        names.add(stage["name"])
        if stage["share"] <= share:
            yield (
                ("stages", position, "share"),
                f"is {shown(stage['share'])}; each stage has a larger share than the last",
            )
        share = max(share, stage["share"])
    if stages[0]["share"] == 1:
        yield ("stages", 0, "share"), "is 1; with all callers at once there is no control to compare with"


def _between_guardrails(guardrails: list[Mapping[str, Any]]) -> Iterator[tuple[Path, str]]:
    seen: dict[tuple[object, ...], int] = {}
    for position, table in enumerate(guardrails):
        statistic = table.get("statistic", "p95") if table["check"] == "quantile" else None
        key = (table["check"], table.get("metric", HEADLINE), statistic, table.get("within"), table.get("objective"))
        first = seen.setdefault(key, position)
        if first != position:
            yield ("guardrails", position), f"watches the same as guardrails[{first + 1}]; leave one of them out"
