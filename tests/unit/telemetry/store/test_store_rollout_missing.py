"""Values that a store does not have, seen through the command: they hold, never roll back, and are counted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.run.rollout_check import RolloutCheckRequest, check
from telemetry.model.semconv import Source
from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, Run, client_turn, fill_store

pytestmark = pytest.mark.slow

NOW = START_UNIX_NS + 100_000 * SECOND
PLAN = """
name = "canary"
unit = "call"
source = "{source}"
begins = 2026-09-21T14:13:20Z
[cohorts]
control = "stable"
candidate = "{candidate}"
[primary]
metric = "{metric}"
margin = "150ms"
[[stages]]
name = "canary"
share = 0.25
shortest = "0s"
[[guardrails]]
check = "tail"
metric = "{metric}"
margin = 0.05
[completeness]
sample_ratio_p = 1e-12
"""
Values = NDArray[np.float64]
FIELDS = {"voice_to_voice": "first_audio_perf_ns", "asr_final_latency": "asr_final_perf_ns"}
SPEECH_END_NS = 3_000 * MS  # of `client_turn`
_PLACES = count(1)


@dataclass(frozen=True)
class Cohort:
    """The values of a cohort in ms, NaN where none is reported, and the call of each."""

    name: str
    values_ms: Values
    calls: NDArray[np.int64]

    def slower(self, by_ms: float) -> "Cohort":
        return replace(self, values_ms=self.values_ms + by_ms)

    def without(self, missing: NDArray[np.bool_]) -> "Cohort":
        return replace(self, values_ms=np.where(missing, np.nan, self.values_ms))


def drawn(name: str, turns: int, seed: int) -> Cohort:
    """Calls of 2 to 20 turns with two humps, a slow call staying slow."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 21, turns)
    calls = np.repeat(np.arange(turns), lengths)[:turns]
    of_call = rng.normal(0, 0.2, turns)[calls]
    hit = rng.random(turns) < 0.3
    return Cohort(name, np.where(hit, 250, 620) * np.exp(of_call + rng.normal(0, 0.25, turns)), calls)


def stored(cohort: Cohort, source: Source, metric: str) -> list[Turn]:
    """The turns as the store has them: answered, without the moment where its value is missing."""
    place = next(_PLACES) * 100_000
    more: dict[str, Any] = {"source": source}
    if source == "service":
        more["run_id"] = service_run_id("front-desk", START_UNIX_NS)
    turns: list[Turn] = []
    for index, (value, call) in enumerate(zip(cohort.values_ms, cohort.calls, strict=True)):
        at = None if np.isnan(value) else SPEECH_END_NS + round(float(value) * MS)
        turn = client_turn(
            place + index,
            cohort=cohort.name,
            call_id=f"{cohort.name}-{call}",
            process_id=cohort.name,
            sequence=index,
            started_unix_ns=START_UNIX_NS + index * SECOND,
            **{FIELDS[metric]: at},
        )
        turns.append(msgspec.structs.replace(turn, **more))
    return turns


@dataclass(frozen=True)
class Looked:
    """Result and output of the command."""

    code: ExitCode
    printed: str
    verdict: dict[str, Any]

    def check(self, kind: str) -> dict[str, Any]:
        (match,) = [entry for entry in self.verdict["checks"] if entry["kind"] == kind]
        return match


def looked(
    folder: Path, store: Path, cohorts: Sequence[Cohort], source: Source = "service", metric: str = "voice_to_voice"
) -> Looked:
    """A look by the command at the last of the cohorts, which are added to a store."""
    fill_store(store, Run(turns=[turn for cohort in cohorts for turn in stored(cohort, source, metric)]))
    plan, verdict, output = folder / "rollout.toml", folder / "verdict.json", StringIO()
    plan.write_text(PLAN.format(source=source, metric=metric, candidate=cohorts[-1].name))
    request = RolloutCheckRequest(plan, str(store), json_file=verdict)
    code = check(request, Console(file=output, width=400), now_unix_ns=NOW)
    return Looked(code, output.getvalue(), json.loads(verdict.read_text()))


CONTROL, CANDIDATE = drawn("stable", 5_400, 1), drawn("canary", 1_813, 2)
SOURCES = [("service", "voice_to_voice"), ("service", "asr_final_latency"), ("client", "asr_final_latency")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the control alone: each test adds a candidate with a name of its own."""
    return fill_store(tmp_path_factory.mktemp("store"), Run(turns=stored(CONTROL, "service", "voice_to_voice")))


def beyond(cohort: Cohort, quantile: float) -> NDArray[np.bool_]:
    """Return which turns are slower than a quantile of the control."""
    return cohort.values_ms > float(np.quantile(CONTROL.values_ms, quantile))


@pytest.mark.parametrize(("source", "metric"), SOURCES)
def test_slower_candidate_with_slow_values_missing_is_held(tmp_path: Path, source: Source, metric: str) -> None:
    slower = CANDIDATE.slower(300)
    slower = slower.without(slower.values_ms > 1_000)
    used, every = int(np.count_nonzero(~np.isnan(slower.values_ms))), CANDIDATE.calls.size
    assert 0.1 * every < every - used < 0.5 * every
    outcome = looked(tmp_path, tmp_path / "store", [CONTROL, slower], source, metric)
    assert outcome.code is ExitCode.UNDECIDED, outcome.printed
    for kind in ("quantile", "tail"):
        result = outcome.check(kind)
        assert (result["turns"], result["eligible"]) == (used, every)
        assert result["status"] == "open", result
    assert f"{used:,} of {every:,}" in outcome.verdict["sentence"]
    assert f"{used:,} of {every:,}" in outcome.printed.splitlines()[0]
    shares = outcome.check("quantile")["shares"]
    # By counting: no value that was reported lies beyond the control's p95 and the margin, and all others may.
    threshold = sorted(CONTROL.values_ms)[95 * CONTROL.calls.size // 100 - 1]
    assert shares["threshold"] == round(threshold * MS) / SECOND
    assert shares["beyond"] == np.count_nonzero(slower.values_ms > threshold) / used
    assert np.nanmax(slower.values_ms) < threshold + 150
    assert shares["beyond_margin"] == pytest.approx((every - used) / every, abs=1e-9)
    assert shares["upper"] >= shares["allowed"]


@pytest.mark.parametrize("quantile", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("lost", [1.0, 0.3])
def test_missing_values_alone_never_roll_back(tmp_path: Path, store: Path, quantile: float, lost: float) -> None:
    drop = np.random.default_rng(4).random(CANDIDATE.calls.size) < lost
    lacking = CANDIDATE.without(beyond(CANDIDATE, quantile) & drop)
    outcome = looked(tmp_path, store, [replace(lacking, name=f"beyond-{quantile}-{lost}")])
    assert outcome.verdict["verdict"] != "roll_back", outcome.verdict["sentence"]
    if quantile == 0.9 and lost == 1.0:  # a tenth may be anywhere, and a twentieth is allowed
        assert outcome.verdict["verdict"] == "hold", outcome.verdict["sentence"]


@pytest.mark.parametrize("slower_ms", [0.0, -200.0])
def test_values_missing_of_the_control_never_roll_back(tmp_path: Path, slower_ms: float) -> None:
    """A control that reports only its quick turns makes every candidate look slow."""
    quick = CONTROL.without(beyond(CONTROL, 0.85))
    outcome = looked(tmp_path, tmp_path / "store", [quick, CANDIDATE.slower(slower_ms)])
    assert outcome.verdict["verdict"] != "roll_back", outcome.verdict["sentence"]


def test_as_many_missing_in_both_change_nothing(tmp_path: Path, store: Path) -> None:
    """Values missing by chance, in both alike, are no excess."""
    rng = np.random.default_rng(5)
    both = [cohort.without(rng.random(cohort.calls.size) < 0.03) for cohort in (CONTROL, CANDIDATE)]
    outcome = looked(tmp_path, tmp_path / "store", both)
    assert outcome.code is ExitCode.OK, outcome.printed
    assert looked(tmp_path, store, [replace(CANDIDATE, name="whole")]).code is ExitCode.OK


def test_a_regression_is_rolled_back_although_values_are_missing(tmp_path: Path, store: Path) -> None:
    """Missing values help neither side: what is shown by the others is shown."""
    slower = CANDIDATE.slower(900)
    slower = slower.without(np.random.default_rng(6).random(slower.calls.size) < 0.2)
    outcome = looked(tmp_path, store, [replace(slower, name="slower")])
    assert outcome.code is ExitCode.OBJECTIVE_MISSED, outcome.printed
    used = int(np.count_nonzero(~np.isnan(slower.values_ms)))
    assert f"{used:,} of {slower.calls.size:,}" in outcome.verdict["sentence"]


def test_the_bounds_of_a_serious_regression_are_of_its_own_size(tmp_path: Path) -> None:
    """Five times the quickest answers at 220 turns, the slow ones not reported: no bound lies where no value does."""
    turns = 220
    slower = Cohort("canary", 5 * CANDIDATE.values_ms[:turns], CANDIDATE.calls[:turns])
    lost = slower.without(np.random.default_rng(7).random(turns) < 0.4)
    control = Cohort("stable", CONTROL.values_ms[: 3 * turns], CONTROL.calls[: 3 * turns])
    for name, candidate in (("whole", slower), ("missing", lost)):
        outcome = looked(tmp_path, tmp_path / name, [control, candidate])
        assert outcome.code is ExitCode.OBJECTIVE_MISSED, outcome.printed
        result = outcome.check("quantile")
        reported = candidate.values_ms[~np.isnan(candidate.values_ms)]
        low = (reported.min() - control.values_ms.max()) / 1e3
        high = (reported.max() - control.values_ms.min()) / 1e3
        assert low <= result["lower"] <= result["difference"] <= result["upper"] <= high
        assert result["upper"] - result["lower"] < 2 * result["difference"]
