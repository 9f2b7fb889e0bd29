"""A run from the `summary.json` that its command left in its folder: no store has to be opened for it."""

from typing import Final

import msgspec

from telemetry.model.formatting import declared_decibels
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns
from telemetry.store.run_folders.places import SUMMARY_NAME, StorePlace

_NS_PER_S: Final = 1e9
_MS_PER_S: Final = 1e3
_GENERATOR_LIMITED: Final = 4
# By the exit code that the command ended with, as the reference of exit codes says.
_STATES: Final[dict[int, EntryState]] = {
    0: "met",
    1: "failed",
    3: "missed",
    _GENERATOR_LIMITED: "not judged",
    5: "unreachable",
    6: "undecided",
    130: "interrupted",
}


class _Profile(msgspec.Struct):
    noise: str | None = None
    snr_db: float | None = None
    channel: str | None = None


class _Run(msgspec.Struct):
    id: str
    source: str = "client"
    target: str | None = None
    protocol: str | None = None
    users: int | None = None
    scenario: str | None = None
    state: str = "ended"
    started_unix_ns: int | None = None
    profile: _Profile = msgspec.field(default_factory=_Profile)


class _CountedTurns(msgspec.Struct):
    total: int = 0
    invalid: int = 0


class _Figures(msgspec.Struct):
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None


class _Metrics(msgspec.Struct):
    voice_to_voice: _Figures = msgspec.field(default_factory=_Figures)


class _StatedVerdict(msgspec.Struct):
    state: str = ""
    sentence: str = ""


class _NamedCohort(msgspec.Struct):
    name: str


class _Telemetry(msgspec.Struct):
    emitted: int | None = None
    missing: int = 0


class _Calibration(msgspec.Struct):
    error_s: float | None = None


class _Generator(msgspec.Struct):
    limited: bool = False
    processes_lost: int = 0
    calibration: _Calibration | None = None


class _Summary(msgspec.Struct):
    run: _Run
    exit_code: int
    turns: _CountedTurns = msgspec.field(default_factory=_CountedTurns)
    metrics: _Metrics = msgspec.field(default_factory=_Metrics)
    exit_reason: str = ""
    verdict: _StatedVerdict | None = None
    cohorts: list[_NamedCohort] | None = None
    telemetry: _Telemetry | None = None
    generator: _Generator = msgspec.field(default_factory=_Generator)


class BadSummaryError(ValueError):
    """Raised for an invalid summary; the text says why."""


def read_summary(place: StorePlace) -> RunEntry | None:
    """The run of a folder's summary; None without a summary, or with one that was written during the run. Raises
    BadSummaryError, OSError."""
    if place.folder is None:
        return None
    file = place.folder / SUMMARY_NAME
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        summary = msgspec.json.decode(content, type=_Summary)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSummaryError(f"{SUMMARY_NAME} cannot be understood ({error})") from error
    if summary.run.state != "ended":
        return None
    run, figures, telemetry = summary.run, summary.metrics.voice_to_voice, summary.telemetry
    generator, calibration = summary.generator, summary.generator.calibration
    # Only objectives that the generator's own open turns leave undecided have no verdict.
    is_by_generator = summary.exit_code == _GENERATOR_LIMITED
    is_undecided = is_by_generator and summary.verdict is not None and summary.verdict.state == "undecided"
    is_limited = ((is_by_generator or generator.limited) and not is_undecided) or generator.processes_lost > 0
    return RunEntry(
        run_id=run.id,
        store=place.store,
        folder=str(place.folder),
        name=place.folder.name,
        state="undecided" if is_undecided else _STATES.get(summary.exit_code, "undecided"),
        began_unix_ns=run.started_unix_ns,
        target=run.target,
        protocol=run.protocol,
        source=run.source,
        users=run.users,
        scenario=run.scenario,
        profile=_profile(run.profile),
        turns=summary.turns.total,
        invalid=summary.turns.invalid,
        p50_ns=_ns(figures.p50_s),
        p95_ns=_ns(figures.p95_s),
        p99_ns=_ns(figures.p99_s),
        sentence=summary.verdict.sentence if summary.verdict is not None else summary.exit_reason,
        is_generator_limited=is_limited,
        cohorts=None if summary.cohorts is None else tuple(sorted(cohort.name for cohort in summary.cohorts)),
        missing_turns=None if telemetry is None else missing_turns(telemetry.emitted, telemetry.missing),
        calibrated_to_ms=None if calibration is None else _ms(calibration.error_s),
    )


def _profile(of: _Profile) -> str | None:
    noise = of.noise if of.noise is None or of.snr_db is None else f"{of.noise} {declared_decibels(of.snr_db)}"
    return ", ".join(part for part in (noise, of.channel) if part) or None


def _ms(seconds: float | None) -> float | None:
    """A bound as it was declared: it has few digits."""
    return None if not seconds else round(seconds * _MS_PER_S, 6)


def _ns(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _NS_PER_S
