"""How callers behaved, in words: who hung up, who interrupted and what came of it, who was silent."""

from loadtest.reports import wording
from telemetry.store.answers import Summary


def behaviour_rows(summary: Summary) -> list[tuple[str, str]]:
    """A row for each thing that callers did in this run; none for what they did not."""
    told, turns = summary.behaviour, summary.turns
    rows: list[tuple[str, str]] = []
    if turns.abandoned:
        rows.append(("abandoned", f"{wording.percent(turns.abandoned_share)} of {wording.turns(turns.eligible)}"))
    if told.barge_ins or told.barge_ins_missed:
        rows.append(("barge-in", _barge_in(summary)))
    if told.backchannels:
        stopped = wording.number(told.backchannels_stopped)
        rows.append(
            ("backchannel", f"{wording.number(told.backchannels)} said, the reply stopped at {stopped} of them")
        )
    if told.silent_turns:
        asked = wording.number(told.reprompted)
        rows.append(("silence", f"{wording.turns(told.silent_turns)} without a word, asked again in {asked} of them"))
    if told.intents_expected:
        rows.append(("intent", _intent(summary)))
    return rows


def _barge_in(summary: Summary) -> str:
    told, stop = summary.behaviour, summary.metrics.get("barge_in_stop")
    parts = [f"{wording.number(told.barge_ins)} interruption{'' if told.barge_ins == 1 else 's'}"]
    if told.barge_ins:
        parts.append(f"{wording.percent(told.recovered_share)} answered after it")
    if stop is not None and stop.n:
        parts.append(f"stopped within {wording.statistic(stop, 'p50')} (p50), {wording.statistic(stop, 'p95')} (p95)")
    elif told.barge_ins:
        parts.append("no stop was measured")
    if told.barge_ins_missed:
        parts.append(f"{wording.number(told.barge_ins_missed)} more came too late for the reply")
    return ", ".join(parts)


def _intent(summary: Summary) -> str:
    told = summary.behaviour
    if not told.intents_reported:
        return "not reported by the endpoint"
    return (
        f"{wording.percent(told.intent_agreement)} as expected, of {wording.turns(told.intents_reported)} "
        f"that reported one ({wording.number(told.intents_expected)} expected one)"
    )
