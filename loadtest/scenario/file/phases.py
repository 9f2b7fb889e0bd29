"""The sections `[[phases]]`: how much load there is, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from loadtest.scenario.file.section import Section

Kind = Literal["smoke", "ramp", "hold", "spike", "soak", "recovery"]
Unit = Literal["users", "rate"]
Arrival = Literal["constant", "poisson"]

STEPS: Final = "steps"  # becomes a hold for each step, so that every level has figures of its own
KINDS: Final = (*get_args(Kind), STEPS)
MAX_USERS: Final = 100_000
MAX_RATE_PER_S: Final = 10_000.0
MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run. From `begin_s` on, for `duration_s`, the load goes in a line from one level to the other.

    Levels are callers at the same time, or (unit "rate") calls begun a second whatever the earlier calls do.
    """

    name: str
    kind: Kind
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


def read_phases(sections: Sequence[Section]) -> tuple[Phase, ...]:
    """Read all phases, each from its section. Faults go to the sections; then what is given back is not to be used."""
    phases: list[Phase] = []
    names: set[str] = set()
    begin_s, level, unit = 0.0, 0.0, None
    for section in sections:
        name, kind = section.text("name"), section.text("kind", one_of=KINDS)
        for key in ("name", "kind", "duration"):
            if key not in section:
                section.fault(key, "is missing")
        duration = section.duration("duration")
        if name is not None and name in names:
            section.fault("name", f"{name!r} is given twice: every phase has figures of its own")
        names.add(name or "")
        found = _unit(section, unit)
        unit = unit or found
        arrival = _arrival(section, found)
        levels = _levels(section, found, kind, level)
        count = section.integer("steps", 2, MAX_STEPS) or 2
        if kind == STEPS and "steps" not in section:
            section.fault("steps", "is missing: give the number of steps")
        elif kind not in (STEPS, None) and "steps" in section:
            section.fault("steps", f"is not supported in a phase of kind {kind!r}")
        section.close()
        if name is None or kind is None or duration is None or found is None or levels is None:
            continue
        level, duration_s = levels[1], duration.seconds
        shape = (begin_s, duration_s, found, *levels, arrival)
        phases += _steps(name, count, *shape) if kind == STEPS else [Phase(name, cast("Kind", kind), *shape)]
        begin_s += duration_s
    return tuple(phases)


def _unit(section: Section, before: Unit | None) -> Unit | None:
    given: list[Unit] = [unit for unit in get_args(Unit) if unit in section]
    for unit in get_args(Unit):
        section.get(unit)
    if len(given) != 1:
        more = "not both" if given else "callers at the same time, or calls begun a second"
        section.fault("users", f"give either users or rate: {more}")
        return None
    if before is not None and given[0] != before:
        section.fault(given[0], f"the phases before give {before}: a run has callers or arrivals, not both")
    return given[0]


def _arrival(section: Section, unit: Unit | None) -> Arrival | None:
    arrival = section.text("arrival", one_of=get_args(Arrival))
    if arrival is not None and unit == "users":
        section.fault("arrival", "requires rate, not users")
    return cast("Arrival", arrival or "poisson") if unit == "rate" else None


def _levels(section: Section, unit: Unit | None, kind: str | None, before: float) -> tuple[float, float] | None:
    """The levels at the start and at the end."""
    if unit is None or kind is None:
        return None
    if kind not in ("ramp", STEPS):
        if isinstance(section.get(unit), dict):
            section.fault(unit, f"a phase of kind {kind!r} stays on one level: give a number")
            return None
        level = _level(section, unit, unit)
        return None if level is None else (level, level)
    if not isinstance(section.get(unit), dict):
        section.fault(unit, f"a phase of kind {kind!r} goes from one level to another: {unit} = {{ from = 1, to = 5 }}")
        return None
    ends = section.table(unit)
    if ends is None:
        return None
    begin = _level(ends, "from", unit, zero=True) if "from" in ends else before
    end = _level(ends, "to", unit, zero=kind == "ramp")
    if "to" not in ends:
        ends.fault("to", "is missing")
    if "from" not in ends and kind == STEPS and not before:
        ends.fault("from", "is missing: no phase before gives it")
    ends.get("from")
    ends.close()
    return None if begin is None or end is None else (begin, end)


def _level(section: Section, key: str, unit: Unit, *, zero: bool = False) -> float | None:
    if unit == "users":
        users = section.integer(key, 0 if zero else 1, MAX_USERS)
        return None if users is None else float(users)
    return section.number(key, 0, MAX_RATE_PER_S, above=not zero)


def _steps(
    name: str,
    count: int,
    begin_s: float,
    duration_s: float,
    unit: Unit,
    level_from: float,
    level_to: float,
    arrival: Arrival | None,
) -> list[Phase]:
    """A hold for each step, so that every level has figures of its own."""
    each_s = duration_s / count
    parts: list[Phase] = []
    for number in range(count):
        level = level_from + (level_to - level_from) * number / (count - 1)
        level = float(round(level)) if unit == "users" else level
        part = f"{name} {number + 1}/{count}"
        parts.append(Phase(part, "hold", begin_s + number * each_s, each_s, unit, level, level, arrival))
    return parts
