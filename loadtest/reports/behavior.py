"""How callers behaved, in words: who hung up, who interrupted and what came of it, who was silent."""

from loadtest.reports import figures
from telemetry.model import formatting
from telemetry.store.answers import Summary


def behavior_rows(summary: Summary) -> list[tuple[str, str]]:
    """A row for each thing that callers did in this run; none for what they did not."""
    behavior, turns = summary.behavior, summary.turns
    rows: list[tuple[str, str]] = []
    if turns.abandoned:
        rows.append(("abandoned", f"{formatting.percent(turns.abandoned_share)} of {formatting.turns(turns.eligible)}"))
    if behavior.barge_ins or behavior.barge_ins_missed:
        rows.append(("barge-in", _barge_in(summary)))
    if behavior.backchannels:
        stopped = formatting.number(behavior.backchannels_stopped)
        rows.append(
            ("backchannel", f"{formatting.number(behavior.backchannels)} said, the reply stopped at {stopped} of them")
        )
    if behavior.silent_turns:
        asked = formatting.number(behavior.reprompted)
        rows.append(
            (
                "silence",
                f"{formatting.turns(behavior.silent_turns)} without a word, asked again in {asked} of them",
            )
        )
    if behavior.intents_expected:
        rows.append(("intent", _intent(summary)))
    return rows


def _barge_in(summary: Summary) -> str:
    behavior, stop = summary.behavior, summary.metrics.get("barge_in_stop")
    parts = [f"{formatting.number(behavior.barge_ins)} interruption{'' if behavior.barge_ins == 1 else 's'}"]
    if behavior.barge_ins:
        parts.append(f"{formatting.percent(behavior.recovered_share)} answered after it")
    if stop is not None and stop.n:
        within = f"{figures.statistic(stop, 'p50')} (p50), {figures.statistic(stop, 'p95')} (p95)"
        parts.append(f"{formatting.number(stop.n)} stopped within {within}")
    elif behavior.barge_ins:
        parts.append("no stop was measured")
    ends = (
        (behavior.barge_ins_not_stopped, "never stopped"),
        (behavior.barge_ins_ended, "ended by itself"),
        (behavior.barge_ins_unclear, "cannot tell"),
    )
    parts += [f"{formatting.number(count)} {label}" for count, label in ends if count]
    if behavior.barge_ins_missed:
        parts.append(f"{formatting.number(behavior.barge_ins_missed)} more came too late for the reply")
    return ", ".join(parts)


def _intent(summary: Summary) -> str:
    behavior = summary.behavior
    if not behavior.intents_reported:
        return "not reported by the endpoint"
    return (
        f"{formatting.percent(behavior.intent_accuracy)} as expected, of {formatting.turns(behavior.intents_reported)} "
        f"that reported one ({formatting.number(behavior.intents_expected)} expected one)"
    )
