"""The outcome of a run: the exit code and the sentence that explains it, from the run's figures alone.

In order of precedence, the first that applies:

| code | when |
|---|---|
| 130 interrupted | somebody stopped the run; the results so far are kept |
| 5 unreachable | calls were started and not one of them reached a ready session, or the target could not be |
|               | reached before the first call                                                               |
| 4 generator-limited | a process of the generator was lost, or its workers were not heard of for too long,     |
|                     | callers were asked for and not one call began, or no objective is missed and one is     |
|                     | undecided because of turns that were not said as recorded, or that a fault of ours      |
|                     | spoiled, and of calls that were due and never began                                     |
| 3 objective missed | one is missed, whatever else is undecided; or the service kept so many calls that others that   |
|                    | were due never began                                                                     |
| 6 undecided | none is missed, and one has too few turns (or calls) or cannot be observed, or open turns could |
|             | turn it (lost, cut, interrupted, not stated, of uncertain speech bounds); or not one turn came |
| 0 ok | everything asked for is shown to be met |
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.exit_codes import ExitCode
from loadtest.protocols.address import public_target
from loadtest.reports.run_info import RunInfo
from telemetry.model import formatting
from telemetry.objectives.judgment import Judgment
from telemetry.objectives.slo import Verdict
from telemetry.store.answers import Summary
from telemetry.store.questions.conversations import unreached_reason
from telemetry.store.questions.runs import NOT_AS_ASKED, calls_not_begun, loss_of_processes
from telemetry.store.questions.verdicts import KEPT_BY_THE_SERVICE, calls_kept

# A process that used less than this share of its core was late for another reason, which more processes do not mend.
SHORT_OF_CPU: Final = 0.5
# A sentence names so many objectives.
_MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The exit code of a run and why, as one sentence."""

    code: ExitCode
    reason: str


def run_outcome_for(*, run: RunInfo, summary: Summary, verdicts: Sequence[Verdict]) -> RunOutcome:
    """Return how the run ends; see the table above."""
    turns = summary.turns
    if run.interrupted:
        return RunOutcome(ExitCode.INTERRUPTED, f"the run was interrupted after {formatting.turns(turns.total)}")
    if summary.unreached is not None:
        return RunOutcome(ExitCode.UNREACHABLE, summary.unreached)
    if run.calls_started and run.calls_connected == 0 and run.calls_started > run.calls_prevented:
        reason = unreached_reason(run.calls_started, public_target(run.target), run.connect_failure)
        return RunOutcome(ExitCode.UNREACHABLE, reason)
    if limit := load_not_as_asked(run):
        return RunOutcome(ExitCode.GENERATOR_LIMITED, limit)
    if turns.total == 0 and summary.ramp_turns:
        return RunOutcome(
            ExitCode.UNDECIDED,
            f"nothing is shown: all {formatting.turns(summary.ramp_turns)} began during a ramp, over which no figures"
            " are taken; run longer, or let the callers come faster",
        )
    if turns.total == 0:
        return _without_turns(run, summary, verdicts)
    run_outcome = _objectives(run, summary, verdicts)
    not_begun = _not_begun(run, summary)
    if not_begun and calls_kept(summary, verdicts) is not None:
        return RunOutcome(ExitCode.OBJECTIVE_MISSED, f"{run_outcome.reason}; {not_begun}, {KEPT_BY_THE_SERVICE}")
    return run_outcome


def load_not_as_asked(run: RunInfo) -> str | None:
    """Return why the load was not what was asked for, so that no objective is judged; None where it was."""
    fault = generator_loss(run)
    return None if fault is None else f"{fault}; {NOT_AS_ASKED}"


def _without_turns(run: RunInfo, summary: Summary, verdicts: Sequence[Verdict]) -> RunOutcome:
    """Return how a run ends that has no turn, and what is known of why."""
    nothing = "no turn was measured, so nothing is shown"
    if summary.loss.missing:
        return RunOutcome(
            ExitCode.UNDECIDED, f"{nothing}: {formatting.turns(summary.loss.missing)} are known to be lost"
        )
    if run.calls_started == 0 and run.arrivals == "closed" and not run.is_under_way:
        return RunOutcome(
            ExitCode.GENERATOR_LIMITED,
            f"{nothing}: the generator began no call before the run ended; run longer, or leave it more of the machine",
        )
    if any(verdict.is_generator_limited for verdict in verdicts):
        return RunOutcome(ExitCode.GENERATOR_LIMITED, f"{nothing}: {_not_begun(run, summary) or _remedy(run)}")
    return RunOutcome(ExitCode.UNDECIDED, nothing)


def exhausted(summary: Summary) -> str | None:
    """Return what this machine had no more of, and what to do, where that made most of the invalid turns; else None."""
    failures = [
        failure
        for failure in summary.failures
        if failure.kind == "generator" and failure.code in errno.errorcode.values()
    ]
    if not failures or 2 * sum(failure.turns for failure in failures) < summary.turns.invalid:
        return None
    return failures[0].example


def _remedy(run: RunInfo) -> str:
    """Return what to do where the generator was the limit, by how busy its processes were."""
    used = run.busiest_cpu_ratio
    if used is None:
        return "use fewer callers or more processes"
    alone = run.processes == 1
    busy = f"{'its one process' if alone else f'the busiest of its {run.processes} processes'} used"
    busy += f" {formatting.percent(used)} of a core"
    if used < SHORT_OF_CPU:
        return f"{busy}, so something else held it up: leave it more of the machine, or use fewer callers"
    if run.cores is not None and run.processes >= run.cores:
        cores = formatting.count(run.cores, "core")
        return f"{busy}, and there {'is' if run.cores == 1 else 'are'} {cores}: use fewer callers, or several machines"
    calibrated = (run.calibration.processes if run.calibration is not None else None) or 0
    return f"{busy}: use more processes (--processes {max(run.processes + 1, calibrated)}), or fewer callers"


def _too_few_calls(run: RunInfo, summary: Summary, open_turns: int) -> str | None:
    """Return what to do where most of the generator's open turns are calls that never began; else None."""
    not_begun = _not_begun(run, summary)
    if not_begun is None or summary.starts is None or 2 * summary.starts.dropped < open_turns:
        return None
    return f"{not_begun}: allow more calls, or ask for a lower rate"


def _not_begun(run: RunInfo, summary: Summary) -> str | None:
    """Return how many calls that were due did not begin, and why, as half a sentence; None where all did."""
    not_begun = calls_not_begun(summary.starts)
    if not_begun is None:
        return None
    limit = "as many calls as --max-calls allows" if run.max_calls is None else f"--max-calls {run.max_calls}"
    return f"{not_begun} because {limit} were under way"


def generator_loss(run: RunInfo) -> str | None:
    """The part of the generator that was lost and what it took along, as half a sentence; None when nothing was."""
    if run.lost:
        return loss_of_processes(run.lost, run.processes)
    if run.killed_by:
        return f"the generator's first process was ended by {run.killed_by}"
    if run.workers_missing:
        return "the generator's first process lost contact with its workers: they were held up for too long"
    return None


def _named(names: Sequence[str], of: int) -> str:
    """The objectives by their names while they are few; all of them are listed above or below with their verdicts."""
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} of {of} objectives"


def _name(verdict: Verdict) -> str:
    """An objective in a sentence: its name for people is a sentence itself."""
    return verdict.name if verdict.display_name is None else f"“{verdict.display_name}”"


def _objectives(run: RunInfo, summary: Summary, verdicts: Sequence[Verdict]) -> RunOutcome:
    missed = [_name(verdict) for verdict in verdicts if verdict.met is False]
    undecided = [_name(verdict) for verdict in verdicts if verdict.met is None]
    limited = [verdict for verdict in verdicts if verdict.is_generator_limited]
    if limited and not missed:
        most = max(verdict.open.get(Judgment.GENERATOR.value, 0) for verdict in limited)
        return RunOutcome(
            ExitCode.GENERATOR_LIMITED,
            f"{_named([_name(verdict) for verdict in limited], len(verdicts))} undecided because of"
            f" {formatting.turns(most)} that the load generator held up, did not say as recorded or could not begin;"
            f" {_too_few_calls(run, summary, most) or exhausted(summary) or _remedy(run)}",
        )
    if missed or undecided:
        parts = [f"{_named(missed, len(verdicts))} missed"] if missed else []
        parts += [f"{_named(undecided, len(verdicts))} undecided"] if undecided else []
        turns = summary.turns
        # A few turns decide nothing, but that the service answered none of them has to be said.
        parts += (
            [f"not one of {formatting.turns(turns.eligible)} was answered well"]
            if turns.eligible and not turns.ok
            else []
        )
        unread = turns.endpoint_did_not_read
        parts += [f"the endpoint did not read what was said in {formatting.turns(unread)}"] if unread else []
        return RunOutcome(ExitCode.OBJECTIVE_MISSED if missed else ExitCode.UNDECIDED, "; ".join(parts))
    if not verdicts:
        return RunOutcome(ExitCode.OK, "no objective was asked for")
    return RunOutcome(
        ExitCode.OK, "the objective is met" if len(verdicts) == 1 else f"all {len(verdicts)} objectives are met"
    )
