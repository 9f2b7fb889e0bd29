"""The sections `[[phases]]`: how much load there is, and when; and the rules that hold between phases."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast, get_args

from pydantic import Field, create_model

from loadtest.scenario import fields
from loadtest.scenario.fields import Meaning, TomlTable
from telemetry.model.durations import Duration
from telemetry.model.file_faults import Path
from telemetry.model.semconv import RAMP, PhaseKind
from telemetry.model.validation import validated

Unit = Literal["users", "rate"]
Arrival = Literal["constant", "poisson"]
Levels = tuple[float, float]

STEPS: Final = "steps"  # becomes a hold for each step, so that every level has figures of its own
KINDS: Final = (*get_args(PhaseKind), STEPS)
MAX_USERS: Final = 100_000
MAX_RATE_PER_S: Final = 10_000.0
MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run. From `begin_s` on, for `duration_s`, the load goes in a line from one level to the other.

    Levels are callers at the same time, or (unit "rate") calls begun a second whatever the earlier calls do.
    """

    name: str
    kind: PhaseKind
    begin_s: float
    duration_s: float
    unit: Unit
    level_from: float
    level_to: float
    arrival: Arrival | None = None  # of a rate; callers at the same time arrive when they have ended a call

    @property
    def end_s(self) -> float:
        """When it ends, counted from the start of the run."""
        return self.begin_s + self.duration_s

    def level_at(self, run_s: float) -> float:
        """The level at a moment of the run within the phase."""
        share = min(1.0, max(0.0, (run_s - self.begin_s) / self.duration_s))
        return self.level_from + (self.level_to - self.level_from) * share


def phase_at(phases: Sequence[Phase], run_s: float) -> Phase | None:
    """The phase at a moment of the run, None when all are over."""
    return next((phase for phase in phases if run_s < phase.end_s), None)


class PhaseTable(TomlTable):
    """The load over time: a table for each phase, in order.

    The keys `users` and `rate` are read by `_levels`, because they depend on the kind.
    """

    name: Annotated[str, fields.TEXT, Meaning("name of the phase; required and unique")] = fields.text(...)
    kind: Annotated[
        str,
        fields.TEXT,
        fields.one_of(KINDS),
        Meaning("required; turns that begin in a ramp are left out of the run's figures"),
    ] = fields.choice(..., KINDS)
    duration: Annotated[Duration, fields.SOME_DURATION, fields.AS_TEXT, Meaning("required")] = fields.duration(...)
    users: Annotated[object, Meaning("callers at the same time: a number, or { from, to } for ramp and steps")] = None
    rate: Annotated[object, Meaning("calls that begin per second: a number, or { from, to }; instead of users")] = None
    arrival: Annotated[
        str | None, fields.one_of(get_args(Arrival)), Meaning("arrival process for a rate (default: poisson)")
    ] = fields.choice(None, get_args(Arrival))
    steps: Annotated[int | None, Meaning("number of levels, for the kind steps")] = fields.whole(None, 2, MAX_STEPS)

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """Keys of the other kinds and of the other unit are left out."""
        kind = table.get("kind")
        if kind == STEPS and "steps" not in table:
            yield ("steps",), "is missing; give the number of steps"
        elif "kind" in table and "kind" not in faulty and kind != STEPS and "steps" in table:
            yield ("steps",), f"belongs to the kind 'steps'; leave it out of a phase of kind {kind!r}"
        given = _units_of(table)
        if len(given) != 1:
            more = "not both" if given else "callers at the same time, or calls begun a second"
            yield ("users",), f"give either users or rate: {more}"
        elif given == ["users"] and "arrival" in table and "arrival" not in faulty:
            yield ("arrival",), "belongs to a rate; give a rate, or leave it out"

    def phases(self, begin_s: float, levels: Levels, unit: Unit) -> list[Phase]:
        """The phase that begins then; a hold for each of its steps, so that every level has figures of its own."""
        arrival = cast("Arrival", self.arrival or "poisson") if unit == "rate" else None
        if self.kind != STEPS:
            kind = cast("PhaseKind", self.kind)
            return [Phase(self.name, kind, begin_s, self.duration.seconds, unit, *levels, arrival)]
        count = self.steps or 2
        each_s = self.duration.seconds / count
        parts: list[Phase] = []
        for number in range(count):
            level = levels[0] + (levels[1] - levels[0]) * number / (count - 1)
            level = float(round(level)) if unit == "users" else level
            name = f"{self.name} {number + 1}/{count}"
            parts.append(Phase(name, "hold", begin_s + number * each_s, each_s, unit, level, level, arrival))
        return parts


def read_phases(tables: Sequence[PhaseTable]) -> tuple[Phase, ...]:
    """Return the phases of tables that are sound, each beginning where the one before it ends."""
    phases: list[Phase] = []
    begin_s = level = 0.0
    for phase in tables:
        given = {key: getattr(phase, key) for key in phase.model_fields_set}
        levels, _ = _levels(given, level)
        if levels is None:
            raise ValueError(f"the phase {phase.name} has no levels")
        phases += phase.phases(begin_s, levels, _units_of(given)[0])
        level = levels[1]
        begin_s += phase.duration.seconds
    return tuple(phases)


def rules_between(phases: Sequence[Any]) -> Iterator[tuple[Path, str]]:
    """Names are unique, the unit is the same, and a phase may go on from the level of the one before it."""
    names: set[str] = set()
    unit: Unit | None = None
    level = 0.0
    for position, table in enumerate(phases):
        if not isinstance(table, Mapping):
            continue
        phase = cast("Mapping[str, Any]", table)
        name = phase.get("name")
        if isinstance(name, str) and name.strip():
            if name in names:
                yield (position, "name"), f"{name!r} is given twice; give each phase a name of its own"
            names.add(name)
        given = _units_of(phase)
        if len(given) != 1:
            continue
        if unit is not None and given[0] != unit:
            sentence = f"the phases before give {unit}; a run has callers or arrivals, not both"
            yield (position, given[0]), sentence
        unit = unit or given[0]
        levels, faults = _levels(phase, level)
        yield from (((position, *path), sentence) for path, sentence in faults)
        level = levels[1] if levels is not None else level


def _units_of(table: Mapping[str, Any]) -> list[Unit]:
    """The units in which a phase says its level; one where it is sound."""
    return [unit for unit in get_args(Unit) if unit in table]


def _levels(phase: Mapping[str, Any], before: float) -> tuple[Levels | None, list[tuple[Path, str]]]:
    """The levels of a phase at its start and at its end, or what is wrong with them; `before` it was that level."""
    kind, unit = phase.get("kind"), _units_of(phase)[0]
    value = phase[unit]
    if kind not in KINDS:
        return None, []
    is_table = isinstance(value, Mapping)
    if kind not in ("ramp", STEPS):
        if is_table:
            return None, [((unit,), f"a phase of kind {kind!r} stays on one level; give a number")]
        one, faults = validated(_ONE_LEVEL[unit], {unit: value})
        if one is None:
            return None, [(fault.path, fault.sentence) for fault in faults]
        level = float(getattr(one, unit))
        return (level, level), []
    if not is_table:
        example = f"{unit} = {{ from = 1, to = 5 }}"
        return None, [((unit,), f"a phase of kind {kind!r} goes from one level to another; write {example}")]
    ends, faults = validated(_ENDS[unit, kind], cast("Mapping[str, Any]", value))
    placed = [((unit, *fault.path), fault.sentence) for fault in faults]
    if "from" not in value and kind == STEPS and not before:
        placed.append(((unit, "from"), "is missing; no phase before gives it"))
    if ends is None or placed:
        return None, placed
    begin, end = (getattr(ends, name) for name in ("begin", "to"))
    return (before if begin is None else float(begin), float(end)), []


def _level(unit: Unit, default: Any, *, zero: bool, alias: str | None = None) -> tuple[Any, Any]:
    """The type and the limits of a level, for a model."""
    if unit == "users":
        least = 0 if zero else 1
        mend = f"a whole number from {least} to {MAX_USERS} is expected"
        return int, Field(default=default, alias=alias, ge=least, le=MAX_USERS, description=mend)
    if not zero:
        return float, fields.more_than_0(default, MAX_RATE_PER_S)
    mend = f"a number from 0 to {MAX_RATE_PER_S:g} is expected"
    return float, Field(default=default, alias=alias, ge=0, le=MAX_RATE_PER_S, description=mend)


def _model(**levels: tuple[Any, Any]) -> type[TomlTable]:
    return create_model("Levels", __base__=TomlTable, **cast("dict[str, Any]", levels))


_ONE_LEVEL: Final[dict[Unit, type[TomlTable]]] = {
    "users": _model(users=_level("users", ..., zero=False)),
    "rate": _model(rate=_level("rate", ..., zero=False)),
}
# A ramp may end with nothing, steps may not. Where the beginning is left out, it goes on from the phase before.
_ENDS: Final[dict[tuple[Unit, str], type[TomlTable]]] = {
    (unit, kind): _model(begin=_level(unit, None, zero=True, alias="from"), to=_level(unit, ..., zero=kind == "ramp"))
    for unit in get_args(Unit)
    for kind in ("ramp", STEPS)
}


# Of a run without phases of its own: until all callers that were asked for are there, and from then on.
RAMP_UP: Final = "ramp-up"
STEADY: Final = "steady"


class RunClock:
    """The time of one run in one process: it starts when every process has prepared its speech."""

    def __init__(self, phases: Sequence[Phase] = ()) -> None:
        self.phases = tuple(phases)
        self._started_perf_ns: int | None = None
        self._spawned_perf_ns: int | None = None
        self._knows_spawning = False

    @property
    def started_perf_ns(self) -> int | None:
        """The moment of the start, None before it."""
        return self._started_perf_ns

    def start(self, perf_ns: int) -> None:
        """The run starts. A second start does nothing."""
        if self._started_perf_ns is None:
            self._started_perf_ns = perf_ns

    def expect_ramp_up(self) -> None:
        """Callers come one after the other: until `all_spawned` turns begin during a ramp."""
        self._knows_spawning = True

    def all_spawned(self, perf_ns: int) -> None:
        """All callers that were asked for are there. Of several such moments the first ends the ramp."""
        if self._spawned_perf_ns is None:
            self._spawned_perf_ns = perf_ns

    def run_s(self, perf_ns: int) -> float | None:
        """Seconds since the start, None before it."""
        return None if self._started_perf_ns is None else (perf_ns - self._started_perf_ns) / 1e9

    def phase_of(self, perf_ns: int) -> tuple[str, PhaseKind] | None:
        """Name and kind of the phase at a moment; the last one goes on while the last turns end."""
        run_s = self.run_s(perf_ns)
        if run_s is None:
            return None
        if self.phases:
            phase = phase_at(self.phases, run_s) or self.phases[-1]
            return phase.name, phase.kind
        if self._knows_spawning and (self._spawned_perf_ns is None or perf_ns < self._spawned_perf_ns):
            return RAMP_UP, RAMP
        return STEADY, "hold"


Tick = tuple[int, float]  # callers wanted, and how many to begin or end a second
# Locust warns beyond this, and a machine that begins more calls at once is late with all of them.
MOST_SPAWNED_PER_S: Final = 100.0
STAND_BY: Final[Tick] = (1, 1.0)


class LoadProfile:
    """Follows the phases. A level is reached at once; Locust looks once a second, so that a ramp is a staircase of
    one-second steps."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = tuple(phases)
        self._asked: Tick = (0, 1.0)

    def tick(self, run_s: float | None, users_now: int) -> Tick | None:
        """Return what Locust is to do, None when all phases are over. `run_s` is None before the start of the run, when
        those who are spawned already wait until every process is ready."""
        if self._phases[0].unit == "rate":
            # Calls begin by their own schedule; Locust's one user only waits until the end.
            return STAND_BY if run_s is None or phase_at(self._phases, run_s) is not None else None
        if run_s is None:
            users = max(1, round(self._phases[0].level_at(0.0)))
            self._asked = (users, _rate(users))
            return self._asked
        phase = phase_at(self._phases, run_s)
        if phase is None:
            return None
        users = round(phase.level_at(run_s))
        before = self._asked[0]
        # Those who are to leave finish their turn first. Locust would count them among the others until they have left,
        # so that it hears of another number only then.
        if users != before and users_now <= before:
            self._asked = (users, _rate(abs(users - before)))
        return self._asked


def _rate(users: int) -> float:
    return min(MOST_SPAWNED_PER_S, float(users))
