"""Whether the figures of a list of runs can be trusted, as one chip and in sentences behind it. Pure.

Runs that go on are left out: their figures change at every look, and nothing is claimed of them yet.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from dashboard.header import fact, lines_of_details
from dashboard.runs_tables import began
from dashboard.trust import Part, Trust, trust_of
from telemetry.model.formatting import NS_PER_MS, count, declared_milliseconds, number, turns
from telemetry.store.run_folders.entries import SERVICE_SOURCE, RunEntry

# So many runs are named in a sentence; the list has all of them.
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class RunsHead:
    """Which runs are listed, how far their figures can be trusted, and the details of that; texts are HTML."""

    overview: str
    trust: Trust
    details: str


def runs_head(listed: Sequence[RunEntry], of_all: int, zone: tzinfo) -> RunsHead:
    """What stands above a list of at least one run, `of_all` that there are."""
    return RunsHead(overview(listed, of_all, zone), runs_trust(listed), details(listed))


def overview(listed: Sequence[RunEntry], of_all: int, zone: tzinfo) -> str:
    """One line: which runs, how new, and how much of them; as HTML."""
    ended = _ended(listed)
    many = count(of_all, "run") if len(listed) == of_all else f"{number(len(listed))} of {count(of_all, 'run')}"
    going_on = len(listed) - len(ended)
    newest = max(listed, key=lambda each: each.listed_unix_ns)
    parts = (
        f"<span><b>{many}</b></span>",
        fact("newest began", began(newest, zone)),
        f"<span><b>{turns(sum(each.turns for each in ended))}</b></span>",
        *([f"<span>{count(going_on, 'run')} under way, not counted</span>"] if going_on else []),
    )
    return f'<div class="vp vp-facts">{"".join(parts)}</div>'


def runs_trust(listed: Sequence[RunEntry]) -> Trust:
    """The chip: each part says what is wrong with it, or that nothing is."""
    ended = _ended(listed)
    heard = _heard(ended)
    parts = [_validity(ended), *([_telemetry(_with_figures(ended))] if _with_figures(ended) else [])]
    parts += [_calibration(heard)] if heard else []
    return trust_of(parts)


def details(listed: Sequence[RunEntry]) -> str:
    """What stands behind the chip, with the runs that weaken it; as HTML."""
    ended = _ended(listed)
    figures, heard = _with_figures(ended), _heard(ended)
    lines = [fact("runs", _states(listed))]
    lines += [_turns(ended), _generator(ended)] if ended else []
    lines += [_damage(ended)] if any(map(_is_damaged, ended)) else []
    lines += [_reported(ended)] if any(map(_is_reported, ended)) else []
    lines += [fact("telemetry", _loss(figures), _telemetry(figures)[0])] if figures else []
    lines += [fact("calibration", _bounds(heard), _calibration(heard)[0])] if heard else []
    return lines_of_details(lines)


def _ended(listed: Iterable[RunEntry]) -> list[RunEntry]:
    return [each for each in listed if each.state != "under way"]


def _with_figures(runs: Iterable[RunEntry]) -> list[RunEntry]:
    """A run without a turn, whose target was never reached, has nothing that can be lost or measured badly."""
    return [each for each in runs if each.turns or each.missing_turns]


def _heard(runs: Iterable[RunEntry]) -> list[RunEntry]:
    """What a service reports is not measured by the instrument."""
    return [each for each in _with_figures(runs) if not _is_reported(each)]


def _is_damaged(run: RunEntry) -> bool:
    return run.state == "damaged" or run.fault is not None


def _is_reported(run: RunEntry) -> bool:
    return run.source == SERVICE_SOURCE


def _validity(ended: Sequence[RunEntry]) -> Part:
    limited, damaged = sum(each.is_generator_limited for each in ended), sum(map(_is_damaged, ended))
    weak = [_of(limited, len(ended), "generator-limited")] if limited else []
    # What it is one of has been said where both are.
    weak += [f"{number(damaged)} damaged" if limited else _of(damaged, len(ended), "damaged")] if damaged else []
    total, invalid = sum(each.turns for each in ended), sum(each.invalid for each in ended)
    reported = sum(map(_is_reported, ended))
    if weak:
        return "missed", ", ".join(weak)
    if not total:
        return "unknown", "no turns" if ended else "no run has ended"
    if invalid:
        return "unknown", f"{number(invalid)} of {turns(total)} invalid"
    if reported:
        return "unknown", _of(reported, len(ended), "reported, not heard")
    return "met", "valid"


def _of(some: int, of_all: int, what: str) -> str:
    """`2 of 8 runs damaged`; of one run only what it is."""
    return what if of_all == 1 else f"{number(some)} of {count(of_all, 'run')} {what}"


def _telemetry(figures: Sequence[RunEntry]) -> Part:
    lossy = sum(bool(each.missing_turns) for each in figures)
    unknown = sum(each.missing_turns is None for each in figures)
    of_all = count(len(figures), "run")
    if lossy and len(figures) == 1:
        return "missed", f"{count(figures[0].missing_turns or 0, 'turn')} lost"
    if lossy:
        beside = f", not known for {number(unknown)}" if unknown else ""
        return "missed", f"telemetry lost in {number(lossy)} of {of_all}{beside}"
    if unknown == len(figures):
        return "unknown", "telemetry loss not known"
    if unknown:
        return "unknown", f"telemetry loss not known for {number(unknown)} of {of_all}"
    return "met", "telemetry complete"


def _calibration(heard: Sequence[RunEntry]) -> Part:
    bounds = [each.calibrated_to_ms for each in heard if each.calibrated_to_ms is not None]
    if len(bounds) == len(heard):
        return "met", f"calibrated ± {_bound(max(bounds))}"
    return "unknown", f"{_of(len(bounds), len(heard), 'calibrated')}" if bounds else "not calibrated"


def _bound(ms: float) -> str:
    return declared_milliseconds(ms * NS_PER_MS)


def _states(listed: Sequence[RunEntry]) -> str:
    names = dict.fromkeys(each.state for each in sorted(listed, key=lambda each: each.state))
    return ", ".join(f"{number(sum(each.state == name for each in listed))} {name}" for name in names)


def _turns(ended: Sequence[RunEntry]) -> str:
    total, invalid = sum(each.turns for each in ended), [each for each in ended if each.invalid]
    if not total:
        return fact("turns", "none", "unknown")
    if not invalid:
        return fact("turns", f"none of {turns(total)} invalid", "met")
    many = number(sum(each.invalid for each in invalid))
    return fact("turns", f"{many} of {turns(total)} invalid, in {_named(invalid)}", "unknown")


def _generator(ended: Sequence[RunEntry]) -> str:
    limited = [each for each in ended if each.is_generator_limited]
    if not limited:
        return fact("generator", "the limit in no run", "met")
    return fact("generator", f"the limit in {_named(limited)}: nothing is claimed about the service", "missed")


def _damage(ended: Sequence[RunEntry]) -> str:
    return fact("damaged", f"{_named([each for each in ended if _is_damaged(each)])}", "missed")


def _reported(ended: Sequence[RunEntry]) -> str:
    named = _named([each for each in ended if _is_reported(each)])
    return fact("source", f"{named}: reported by the service, heard by no caller of ours", "unknown")


def _loss(figures: Sequence[RunEntry]) -> str:
    def those(which: Callable[[RunEntry], bool]) -> list[RunEntry]:
        return [each for each in figures if which(each)]

    complete = those(lambda each: each.missing_turns == 0)
    lossy = those(lambda each: bool(each.missing_turns))
    unknown = those(lambda each: each.missing_turns is None)
    lost = count(sum(each.missing_turns or 0 for each in lossy), "turn")
    parts = (
        f"{lost} lost on the way in {_named(lossy)}" if lossy else "",
        f"nothing lost in {count(len(complete), 'run')}" if complete else "",
        f"not known for {_named(unknown)}: no process said how many turns it sent" if unknown else "",
    )
    return "; ".join(filter(None, parts))


def _bounds(heard: Sequence[RunEntry]) -> str:
    calibrated = [each for each in heard if each.calibrated_to_ms is not None]
    others = [each for each in heard if each.calibrated_to_ms is None]
    parts: list[str] = []
    if calibrated:
        widest = max(calibrated, key=lambda each: each.calibrated_to_ms or 0)
        bound = _bound(widest.calibrated_to_ms or 0)
        many = count(len(calibrated), "run")
        parts.append(f"{many} calibrated, to ± {bound} at the widest ({widest.title})")
    if others:
        parts.append(f"no calibration for {_named(others)}")
    return "; ".join(parts)


def _named(runs: Sequence[RunEntry]) -> str:
    """`2 runs (base, slow)`: how many, and the first of them by name."""
    names = [each.title for each in runs[:_MOST_NAMED]]
    more = [f"{number(len(runs) - _MOST_NAMED)} more"] if len(runs) > _MOST_NAMED else []
    return f"{count(len(runs), 'run')} ({', '.join([*names, *more])})"
