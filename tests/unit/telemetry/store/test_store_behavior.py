"""The behavior of callers, counted in the store; silent turns and barge-ins move no figure that is not about them."""

from pathlib import Path
from typing import Any

import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective, count_turns, default_objectives
from telemetry.store.answers import Behavior
from tests.fixtures_turns import MS, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of

SILENT: dict[str, Any] = {"voice_to_voice_ms": None, "turn_kind": "silence", "silence_ns": 3_000 * MS}


def _turn(index: int, **fields: Any) -> Turn:
    return client_turn(index, **{"turn_kind": "question", **fields})


STOPPED: dict[str, Any] = {"barge_in_end": "stopped", "barge_in_stop_ns": 300 * MS}
TURNS = [
    _turn(0, cut_short=True),
    _turn(1, turn_kind="barge_in", barge_in_at_ns=900 * MS, barge_in_recovered=True, **STOPPED),
    _turn(
        2,
        turn_kind="barge_in",
        barge_in_at_ns=900 * MS,
        barge_in_end="never_stopped",
        barge_in_recovered=False,
        barge_in_reason="the reply was still playing when the turn ended",
        outcome="no_reply",
        voice_to_voice_ms=None,
    ),
    _turn(3, barge_in_reason="the reply was over before the caller was to speak into it"),
    _turn(4, backchannel_stopped=False, expected_intent="weather", intent="weather"),
    _turn(5, backchannel_stopped=True, expected_intent="weather", intent="timer"),
    _turn(6, expected_intent="weather"),
    _turn(7, intent="weather"),
    _turn(8, **SILENT, reprompted=False),
    _turn(9, **SILENT, reprompted=True),
    _turn(10, outcome="invalid", turn_kind="barge_in", barge_in_at_ns=1, barge_in_recovered=True),
    _turn(11, outcome="abandoned", voice_to_voice_ms=None),
]


def test_caller_behavior_is_counted_over_valid_turns(tmp_path: Path) -> None:
    with reader_of(tmp_path, *TURNS) as reader:
        summary = reader.summary()
    assert summary.behavior == Behavior(
        barge_ins=2,
        barge_ins_stopped=1,
        barge_ins_not_stopped=1,
        barge_ins_recovered=1,
        barge_ins_missed=1,
        backchannels=2,
        backchannels_stopped=1,
        silent_turns=2,
        reprompted=1,
        intents_expected=3,
        intents_reported=2,
        intents_matched=1,
    )
    assert summary.behavior.recovered_share == 0.5
    assert summary.behavior.intent_accuracy == 0.5
    assert (summary.metrics["barge_in_stop"].n, summary.metrics["barge_in_stop"].p50) == (1, 300 * MS)
    assert (summary.turns.abandoned, summary.turns.abandoned_share) == (1, 1 / 9)


@pytest.mark.slow
def test_silent_turn_counts_neither_for_nor_against_service(tmp_path: Path) -> None:
    spoken = [turn for turn in TURNS if turn.turn_kind != "silence"]
    objectives = [*default_objectives(), Objective("outcome", "outcome", 0.9, outcomes=("ok",))]
    with reader_of(tmp_path / "all", *TURNS) as every, reader_of(tmp_path / "spoken", *spoken) as without:
        assert every.summary().turns == without.summary().turns
        for objective in objectives:
            assert every.count()(objective) == without.count()(objective) == count_turns(TURNS)(objective)


def test_absent_behavior_is_no_share_of_zero(tmp_path: Path) -> None:
    with reader_of(tmp_path, _turn(0)) as reader:
        behavior = reader.summary().behavior
    assert behavior == Behavior()
    assert (behavior.recovered_share, behavior.intent_accuracy) == (None, None)
