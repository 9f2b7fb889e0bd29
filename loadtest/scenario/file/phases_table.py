"""The sections `[[phases]]` as pydantic models, and the rules that hold between phases."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, cast, get_args

from pydantic import Field

from loadtest.scenario.file import fields
from loadtest.scenario.file.fields import DurationField, Text, TomlTable
from loadtest.scenario.file.phases import KINDS, MAX_RATE_PER_S, MAX_STEPS, MAX_USERS, STEPS, Arrival, Kind, Phase, Unit
from telemetry.model.file_faults import Path
from telemetry.model.validation import validated

_UNITS: Final = get_args(Unit)
Levels = tuple[float, float]


class PhaseTable(TomlTable):
    """A phase; the keys `users` and `rate` are read by `read_levels`, because they depend on the kind."""

    name: Text = fields.text(default=...)
    kind: Annotated[str, fields.one_of(KINDS)] = fields.choice(KINDS, default=...)
    duration: DurationField = fields.duration(default=...)
    users: object = None
    rate: object = None
    arrival: Annotated[str, fields.one_of(get_args(Arrival))] | None = fields.choice(get_args(Arrival))
    steps: int | None = fields.whole(2, MAX_STEPS)

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        """What belongs to the other kinds and to the other unit is left out."""
        kind = table.get("kind")
        if kind == STEPS and "steps" not in table:
            yield ("steps",), "is missing; give the number of steps"
        elif "kind" in table and "kind" not in faulty and kind != STEPS and "steps" in table:
            yield ("steps",), f"belongs to the kind 'steps'; leave it out of a phase of kind {kind!r}"
        given = units_of(table)
        if len(given) != 1:
            more = "not both" if given else "callers at the same time, or calls begun a second"
            yield ("users",), f"give either users or rate: {more}"
        elif given == ["users"] and "arrival" in table and "arrival" not in faulty:
            yield ("arrival",), "belongs to a rate; give a rate, or leave it out"

    def phases(self, begin_s: float, levels: Levels) -> list[Phase]:
        """The phase that begins then; a hold for each of its steps, so that every level has figures of its own."""
        unit = units_of(dict.fromkeys(self.model_fields_set, True))[0]
        arrival = cast("Arrival", self.arrival or "poisson") if unit == "rate" else None
        if self.kind != STEPS:
            return [Phase(self.name, cast("Kind", self.kind), begin_s, self.duration.seconds, unit, *levels, arrival)]
        count = self.steps or 2
        each_s = self.duration.seconds / count
        parts: list[Phase] = []
        for number in range(count):
            level = levels[0] + (levels[1] - levels[0]) * number / (count - 1)
            level = float(round(level)) if unit == "users" else level
            name = f"{self.name} {number + 1}/{count}"
            parts.append(Phase(name, "hold", begin_s + number * each_s, each_s, unit, level, level, arrival))
        return parts


def units_of(table: Mapping[str, Any]) -> list[Unit]:
    """The units in which a phase says its level; one where it is sound."""
    return [unit for unit in _UNITS if unit in table]


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
        given = units_of(phase)
        if len(given) != 1:
            continue
        if unit is not None and given[0] != unit:
            sentence = f"the phases before give {unit}; a run has callers or arrivals, not both"
            yield (position, given[0]), sentence
        unit = unit or given[0]
        levels, faults = read_levels(phase, level)
        yield from (((position, *path), sentence) for path, sentence in faults)
        level = levels[1] if levels is not None else level


def read_levels(phase: Mapping[str, Any], before: float) -> tuple[Levels | None, list[tuple[Path, str]]]:
    """The levels of a phase at its start and at its end, or what is wrong with them; `before` it was that level."""
    kind, unit = phase.get("kind"), units_of(phase)[0]
    value = phase[unit]
    if kind not in KINDS:
        return None, []
    if kind not in ("ramp", STEPS):
        if isinstance(value, dict):
            return None, [((unit,), f"a phase of kind {kind!r} stays on one level; give a number")]
        one, faults = validated(_UsersLevel if unit == "users" else _RateLevel, {unit: value})
        if one is None:
            return None, [(fault.path, fault.sentence) for fault in faults]
        return (one.level(), one.level()), []
    if not isinstance(value, dict):
        example = f"{unit} = {{ from = 1, to = 5 }}"
        return None, [((unit,), f"a phase of kind {kind!r} goes from one level to another; write {example}")]
    ends, faults = validated(_ENDS[unit, kind], cast("dict[str, Any]", value))
    found = [((unit, *fault.path), fault.sentence) for fault in faults]
    if "from" not in value and kind == STEPS and not before:
        found.append(((unit, "from"), "is missing; no phase before gives it"))
    if ends is None or found:
        return None, found
    begin, end = ends.ends()
    return (before if begin is None else begin, end), []


def _more_than_0() -> Any:
    return Field(
        gt=0, le=MAX_RATE_PER_S, description=f"a number, more than 0 and at most {MAX_RATE_PER_S:g}, is expected"
    )


class _UsersLevel(TomlTable):
    users: int = Field(ge=1, le=MAX_USERS, description=f"a whole number from 1 to {MAX_USERS} is expected")

    def level(self) -> float:
        return float(self.users)


class _RateLevel(TomlTable):
    rate: float = _more_than_0()

    def level(self) -> float:
        return self.rate


class _Ends(TomlTable):
    def ends(self) -> tuple[float | None, float]:
        """Where it begins, None where it goes on from before, and where it ends."""
        begin, end = (getattr(self, name) for name in ("begin", "to"))
        return None if begin is None else float(begin), float(end)


_USERS_OR_NONE: Final = f"a whole number from 0 to {MAX_USERS} is expected"
_RATE_OR_NONE: Final = f"a number from 0 to {MAX_RATE_PER_S:g} is expected"


class _UsersRamp(_Ends):
    begin: int | None = Field(default=None, alias="from", ge=0, le=MAX_USERS, description=_USERS_OR_NONE)
    to: int = Field(ge=0, le=MAX_USERS, description=_USERS_OR_NONE)


class _UsersSteps(_Ends):
    begin: int | None = Field(default=None, alias="from", ge=0, le=MAX_USERS, description=_USERS_OR_NONE)
    to: int = Field(ge=1, le=MAX_USERS, description=f"a whole number from 1 to {MAX_USERS} is expected")


class _RateRamp(_Ends):
    begin: float | None = Field(default=None, alias="from", ge=0, le=MAX_RATE_PER_S, description=_RATE_OR_NONE)
    to: float = Field(ge=0, le=MAX_RATE_PER_S, description=_RATE_OR_NONE)


class _RateSteps(_Ends):
    begin: float | None = Field(default=None, alias="from", ge=0, le=MAX_RATE_PER_S, description=_RATE_OR_NONE)
    to: float = _more_than_0()


_ENDS: Final[dict[tuple[Unit, str], type[_Ends]]] = {
    ("users", "ramp"): _UsersRamp,
    ("users", STEPS): _UsersSteps,
    ("rate", "ramp"): _RateRamp,
    ("rate", STEPS): _RateSteps,
}
