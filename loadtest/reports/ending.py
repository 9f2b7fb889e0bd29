"""How a run ends: the exit code and the sentence that explains it, from the run's figures alone.

In order of precedence, the first that applies:

| code | when |
|---|---|
| 130 interrupted | somebody stopped the run; the results so far are kept |
| 5 unreachable | calls were started and not one of them reached a ready session |
| 4 generator-limited | a process of the generator was lost, more than 1 % of the calls that were due never     |
|                     | began, or more than 1 % of the turns are invalid: the tool blames itself first          |
| 3 objective missed | one is missed or not shown, or would be were every lost turn a bad one; or not one turn came |
| 0 ok | everything asked for is shown to be met |
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.caller.address import public_target
from loadtest.exit_codes import ExitCode
from loadtest.reports.facts import RunFacts
from telemetry.slo import Verdict
from telemetry.store.answers import INVALID_SHARE_LIMIT, Summary


@dataclass(frozen=True, slots=True)
class Ending:
    """The exit code of a run and why, as one sentence."""

    code: ExitCode
    reason: str


def survives_loss(verdict: Verdict, missing: int) -> bool:
    """Whether a met objective would still be met if every turn known to be lost had been a bad one."""
    if not missing:
        return True
    return verdict.good >= verdict.target * (verdict.eligible + missing)


def ending_for(*, run: RunFacts, summary: Summary, verdicts: Sequence[Verdict]) -> Ending:
    """How the run ends; see the table above."""
    turns = summary.turns
    if run.interrupted:
        return Ending(ExitCode.INTERRUPTED, f"the run was interrupted after {_turns(turns.total)}")
    if run.calls_started and run.calls_connected == 0:
        said = f": {run.connect_failure}" if run.connect_failure else ""
        return Ending(
            ExitCode.UNREACHABLE,
            f"none of {run.calls_started} calls reached a session at {public_target(run.target)}{said}",
        )
    if fault := generator_loss(run):
        return Ending(ExitCode.GENERATOR_LIMITED, f"{fault}; the load was not what was asked for")
    starts = summary.starts
    if starts is not None and starts.missed > INVALID_SHARE_LIMIT * starts.planned:
        limit = "as many calls as --max-calls allows" if run.max_calls is None else f"--max-calls {run.max_calls}"
        return Ending(
            ExitCode.GENERATOR_LIMITED,
            f"{starts.missed} of {starts.planned} calls that were due never began because {limit} were under way: the"
            " load was not what was asked for; allow more calls, or ask for a lower rate",
        )
    if turns.is_generator_limited:
        return Ending(
            ExitCode.GENERATOR_LIMITED,
            f"{turns.invalid} of {_turns(turns.total)} are invalid, more than {INVALID_SHARE_LIMIT:.0%}: the generator"
            " was the limit, not the service; use fewer callers or more processes",
        )
    if turns.total == 0 and summary.ramp_turns:
        return Ending(
            ExitCode.OBJECTIVE_MISSED,
            f"nothing is shown: all {_turns(summary.ramp_turns)} began during a ramp, over which no figures are taken;"
            " run longer, or let the callers come faster",
        )
    if turns.total == 0:
        return Ending(ExitCode.OBJECTIVE_MISSED, "no turn was measured, so nothing is shown")
    return _objectives(summary, verdicts)


def generator_loss(run: RunFacts) -> str | None:
    """Which part of the generator was lost and what it took along, as half a sentence; None when nothing was."""
    if not run.lost:
        return f"the generator's first process was ended by {run.killed_by}" if run.killed_by else None
    lost, of = len(run.lost), max(run.processes, len(run.lost))
    verb, whose = ("was", "its") if lost == 1 else ("were", "their")
    text = f"{lost} of {of} generator process{'es' if of > 1 else ''} {verb} lost"
    times = [f"{process.after_s:.0f} s" for process in run.lost if process.after_s is not None]
    if times:
        text += f" after {' and '.join(times)}"
    cut = sum(process.calls_cut or 0 for process in run.lost)
    if cut:
        text += f": of {whose} {cut} call{'s' if cut > 1 else ''} in flight only the finished turns count"
    return text


def exit_code_for(*, run: RunFacts, summary: Summary, verdicts: Sequence[Verdict]) -> ExitCode:
    """The exit code of `ending_for`."""
    return ending_for(run=run, summary=summary, verdicts=verdicts).code


def _objectives(summary: Summary, verdicts: Sequence[Verdict]) -> Ending:
    missed = [verdict.name for verdict in verdicts if verdict.met is False]
    unknown = [verdict.name for verdict in verdicts if verdict.met is None]
    if missed or unknown:
        parts = [f"{', '.join(missed)} missed"] if missed else []
        parts += [f"{', '.join(unknown)} not shown"] if unknown else []
        return Ending(ExitCode.OBJECTIVE_MISSED, "; ".join(parts))
    missing = summary.loss.missing
    fragile = [verdict.name for verdict in verdicts if not survives_loss(verdict, missing)]
    if fragile:
        return Ending(
            ExitCode.OBJECTIVE_MISSED,
            f"{_turns(missing)} known to be lost could turn a met objective into a missed one: {', '.join(fragile)}",
        )
    if not verdicts:
        return Ending(ExitCode.OK, "no objective was asked for")
    return Ending(
        ExitCode.OK, "the objective is met" if len(verdicts) == 1 else f"all {len(verdicts)} objectives are met"
    )


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"
