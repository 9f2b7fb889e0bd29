"""A rollout is carried along by its verdicts alone: whatever fails, and whenever the process is killed."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.exit_codes import ExitCode
from loadtest.rollout.job import RolloutRunner
from loadtest.rollout.kept import RolloutKeeper
from loadtest.rollout.share_changes import ChangeFailedError, ShareUnchangedError
from loadtest.rollout.steps import ChangeShare, RolloutEnded
from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import Decision, Look, RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.store.rollout_log import read_rollouts

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
    f'[[stages]]\nname = "{name}"\nshare = {share}\n'
    for name, share in (("canary", 0.05), ("quarter", 0.25), ("half", 0.5), ("all", 1.0))
)
TEXT = PLAN.replace("[apply]", f"{STAGES}[apply]")
ORDER = [stage.name for stage in parse_plan(TEXT, "plan.toml").stages]


class KilledError(BaseException):
    """kill -9: nothing below it is carried out."""


@dataclass
class World:
    """Callers, verdicts and a disk; each step of the code may be where the process is killed or something fails."""

    fates: list[str]
    verdicts: list[Decision]
    now_ns: int = 10**18
    shares: list[float] = field(default_factory=list[float])
    promoted: set[str] = field(default_factory=set[str])
    rolled_back: bool = False

    def fate(self) -> str:
        self.now_ns += 10**9
        found = self.fates.pop() if self.fates else "goes on"
        if found == "killed":
            raise KilledError
        return found

    def unix_ns(self) -> int:
        return self.now_ns

    def monotonic_s(self) -> float:
        return self.now_ns / 1e9

    def wait(self, seconds: float) -> bool:
        self.now_ns += round(seconds * 1e9)
        return self.fate() == "interrupted"

    def verdict(self, plan: RolloutPlan, keeper: RolloutKeeper) -> GateVerdict:
        if self.fate() == "fails":
            raise StoreError("the store cannot be read")
        history = keeper.kept.history
        decision = self.verdicts.pop() if self.verdicts else "promote"
        stage = plan.stage(history.stage)
        look = Look(at_unix_ns=self.now_ns, stage=stage.name, candidate_turns=9, control_turns=9, verdict=decision)
        after = plan.stage_after(stage.name)
        return GateVerdict(
            decision, "scripted", ("scripted",), (), (), 0, stage, after, None, history.with_look(look), 9, 9
        )

    def change(self, step: ChangeShare) -> str:
        if self.fate() == "fails":
            raise ShareUnchangedError("refused")
        if step.share:
            place = ORDER.index(step.stage.name)
            assert set(ORDER[:place]) <= self.promoted, f"{step.stage.name} begins beyond a verdict"
            assert not self.rolled_back, f"{step.stage.name} gets callers after the rollout was rolled back"
        self.shares.append(step.share)
        if self.fate() == "fails":  # it took effect, and nobody knows
            raise ShareUnchangedError("no answer came")
        return "done"


class Watched(RolloutKeeper):
    """Notes what has been kept, which is what may be acted upon."""

    world: World

    def keep_verdict(self, verdict: GateVerdict) -> None:
        self.world.fate()
        super().keep_verdict(verdict)
        if verdict.verdict == "promote":
            self.world.promoted.add(verdict.stage.name)
        self.world.rolled_back |= verdict.verdict == "roll_back"
        self.world.fate()

    def keep_change(self, change: ChangeShare, state: str, now_unix_ns: int) -> None:
        self.world.fate()
        super().keep_change(change, state, now_unix_ns)  # type: ignore[arg-type]
        self.world.fate()

    def keep_begin(self, stage: str, now_unix_ns: int) -> None:
        self.world.fate()
        super().keep_begin(stage, now_unix_ns)


class Silent:
    """Shows nothing."""

    def verdict(self, verdict: GateVerdict) -> None: ...
    def changed(self, step: ChangeShare, done: str) -> None: ...
    def trouble(self, sentence: str) -> None: ...
    def ended(self, step: RolloutEnded) -> None: ...


def carried(world: World, folder: Path) -> ExitCode:
    """Run, and run again after each end that is not final, as somebody who restarts it would."""
    plan = parse_plan(TEXT, "plan.toml")
    while True:
        try:
            with Watched(folder, plan, TEXT, world.now_ns) as keeper:
                keeper.world = world
                code = RolloutRunner(plan, keeper, world, world.change, world, Silent(), 60.0).run()
        except (KilledError, ChangeFailedError):
            continue
        if code is not ExitCode.INTERRUPTED:
            return code


FATES = st.lists(st.sampled_from(["goes on"] * 6 + ["killed", "fails", "interrupted"]), max_size=60)
VERDICTS = st.lists(st.sampled_from(["hold", "hold", "promote", "roll_back"]), max_size=12)


@settings(max_examples=80, deadline=None)
@given(FATES, VERDICTS)
def test_no_share_ever_goes_beyond_a_verdict(fates: list[str], verdicts: list[Decision]) -> None:
    world = World(fates, verdicts)
    with tempfile.TemporaryDirectory() as folder:
        code = carried(world, Path(folder))
        (record,) = read_rollouts(Path(folder))
    assert not record.faults
    begun = [entry.stage for entry in record.entries[1:] if entry.verdict is None]
    assert begun == ORDER[: len(begun)], "a stage was skipped, or begun twice"
    assert code is (ExitCode.OBJECTIVE_MISSED if world.rolled_back else ExitCode.OK)
    assert world.shares[-1] == (0.0 if world.rolled_back else 1.0)
    assert world.rolled_back or begun == ORDER


def test_a_change_that_fails_needs_another_look() -> None:
    # The share of the second stage is refused; the look after that says hold, so it is not tried again until promote.
    world = World([], ["promote", "promote", "promote", "hold", "promote"])
    tries: list[float] = []

    def change(step: ChangeShare) -> str:
        tries.append(step.share)
        if tries == [0.05, 0.25]:
            raise ShareUnchangedError("refused")
        return world.change(step)

    plan = parse_plan(TEXT, "plan.toml")
    with tempfile.TemporaryDirectory() as folder:
        with Watched(Path(folder), plan, TEXT, world.now_ns) as keeper:
            keeper.world = world
            assert RolloutRunner(plan, keeper, world, change, world, Silent(), 60.0).run() is ExitCode.OK
        (record,) = read_rollouts(Path(folder))
    assert tries == [0.05, 0.25, 0.25, 0.5, 1.0]
    decisions = [entry.decision for entry in record.entries]
    assert decisions[:7] == [None, None, "promote", "hold", "promote", None, "promote"]


def test_a_promotion_that_is_old_is_looked_at_again() -> None:
    plan = parse_plan(TEXT, "plan.toml")
    world = World([], ["roll_back", "promote"])
    with tempfile.TemporaryDirectory() as folder, Watched(Path(folder), plan, TEXT, world.now_ns) as keeper:
        keeper.world = world
        runner = RolloutRunner(plan, keeper, world, world.change, world, Silent(), 60.0)
        keeper.keep_change(ChangeShare(plan.stages[0]), "made", world.now_ns)
        keeper.keep_begin("canary", world.now_ns)
        keeper.keep_verdict(world.verdict(plan, keeper))  # and the process ends here
        world.now_ns += 3600 * 10**9
        assert runner.run() is ExitCode.OBJECTIVE_MISSED
    assert world.shares == [0.0]
