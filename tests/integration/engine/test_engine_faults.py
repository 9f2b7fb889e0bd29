"""Faults of endpoints: each ends in the right outcome on the right turn and affects no other."""

import pytest

from telemetry.model.turns import Turn
from tests.integration.assistant.assistant_process import hosted
from tests.integration.calling import Callers
from tests.nightly import nightly_after

# fault, outcome of the calls that it hits, a part of the reason
CASES = (
    ("garbage", "error", "not JSON"),
    ("never-answer", "no_reply", "no answer within"),
    ("drop-mid-turn", "error", "the connection"),
    ("oversized-message", "invalid", "its own limit is 1 MiB"),
    ("unknown-messages", "ok", None),
    ("answer-before-question", "ok", None),
    ("wrong-rate", "error", "another sample rate"),
    ("half-open", "error", "did not open a session"),
    ("refuse", "error", "HTTP 503"),
    ("slow-accept", "ok", None),
)


def _hit(url: str, fault: str) -> list[Turn]:
    # Longer clips get longer answers, and the rate of a reply is only judged on a long one.
    length = "medium" if fault == "wrong-rate" else "short"
    # Patience ends only the calls to whom nothing comes: the others wait for as long as a busy machine needs.
    reply_s, ready_s = (6.0 if fault == "never-answer" else 60.0), (4.0 if fault == "half-open" else 60.0)
    callers = Callers(url, 6, length=length, reply_s=reply_s, ready_s=ready_s, max_message_bytes=2**20)
    return [turns[0] for turns in callers.call()]


@pytest.mark.parametrize(("fault", "outcome", "reason"), nightly_after(1, CASES), ids=[case[0] for case in CASES])
def test_fault_has_its_outcome_and_other_callers_are_unaffected(fault: str, outcome: str, reason: str | None) -> None:
    with hosted(fault=fault, fault_share=0.5) as url:
        turns = _hit(url, fault)
    outcomes = [turn.outcome for turn in turns]
    output = [(turn.outcome, turn.outcome_reason) for turn in turns]
    if outcome == "ok":
        assert outcomes == ["ok"] * 6, output
        return
    assert set(outcomes) == {"ok", outcome}, output
    for turn in turns:
        if turn.outcome == outcome:
            assert reason is not None
            assert reason in (turn.outcome_reason or ""), output
