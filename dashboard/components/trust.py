"""The head of a page: its data and their age, and whether its figures can be trusted, as one chip (valid · telemetry
complete · calibrated ± x ms) with its details. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from dashboard import descriptions
from dashboard.components.markup import SYMBOLS, Html, State, escape, fact, fact_line
from dashboard.links import TIME_LABELS
from telemetry.model.formatting import NS_PER_MS, count, declared_milliseconds, number, share, turns
from telemetry.model.services import REPORTED
from telemetry.store.answers import RunRecord, Summary, TelemetryLoss
from telemetry.store.questions.burn_rates import MeasuredTurns
from telemetry.store.run_folders.entries import SERVICE_SOURCE, RunEntry

# A state and its text.
Part = tuple[State, str]
_MOST_NAMED: Final = 3
_STATE_SHAPE: Final = {"live": "●", "stale": "◌", "ended": "■"}


def overview(
    run: RunRecord,
    summary: Summary,
    state: descriptions.State,
    now_unix_ns: int,
    zone: tzinfo,
    *,
    window: str | None = None,
) -> Html:
    """One line: which data is shown, its age, and its amount."""
    newest = summary.newest_unix_ns or run.last_unix_ns
    kind = {"live": "met", "stale": "missed", "ended": "unknown"}[state]
    described = descriptions.describe_state(state, newest, now_unix_ns, zone, is_service=run.service is not None)
    if state == "live":
        described += descriptions.describe_silence(summary.heard_unix_ns, now_unix_ns)
    known = f'<span><span class="vp-chip {kind}">{_STATE_SHAPE[state]} {state}</span> {escape(described)}</span>'
    many = f"<b>{turns(summary.turns.total)}</b>"
    time = "" if window is None else fact("time", TIME_LABELS[window])
    if run.service is None:
        about = [fact("run", run.run_id), fact("target", run.target or descriptions.UNKNOWN)]
    else:
        about = [fact("service", run.service.service), fact("day", f"{run.service.day.isoformat()} (UTC)")]
        many += f" {escape(summary.client_service_delta.reported)}"
    return fact_line([known, *about, time, f"<span>{many}</span>"])


@dataclass(frozen=True, slots=True)
class Trust:
    """The parts of the chip, each a weakness or the remark that there is none, and the lines of the details."""

    parts: Sequence[Part]
    lines: Sequence[Html]

    @property
    def state(self) -> State:
        """ "met" when nothing weakens the figures, "missed" when something does, else "unknown"."""
        states = {state for state, _ in self.parts}
        return "missed" if "missed" in states else "unknown" if "unknown" in states else "met"

    @property
    def label(self) -> str:
        """The chip."""
        return f"{SYMBOLS[self.state]} {' · '.join(text for _, text in self.parts)}"

    @property
    def details(self) -> Html:
        """The lines that open with the chip."""
        return fact_line(self.lines, "vp-details")


def trust(run: RunRecord, summary: Summary) -> Trust:
    """Describe how well the figures of a run were measured."""
    counted, is_service = summary.turns, run.service is not None
    lost, telemetry = _telemetry(summary.loss)
    validity = ("unknown", "reported, not heard") if is_service else _validity(counted.invalid, counted.total)
    if summary.limit is not None:
        validity = "missed", "generator-limited"
    delta = fact(
        "heard vs reported", descriptions.describe_client_service_delta(summary.client_service_delta, run.service)
    )
    odd = [fact(name, text, "unknown") for name, text in summary.contradictions.texts.items()]
    if is_service:
        return Trust([validity, telemetry], [*odd, delta])
    bound, unread = run.calibrated_to_ms, descriptions.describe_unread(counted)
    lines = (
        fact("protocol", run.protocol or descriptions.UNKNOWN),
        fact("corpus", descriptions.describe_corpus(run)),
        fact("turns", descriptions.describe_invalid(counted), validity[0] if counted.total else "met"),
        *([fact("endpoint", unread, "missed")] if unread else []),
        *odd,
        fact("telemetry", lost, telemetry[0]),
        delta,
        *(
            fact(line, descriptions.describe_generator(summary.generator, line))
            for line in ("generator", "its process")
        ),
        fact("speech bounds", descriptions.describe_speech_bounds(summary.speech_bounds)),
        fact("calibration", descriptions.describe_calibration(run)),
    )
    calibration: Part = ("met", f"calibrated ± {bound} ms") if bound else ("unknown", "not calibrated")
    return Trust([validity, telemetry, calibration], lines)


def _validity(invalid: int, total: int) -> Part:
    """Report that all turns are valid, or the number that are not."""
    if not total:
        return "unknown", "no turns"
    return ("unknown", f"{number(invalid)} of {count(total, 'turn')} invalid") if invalid else ("met", "valid")


def _telemetry(loss: TelemetryLoss | None) -> tuple[str, Part]:
    """Describe whether telemetry is complete, in a sentence and as a part of the chip; None is an unknown loss."""
    text, good = ("not known", None) if loss is None else descriptions.describe_loss(loss)
    if loss is None or good is None:
        return text, ("unknown", "telemetry loss not known")
    return text, ("met", "telemetry complete") if good else ("missed", f"{count(loss.missing, 'turn')} lost")


def turns_trust(measured: MeasuredTurns) -> Trust:
    """Describe how well the turns of many runs were measured."""
    evidence, counted, limited = measured.evidence, measured.counted, measured.limited
    lost, telemetry = _telemetry(evidence.loss)
    if evidence.loss is not None and telemetry[0] == "unknown" and evidence.runs > 1:
        lost = "no gap seen (not every run has said how many turns it sent)"
    runs = fact("runs", f"{count(evidence.runs, 'run')} with {count(counted.total, 'turn')} in 28 days")
    telemetry_fact = fact("telemetry", lost, telemetry[0])
    if measured.source == "service":
        return Trust(
            [("unknown", "reported, not heard"), telemetry], [runs, fact("turns", REPORTED, "unknown"), telemetry_fact]
        )
    validity = _validity(counted.invalid, counted.total)
    if counted.total and limited.runs and limited.turns == counted.valid:
        validity = "missed", "generator-limited"
    elif counted.total and limited.turns:
        of = f"{number(limited.turns)} of {count(counted.valid, 'turn')} of generator-limited runs"
        validity = "unknown", of
    invalid = f"{number(counted.invalid)} invalid ({share(counted.invalid, counted.total)}), which no figure counts"
    lines = [runs, fact("turns", invalid, "unknown") if counted.invalid else fact("turns", "none invalid", "met")]
    if limited.runs:
        limited_turns = f"{number(limited.turns)} of {count(counted.valid, 'valid turn')}"
        limit_text = f"{limited_turns} are of {count(limited.runs, 'generator-limited run')}"
        lines.append(fact("generator", limit_text, validity[0]))
    calibration: Part = ("met", f"calibrated ± {evidence.calibrated_to_ms} ms")
    calibrated, widest = (
        f"{number(evidence.calibrated)} of {count(evidence.runs, 'run')} calibrated",
        evidence.calibrated_to_ms,
    )
    text = f"{calibrated}, to ± {widest} ms or better"
    if not evidence.calibrated:
        text = "not calibrated"
        calibration = "unknown", text
    elif evidence.calibrated < evidence.runs:
        calibration = "unknown", calibrated
    elif evidence.runs == 1:
        text = f"calibrated to ± {widest} ms"
    return Trust([validity, telemetry, calibration], [*lines, telemetry_fact, fact("calibration", text)])


# Running runs of a list are left out: their figures change at every refresh, and they have no verdict yet.
def runs_overview(listed: Sequence[RunEntry], total: int, zone: tzinfo) -> Html:
    """One line: how many runs are listed, when the newest began, and how many turns they have."""
    ended = _ended(listed)
    many = count(total, "run") if len(listed) == total else f"{number(len(listed))} of {count(total, 'run')}"
    going_on = len(listed) - len(ended)
    newest = max(listed, key=lambda entry: entry.listed_unix_ns)
    parts = (
        f"<span><b>{many}</b></span>",
        fact("newest began", descriptions.began(newest, zone)),
        f"<span><b>{turns(sum(entry.turns for entry in ended))}</b></span>",
        *([f"<span>{count(going_on, 'run')} under way, not counted</span>"] if going_on else []),
    )
    return fact_line(parts)


def _ended(listed: Iterable[RunEntry]) -> list[RunEntry]:
    return [entry for entry in listed if entry.state != "under way"]


def runs_trust(listed: Sequence[RunEntry]) -> Trust:
    """Describe how well the listed runs were measured, and name those that were not measured well."""
    ended, states = _ended(listed), sorted({entry.state for entry in listed})
    total, invalid = sum(entry.turns for entry in ended), [entry for entry in ended if entry.invalid]
    limited = [entry for entry in ended if entry.is_generator_limited]
    damaged = [entry for entry in ended if entry.state == "damaged" or entry.fault is not None]
    reported = [entry for entry in ended if entry.source == SERVICE_SOURCE]
    validity = _validity(sum(entry.invalid for entry in invalid), total)
    weak = [_some_of(len(limited), len(ended), "generator-limited")] if limited else []
    # If both occur, the first part states the number of all runs.
    damaged_text = f"{number(len(damaged))} damaged" if limited else _some_of(len(damaged), len(ended), "damaged")
    weak += [damaged_text] if damaged else []
    if weak:
        validity = "missed", ", ".join(weak)
    elif not ended:
        validity = "unknown", "no run has ended"
    elif total and not invalid and reported:
        validity = "unknown", _some_of(len(reported), len(ended), "reported, not heard")
    lines = [fact("runs", ", ".join(f"{number(sum(e.state == name for e in listed))} {name}" for name in states))]
    if ended:
        many = f"{number(sum(entry.invalid for entry in invalid))} of {turns(total)} invalid, in {_named(invalid)}"
        good = f"none of {turns(total)} invalid" if total else "none"
        lines.append(fact("turns", many if total and invalid else good, "met" if total and not invalid else "unknown"))
        limit = f"the limit in {_named(limited)}: no verdict on the service"
        lines.append(fact("generator", limit, "missed") if limited else fact("generator", "the limit in no run", "met"))
    if damaged:
        lines.append(fact("damaged", _named(damaged), "missed"))
    if reported:
        source_text = f"{_named(reported)}: reported by the service, heard by no caller of ours"
        lines.append(fact("source", source_text, "unknown"))
    # A run without a turn, whose target was never reached, has nothing that can be lost or measured badly; what a
    # service reports is not measured by the instrument.
    figures = [entry for entry in ended if entry.turns or entry.missing_turns]
    heard = [entry for entry in figures if entry.source != SERVICE_SOURCE]
    rest = [*([_telemetry_of_runs(figures)] if figures else []), *([_calibration_of_runs(heard)] if heard else [])]
    return Trust([validity, *(part for part, _ in rest)], [*lines, *(line for _, line in rest)])


def _some_of(some: int, total: int, what: str) -> str:
    """`2 of 8 runs damaged`; for a list of one run only its state."""
    return what if total == 1 else f"{number(some)} of {count(total, 'run')} {what}"


def _telemetry_of_runs(figures: Sequence[RunEntry]) -> tuple[Part, Html]:
    complete = [entry for entry in figures if entry.missing_turns == 0]
    lossy = [entry for entry in figures if entry.missing_turns]
    unknown = [entry for entry in figures if entry.missing_turns is None]
    total, lost = count(len(figures), "run"), count(sum(entry.missing_turns or 0 for entry in lossy), "turn")
    part: Part = "met", "telemetry complete"
    if lossy:
        rest = f", not known for {number(len(unknown))}" if unknown else ""
        alone = f"{lost} lost" if len(figures) == 1 else f"telemetry lost in {number(len(lossy))} of {total}{rest}"
        part = "missed", alone
    elif unknown:
        some = "" if len(unknown) == len(figures) else f" for {number(len(unknown))} of {total}"
        part = "unknown", f"telemetry loss not known{some}"
    sentences = (
        f"{lost} lost on the way in {_named(lossy)}" if lossy else "",
        f"nothing lost in {count(len(complete), 'run')}" if complete else "",
        f"not known for {_named(unknown)}: no process said how many turns it sent" if unknown else "",
    )
    return part, fact("telemetry", "; ".join(filter(None, sentences)), part[0])


def _calibration_of_runs(heard: Sequence[RunEntry]) -> tuple[Part, Html]:
    others = [entry for entry in heard if entry.calibrated_to_ms is None]
    known, sentence = [entry for entry in heard if entry.calibrated_to_ms is not None], ""
    part: Part = "unknown", "not calibrated"
    if known:
        widest = max(known, key=lambda entry: entry.calibrated_to_ms or 0)
        bound = declared_milliseconds((widest.calibrated_to_ms or 0) * NS_PER_MS)
        sentence = f"{count(len(known), 'run')} calibrated, to ± {bound} at the widest ({widest.title})"
        some = _some_of(len(known), len(heard), "calibrated")
        part = ("unknown", some) if others else ("met", f"calibrated ± {bound}")
    rest = f"no calibration for {_named(others)}" if others else ""
    return part, fact("calibration", "; ".join(filter(None, (sentence, rest))), part[0])


def _named(runs: Sequence[RunEntry]) -> str:
    """`2 runs (base, slow)`: their number and the names of the first; the list has all names."""
    names = [entry.title for entry in runs[:_MOST_NAMED]]
    more = [f"{number(len(runs) - _MOST_NAMED)} more"] if len(runs) > _MOST_NAMED else []
    return f"{count(len(runs), 'run')} ({', '.join([*names, *more])})"
