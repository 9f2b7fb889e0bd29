"""Evaluation of a sidecar's rollouts, look by look: every fault holds with a sentence and promotes nothing."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.model.errors import ConfigError, StoreError
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.rollouts import rollout_log
from telemetry.sidecar.rollouts.evaluation import BEGUN, REFUSED, UNAVAILABLE, UNKNOWN, RolloutEvaluator
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.sidecar.rollouts.settings import NextStage, RolloutSetting
from telemetry.store.questions.rollouts import RolloutQuestion, RolloutTurns
from tests.fixtures_rollouts import AT_UNIX_NS, MINUTE, PLAN_FILE, SLOWER, read_rollouts
from tests.rollout_cohorts import SAME, Regression, cohort

OTHER_FILE = PLAN_FILE.replace('name = "streaming"', 'name = "other"')


@dataclass
class Turns:
    """A store that has as many turns of the candidate as a test says, and three times as many of the control."""

    candidate: int = 600
    regression: Regression = SAME
    fault: Exception | None = None
    asked: list[RolloutQuestion] = field(default_factory=list[RolloutQuestion])

    def rollout_turns(self, asked: RolloutQuestion) -> RolloutTurns:
        self.asked.append(asked)
        if self.fault is not None:
            raise self.fault
        rng = np.random.default_rng(1)
        since = asked.filter.since_unix_ns
        count = 0 if since is not None and since > AT_UNIX_NS else self.candidate
        return RolloutTurns(
            cohort(asked.candidate, count, rng, self.regression), cohort(asked.control, 3 * count, rng), 0.0, ()
        )


class Sidecar:
    """An evaluator over a folder, its plans, its turns and its clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.plan = folder / "rollout.toml"
        self.plan.write_text(PLAN_FILE)
        self.turns = Turns()
        self.now = AT_UNIX_NS
        self.running: RolloutEvaluator | None = None
        self.start()

    def start(self, *more: Path, next_stage: NextStage = "on-request") -> None:
        self.stop()
        settings = [RolloutSetting("streaming", str(self.plan), next_stage)]
        settings += [RolloutSetting(file.stem, str(file)) for file in more]
        self.running = RolloutEvaluator(self.store, settings, (), self.turns, lambda: self.now, 60.0)

    def stop(self) -> None:
        if self.running is not None:
            self.running.close()

    def look(self, name: str = "streaming") -> Any:
        assert self.running is not None
        self.now += MINUTE
        state = self.running.look(name)
        assert state.verdict.rollout == name
        return state

    def begin(self, stage: str | None = None) -> Any:
        assert self.running is not None
        return self.running.begin("streaming", stage)

    @property
    def decisions(self) -> list[str | None]:
        (record,) = read_rollouts(self.store)
        return [entry.decision for entry in record.entries]


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    running = Sidecar(tmp_path)
    yield running
    running.stop()


@pytest.mark.slow
def test_each_verdict_is_kept_before_it_is_answered(sidecar: Sidecar) -> None:
    state = sidecar.look()
    assert (state.decision, state.is_kept, state.kept_unix_ns) == ("promote", True, AT_UNIX_NS + MINUTE)
    assert sidecar.decisions == [None, "promote"]
    assert state.primary.margin == 0.4
    assert state.primary.lower < state.primary.difference < state.primary.upper
    assert state.primary.shares.upper < state.primary.shares.allowed == 0.05
    sidecar.turns.regression = SLOWER
    sidecar.turns.candidate = 2000
    assert sidecar.look().decision == "roll_back"
    sidecar.turns.regression = SAME
    sidecar.start()
    state = sidecar.look()
    assert state.decision == "roll_back"
    assert "begin another rollout, under another name" in state.sentence
    assert sidecar.decisions == [None, "promote", "roll_back", "roll_back"]


@pytest.mark.slow
def test_next_stage_begins_on_request_after_promotion(sidecar: Sidecar) -> None:
    sidecar.turns.candidate = 30
    assert sidecar.begin("canary").status == UNAVAILABLE
    assert sidecar.look().decision == "hold"
    refused = sidecar.begin("half")
    assert (refused.status, refused.stage) == (REFUSED, "canary")
    assert sidecar.begin("all").status == UNKNOWN
    assert sidecar.begin("canary").status == BEGUN
    sidecar.turns.candidate = 600
    assert sidecar.look().decision == "promote"
    assert sidecar.decisions == [None, "hold", "promote"]
    begun = sidecar.begin("half")
    assert (begun.status, begun.stage, begun.sentence) == (BEGUN, "half", "the stage half begins: canary was promoted")
    assert sidecar.begin("half").status == BEGUN
    assert sidecar.begin("canary").status == REFUSED
    state = sidecar.look()
    assert (state.decision, state.stage, state.promoted) == ("hold", "half", ("canary",))
    assert sidecar.turns.asked[-1].filter.since_unix_ns == sidecar.now - MINUTE
    assert sidecar.decisions == [None, "hold", "promote", None, "hold"]
    (record,) = read_rollouts(sidecar.store)
    assert [entry.decided_by for entry in record.entries[2:4]] == ["sidecar", "a request to the sidecar"]
    sidecar.start()
    assert sidecar.look().stage == "half"


def test_share_request_begins_stage_and_waits_for_its_verdict(sidecar: Sidecar) -> None:
    """The order in which Flagger asks: before the first share, too."""
    sidecar.turns.candidate = 0
    state = sidecar.look()
    assert state.decision == "hold"
    assert "no turn of the candidate streaming has arrived" in state.sentence
    assert sidecar.begin().sentence == "the stage canary begins"
    assert sidecar.look().decision == "hold"
    assert sidecar.begin().status == REFUSED
    sidecar.turns.candidate = 600
    sidecar.now = AT_UNIX_NS - MINUTE  # so that the turns are of this stage
    assert "the clock went back" in sidecar.look().sentence
    assert sidecar.begin().status == REFUSED


def test_promotion_begins_next_stage_if_configured(sidecar: Sidecar) -> None:
    sidecar.start(next_stage="on-promotion")
    state = sidecar.look()
    assert (state.decision, state.stage, state.promoted) == ("hold", "half", ("canary",))
    assert sidecar.decisions == [None, "promote", None, "hold"]


def test_an_old_promotion_begins_nothing(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    for now in (sidecar.now + 4 * MINUTE, sidecar.now - MINUTE):
        sidecar.now, before = now, sidecar.now
        refused = sidecar.begin("half")
        assert (refused.status, refused.stage) == (REFUSED, "canary")
        assert "the last promotion is of" in refused.sentence
        sidecar.now = before
    assert sidecar.begin("half").status == BEGUN


def _edits(before: str, after: str, *, restarts: bool = False) -> Callable[[Sidecar], object]:
    def edit(sidecar: Sidecar) -> None:
        sidecar.plan.write_text(PLAN_FILE.replace(before, after, 1))
        if restarts:
            sidecar.start()

    return edit


# What goes wrong, whether the hold is kept, and what it says.
FAULTS: list[tuple[Callable[[Sidecar], object], bool, str]] = [
    (_edits('margin = "400ms"', 'margin = "900ms"'), True, "the plan was edited after 1 look"),
    (_edits('margin = "400ms"', 'margin = "900ms"', restarts=True), True, "the plan was edited after "),
    (
        _edits('name = "streaming"', 'name = "elsewhere"'),
        False,
        "the plan was edited: it is of elsewhere now; restore its name",
    ),
    (_edits('name = "canary"', 'name = "first"'), False, "the plan was edited: it has no stage canary any more"),
    (_edits("share = 0.25", "share = 25"), False, "share"),
    (_edits('unit = "call"', 'unit = "call'), False, "is not valid TOML"),
    (lambda sidecar: setattr(sidecar.turns, "fault", StoreError("/store: not there")), False, "/store: not there"),
    (lambda sidecar: setattr(sidecar.turns, "fault", ZeroDivisionError("x")), False, "(ZeroDivisionError)"),
    (lambda sidecar: setattr(sidecar.turns, "fault", MemoryError()), False, "(MemoryError)"),
]


@pytest.mark.slow
def test_a_fault_holds_until_it_is_over(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    for begin, is_kept, sentence in FAULTS:
        begin(sidecar)
        state = sidecar.look()
        assert sentence in state.sentence
        assert (state.decision, state.is_kept, state.promoted) == ("hold", is_kept, ()), sentence
        assert sidecar.begin("half").status == REFUSED, sentence
        sidecar.plan.write_text(PLAN_FILE)
        sidecar.turns.fault = None
        assert sidecar.look().decision == "promote", sentence


def test_a_plan_that_is_gone_or_no_file_holds(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    sidecar.plan.unlink()
    state = sidecar.look()
    assert (state.decision, state.is_kept, state.kept_unix_ns) == ("hold", False, AT_UNIX_NS + MINUTE)
    assert "name the plan" in state.sentence
    sidecar.plan.mkdir()
    assert sidecar.look().decision == "hold"
    assert sidecar.begin("half").status == REFUSED
    sidecar.plan.rmdir()
    with pytest.raises(ConfigError, match="name the plan"):
        sidecar.start()


def test_two_plans_over_one_cohort_hold_both(sidecar: Sidecar, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(OTHER_FILE.replace('"streaming"', '"elsewhere"').replace('"stable"', '"old"'))
    sidecar.start(other)
    assert [sidecar.look(name).decision for name in ("streaming", "other")] == ["promote", "promote"]
    other.write_text(OTHER_FILE)
    for name in ("other", "streaming"):
        state = sidecar.look(name)
        assert state.decision == "hold"
        assert "are both about the cohort streaming; end one of them" in state.sentence
    assert sidecar.begin("half").status == REFUSED


def _refused(_store: Path, _row: Any) -> None:
    raise StoreError("verdicts cannot be kept there (the disk is full); none counts until the disk takes them")


def test_a_verdict_that_the_disk_does_not_take_does_not_count(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar.turns.candidate = 100
    assert sidecar.look().decision == "hold"
    sidecar.turns.candidate = 600
    with monkeypatch.context() as patched:
        patched.setattr(rollout_log, "keep_row", _refused)
        state = sidecar.look()
        assert (state.decision, state.is_kept) == ("hold", False)
        assert "none counts until the disk takes them" in state.sentence
        assert sidecar.begin("half").status == REFUSED
    assert sidecar.look().decision == "promote"
    assert sidecar.decisions == [None, "hold", "promote"]


@pytest.mark.slow
def test_committed_row_with_lost_answer_counts(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rollout_log.keep_row

    def loses_the_answer(store: Path, row: Any) -> None:
        real(store, row)
        raise StoreError("no answer came")

    assert sidecar.look().decision == "promote"
    with monkeypatch.context() as patched:
        patched.setattr(rollout_log, "keep_row", loses_the_answer)
        assert not sidecar.look().is_kept
    assert sidecar.look().decision == "promote"
    with monkeypatch.context() as patched:
        patched.setattr(rollout_log, "keep_row", loses_the_answer)
        assert sidecar.begin("half").status == UNAVAILABLE
    assert sidecar.begin("half").sentence == "the rollout is at stage half already"
    assert sidecar.look().stage == "half"
    assert sidecar.decisions == [None, "promote", "promote", "promote", None, "hold"]


def test_a_log_that_another_process_writes_holds_until_it_ends(sidecar: Sidecar) -> None:
    with RolloutLog(sidecar.store, parse_plan(PLAN_FILE, "x"), PLAN_FILE, AT_UNIX_NS):
        state = sidecar.look()
        assert (state.decision, state.is_kept) == ("hold", False)
        assert "another process evaluates the rollout streaming" in state.sentence
    assert sidecar.look().decision == "promote"


def test_turns_that_are_gone_hold(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    sidecar.turns.candidate = 590
    state = sidecar.look()
    assert state.decision == "hold"
    assert "that an earlier look saw are gone" in state.sentence


def test_a_clock_that_is_set_back_holds(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    sidecar.now -= 60 * MINUTE
    state = sidecar.look()
    assert (state.decision, state.promoted) == ("hold", ())
    assert "the clock went back" in state.sentence


def settle(sidecar: Sidecar, stage: str) -> Any:
    assert sidecar.running is not None
    return sidecar.running.begin("streaming", stage, is_settled=True)


@pytest.mark.slow
def test_stage_counts_from_when_its_share_takes_effect_once(sidecar: Sidecar) -> None:
    sidecar.turns.candidate = 0
    assert sidecar.look().decision == "hold"
    assert sidecar.begin("canary").status == BEGUN
    sidecar.turns.candidate = 30
    sidecar.turns.regression = SAME
    assert settle(sidecar, "half").status == REFUSED
    sidecar.now += MINUTE
    settled = settle(sidecar, "canary")
    assert (settled.status, settled.sentence) == (BEGUN, "the turns of stage canary count from now on")
    since = sidecar.now
    sidecar.now += MINUTE
    # Whoever asks again changes nothing, also after a restart.
    for _ in range(2):
        again = settle(sidecar, "canary")
        assert again.status == BEGUN
        assert "count since" in again.sentence
        sidecar.look()
        assert sidecar.turns.asked[-1].filter.since_unix_ns == since
        sidecar.start()
        sidecar.look()


def test_turns_before_share_took_effect_are_not_reported_gone(sidecar: Sidecar) -> None:
    sidecar.now = AT_UNIX_NS - 10 * MINUTE
    sidecar.turns.candidate = 60
    assert sidecar.look().decision == "hold"  # of turns of the first minutes
    assert settle(sidecar, "canary").status == BEGUN
    sidecar.turns.candidate = 30
    assert "are gone" not in sidecar.look().sentence


def test_a_rollout_that_was_rolled_back_gives_no_stage_again(sidecar: Sidecar) -> None:
    sidecar.turns.regression = SLOWER
    assert sidecar.look().decision == "roll_back"
    assert settle(sidecar, "canary").status == REFUSED
    assert [sidecar.begin(stage).status for stage in ("canary", "half")] == [REFUSED] * 2


def test_decided_or_edited_stage_is_not_given_again(sidecar: Sidecar) -> None:
    assert sidecar.look().decision == "promote"
    assert settle(sidecar, "canary").status == REFUSED
    sidecar.plan.write_text(PLAN_FILE.replace("share = 0.25", "share = 0.45", 1))
    assert sidecar.look().decision == "hold"
    refused = sidecar.begin("canary")
    assert refused.status == REFUSED
    assert "the plan was edited" in refused.sentence
    assert settle(sidecar, "canary").status == REFUSED


def test_a_folder_of_plans_that_cannot_be_read_holds(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sidecar.look().decision == "promote"

    def denied(_path: Path, *_arguments: Any, **_named: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:  # modes do not stop a process that runs as root
        patched.setattr(Path, "stat", denied)
        patched.setattr(Path, "is_file", denied)
        state = sidecar.look()
    assert (state.decision, state.is_kept) == ("hold", False)
    assert "cannot be read: Permission denied; check its permissions" in state.sentence
    assert sidecar.look().decision == "promote"
