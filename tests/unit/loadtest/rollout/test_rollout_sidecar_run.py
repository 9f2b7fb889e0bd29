"""A rollout that a sidecar evaluates is carried along by its verdicts alone, whatever fails in between."""

from dataclasses import dataclass, field
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.share_changes import ChangeFailedError, ShareUnchangedError
from loadtest.rollout.showing import RolloutLines
from loadtest.rollout.sidecar_run import SidecarRolloutRunner
from loadtest.rollout.sidecar_verdicts import SidecarVerdict, StageAnswer
from loadtest.rollout.steps import ChangeShare
from telemetry.model.errors import StoreError
from telemetry.rollout.plan import Decision
from telemetry.rollout.plan_document import parse_plan
from tests.properties.test_rollout_steps import ORDER, TEXT

PLAN = parse_plan(TEXT, "plan.toml")


@dataclass
class Sidecar:
    """Verdicts, stages, shares and a clock; what is in `fates` fails, one after the other."""

    verdicts: list[Decision]
    fates: list[str] = field(default_factory=list[str])
    fingerprint: str = PLAN.fingerprint
    stage: str = ORDER[0]
    decision: Decision = "hold"
    shares: list[float] = field(default_factory=list[float])
    permitted: set[str] = field(default_factory=set[str])
    now_s: float = 0.0

    def fails(self) -> bool:
        return bool(self.fates) and self.fates.pop() == "fails"

    def verdict(self) -> SidecarVerdict:
        if self.fails():
            raise StoreError("no sidecar answers there")
        if self.decision != "roll_back":
            self.decision = self.verdicts.pop() if self.verdicts else "promote"
        return SidecarVerdict(self.decision, "scripted", "scripted", self.stage, self.fingerprint, (9, 9), None, True)

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        if self.fails():
            raise StoreError("no answer came")
        del is_settled
        is_next = ORDER.index(stage) == ORDER.index(self.stage) + 1
        if self.decision == "roll_back" or not (stage == self.stage or (is_next and self.decision == "promote")):
            return StageAnswer(False, "held")
        self.stage, self.decision = stage, "hold" if is_next else self.decision
        self.permitted.add(stage)
        if self.fails():
            raise StoreError("it has begun, and the answer is lost")
        return StageAnswer(True, "begins")

    def change(self, step: ChangeShare) -> str:
        if self.fails():
            raise ShareUnchangedError("refused")
        assert step.is_back or step.stage.name in self.permitted, f"{step.stage.name} begins beyond a verdict"
        assert step.is_back or self.decision != "roll_back"
        self.shares.append(step.share)
        return "done"

    def unix_ns(self) -> int:
        return round(self.now_s * 1e9)

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return False


def carried(sidecar: Sidecar, at_most_s: float | None = None) -> ExitCode:
    lines = RolloutLines(PLAN, Console(file=StringIO()), sidecar.unix_ns)
    while True:  # whoever it was begun by begins it again
        runner = SidecarRolloutRunner(PLAN, sidecar, sidecar.change, sidecar, lines, 10.0)
        try:
            return runner.run(at_most_s)
        except ChangeFailedError:
            assert not sidecar.shares


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["fails", "goes on"]), max_size=60),
    st.lists(st.sampled_from(["promote", "hold", "hold", "roll_back"]), max_size=12),
)
def test_no_share_ever_goes_beyond_the_sidecar(fates: list[str], verdicts: list[Decision]) -> None:
    sidecar = Sidecar(verdicts, fates)
    code = carried(sidecar)
    forward = [share for share in sidecar.shares if share]
    assert forward == sorted(forward)
    if code is ExitCode.OK:
        assert (sidecar.shares[-1], sidecar.stage) == (1.0, "all")
    else:
        assert (code, sidecar.shares[-1]) == (ExitCode.OBJECTIVE_MISSED, 0.0)


def test_a_hold_moves_nothing_and_the_time_ends_it() -> None:
    sidecar = Sidecar(["hold"] * 100)
    assert carried(sidecar, 60.0) is ExitCode.UNDECIDED
    assert sidecar.shares == [0.05]


def test_another_plan_of_that_name_is_refused() -> None:
    sidecar = Sidecar([], fingerprint="another")
    with pytest.raises(UsageError, match="evaluates another plan of the name streaming"):
        carried(sidecar)
    assert sidecar.shares == []
