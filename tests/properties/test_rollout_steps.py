"""A rollout is carried along by its verdicts alone: whatever fails, and whenever the process is killed."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.display import RolloutView
from loadtest.rollout.runner import RolloutHere, RolloutRunner, StageAnswer
from loadtest.rollout.share_changes import ChangeFailedError, ChangeShare, ShareUnchangedError
from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import Decision, Look, RolloutHistory, RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.rollouts import evaluation, rollout_log
from telemetry.store.database import owned
from telemetry.store.reader import StoreReader
from tests.fixtures_rollouts import read_rollouts
from tests.nightly import examples

PLAN = """
name = "streaming"
unit = "call"
[cohorts]
control = "stable"
candidate = "streaming"
[apply]
command = ["true"]
settle = "5s"
"""
STAGES = "".join(
    f'[[stages]]\nname = "{name}"\nshare = {share}\nshortest = "0s"\n'
    for name, share in (("canary", 0.05), ("quarter", 0.25), ("half", 0.5), ("all", 1.0))
)
TEXT = PLAN.replace("[apply]", f"{STAGES}[apply]")
ORDER = [stage.name for stage in parse_plan(TEXT, "plan.toml").stages]


class KilledError(BaseException):
    """kill -9: nothing below it is carried out."""


@dataclass
class World:
    """Callers, verdicts and a store; each step of the code may be where the process is killed or something fails."""

    fates: list[str]
    verdicts: list[Decision]
    now_ns: int = 10**18
    shares: list[float] = field(default_factory=list[float])
    promoted: set[str] = field(default_factory=set[str])
    rolled_back: bool = False

    def fate(self) -> str:
        self.now_ns += 10**9
        fate = self.fates.pop() if self.fates else "goes on"
        if fate == "killed":
            raise KilledError
        return fate

    def unix_ns(self) -> int:
        return self.now_ns

    def monotonic_s(self) -> float:
        return self.now_ns / 1e9

    def wait(self, seconds: float) -> bool:
        self.now_ns += round(seconds * 1e9)
        return self.fate() == "interrupted"

    def look(self, _turns: Any, plan: RolloutPlan, history: RolloutHistory, now_unix_ns: int, **_of: Any) -> Any:
        """Replace the gate."""
        if self.fate() == "fails":
            raise StoreError("the store cannot be read")
        decision: Decision = "roll_back" if history.is_rolled_back else "hold"
        stage = plan.stage(history.stage)
        if decision == "hold" and stage.has_control:
            decision = self.verdicts.pop() if self.verdicts else "promote"
        look = Look(at_unix_ns=now_unix_ns, stage=stage.name, candidate_turns=0, control_turns=0, verdict=decision)
        after = plan.stage_after(stage.name)
        return GateVerdict(
            decision, "scripted", ("scripted",), (), (), 0, stage, after, None, history.with_look(look), 0, 0
        )

    def keep(self, store: Path, row: Any) -> None:
        """Replace a commit: what is kept may be acted upon."""
        if self.fate() == "fails":
            raise StoreError("the disk is full")
        _keep_row(store, row)
        verdict = row.entry.verdict
        if verdict is not None:
            self.rolled_back |= verdict.verdict == "roll_back"
            if verdict.verdict == "promote":
                self.promoted.add(verdict.stage)
        self.fate()

    def change(self, step: ChangeShare) -> str:
        if self.fate() == "fails":
            raise ShareUnchangedError("refused")
        if step.share:
            place = ORDER.index(step.stage.name)
            assert set(ORDER[:place]) <= self.promoted, f"{step.stage.name} begins beyond a verdict"
            assert not self.rolled_back, f"{step.stage.name} gets callers after the rollout was rolled back"
        self.shares.append(step.share)
        if self.fate() == "fails":  # it took effect, and the answer is lost
            raise ShareUnchangedError("no answer came")
        return "done"


_keep_row = rollout_log.keep_row


class Unreliable(RolloutHere):
    """A rollout whose answers are lost now and then."""

    world: World

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        answer = super().begin(stage, is_settled=is_settled)
        if self.world.fate() == "fails":
            raise StoreError("it has begun, and the answer is lost")
        return answer


@contextmanager
def scripted(world: World, folder: Path) -> Iterator[Path]:
    """A plan, and a store that is open as a sidecar has it open."""
    file = folder / "plan.toml"
    file.write_text(TEXT)
    with (
        owned(folder),
        patch.object(evaluation, "look", world.look),
        patch.object(rollout_log, "keep_row", world.keep),
    ):
        yield file


def run(world: World, file: Path, *, change: Any = None, plan: str = TEXT, at_most_s: float | None = None) -> ExitCode:
    """One life of the process."""
    of = parse_plan(plan, "plan.toml")
    here = Unreliable([(of.name, file)], file.parent, StoreReader(file.parent), (), unix_ns=world.unix_ns, every_s=60.0)
    here.world = world
    with closing(here):
        view = RolloutView(of, Console(file=StringIO()), world.unix_ns)
        return RolloutRunner(of, here, change or world.change, world, view, 60.0).run(at_most_s)


def carried(world: World, file: Path) -> ExitCode:
    """Run, and run again after each end that is not final, as somebody who restarts it would."""
    while True:
        try:
            code = run(world, file)
        except (KilledError, ChangeFailedError, StoreError):
            continue
        if code is not ExitCode.INTERRUPTED:
            return code


def begun(folder: Path) -> list[str]:
    """The stages that began, each once: it is begun again when its share is in effect."""
    (record,) = read_rollouts(folder)
    moves = [entry.stage for entry in record.entries[1:] if entry.verdict is None]
    return [stage for place, stage in enumerate(moves) if moves[place - 1 : place] != [stage]]


FATES = st.lists(st.sampled_from(["goes on"] * 6 + ["killed", "fails", "interrupted"]), max_size=60)
VERDICTS = st.lists(st.sampled_from(["hold", "hold", "promote", "roll_back"]), max_size=12)


@pytest.mark.slow
@settings(max_examples=examples(30, 80), deadline=None)
@given(FATES, VERDICTS)
def test_no_share_ever_goes_beyond_a_verdict(fates: list[str], verdicts: list[Decision]) -> None:
    world = World(fates, verdicts)
    with tempfile.TemporaryDirectory() as folder, scripted(world, Path(folder)) as file:
        code = carried(world, file)
        stages = begun(Path(folder))
    assert stages == ORDER[: len(stages)], "a stage was skipped, or begun after a later one"
    assert code is (ExitCode.OBJECTIVE_MISSED if world.rolled_back else ExitCode.OK)
    assert world.shares[-1] == (0.0 if world.rolled_back else 1.0)
    assert world.rolled_back or stages == ORDER


def test_a_change_that_fails_is_tried_again_after_another_look() -> None:
    world = World([], ["promote", "promote", "hold", "promote"])
    tries: list[tuple[float, int]] = []

    def change(step: ChangeShare) -> str:
        tries.append((step.share, len(world.verdicts)))
        if len(tries) == 2:
            raise ShareUnchangedError("refused")
        return world.change(step)

    with tempfile.TemporaryDirectory() as folder, scripted(world, Path(folder)) as file:
        assert run(world, file, change=change) is ExitCode.OK
        (record,) = read_rollouts(Path(folder))
    # How many scripted looks were left: the second try of a share comes after one more look.
    assert tries[:3] == [(0.05, 3), (0.25, 1), (0.25, 0)]
    assert [share for share, _ in tries[3:]] == [0.5, 1.0]
    assert record.entries[-1].stage == "all"


def test_a_promotion_that_is_old_is_looked_at_again() -> None:
    world = World([], ["roll_back", "promote"])
    with tempfile.TemporaryDirectory() as folder, scripted(world, Path(folder)) as file:
        plan = parse_plan(TEXT, "plan.toml")
        here = RolloutHere([(plan.name, file)], file.parent, StoreReader(folder), (), unix_ns=world.unix_ns, every_s=60)
        with closing(here):
            assert here.begin("canary") == StageAnswer(False, "the rollout has not been evaluated yet; ask again")
            assert here.verdict().verdict == "promote"  # and the process ends here
        world.now_ns += 3600 * 10**9
        assert run(world, file) is ExitCode.OBJECTIVE_MISSED
    assert world.shares == [0.0]


def test_a_hold_moves_nothing_and_the_time_ends_it() -> None:
    world = World([], ["hold"] * 100)
    with tempfile.TemporaryDirectory() as folder, scripted(world, Path(folder)) as file:
        assert run(world, file, at_most_s=600.0) is ExitCode.UNDECIDED
    assert world.shares == [0.05]


def test_another_plan_of_that_name_is_refused() -> None:
    world = World([], [])
    edited = TEXT.replace("share = 0.25", "share = 0.3")
    named = pytest.raises(UsageError, match="evaluates another plan of the name streaming")
    with tempfile.TemporaryDirectory() as folder, scripted(world, Path(folder)) as file, named:
        run(world, file, plan=edited)
    assert world.shares == []
