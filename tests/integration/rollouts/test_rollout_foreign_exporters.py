"""`voiceprobe rollout check` over stores filled by exporters that are not ours: to the last digit the verdict that the
pure gate gives of the values that were sent."""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.model.semconv import OUTCOMES, Outcome
from telemetry.rollout.cohort_turns import CohortTurns, missed_column, open_column, packed_codes, packed_numbers
from telemetry.rollout.completeness import AssignedUnits, UnitCounts
from telemetry.rollout.gate import RolloutEvidence, decide, first_history
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from tests.fixtures_rollouts import as_object
from tests.fixtures_sidecar import running_sidecar
from tests.integration.commands import completed
from tests.integration.peers import processes
from tests.nightly import nightly_after

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parents[1] / "peers"
MS, S = 1_000_000, 1_000_000_000
CALLS = {"stable": 160, "canary": 65}
ROUTES = ("cache", "cloud", "local")
UNANSWERED = ("no_reply", "error", "abandoned")
GOOD_WITHIN_MS = 900


@dataclass(frozen=True)
class SentTurn:
    """A turn as the service knows it: latencies from the end of speech, None where its spans do not state them."""

    cohort: str
    call: str
    user: str | None
    began_unix_ns: int
    outcome: Outcome
    heard_ns: int | None
    first_token_ns: int | None
    cache_hit: bool | None
    route: str | None
    fallback: str | None
    tokens: int


def drawn_turns(began_unix_ns: int) -> list[SentTurn]:
    """Calls of 2 to 20 turns by users some of whom call often. Latencies have two humps, one of them of cache hits, an
    atom of time-outs, ties by rounding, and holes: mostly where they were long."""
    rng = np.random.default_rng(35)
    sent_turns: list[SentTurn] = []
    for cohort, calls in CALLS.items():
        for call in range(calls):
            user = None if call % 11 == 5 else f"{cohort} user {int(rng.zipf(1.3)) % 60}"
            if call == 17:
                user = "met-both"
            slow = rng.normal(0, 0.2)
            for place in range(2 + min(18, int(rng.geometric(0.2)))):
                hit = bool(rng.random() < 0.35)
                value_ms = (260 if hit else 640) * float(np.exp(slow + rng.normal(0, 0.25)))
                value_ms = 2_500 if rng.random() < 0.02 else value_ms * (1.08 if cohort == "canary" else 1.0)
                value_ms = 10 * round(value_ms / 10) if call % 3 else value_ms
                drawn = str(rng.choice(UNANSWERED)) if rng.random() < 0.012 else "ok"
                outcome: Outcome = drawn if drawn in UNANSWERED else "ok"  # type: ignore[assignment]
                lost = rng.random() < (0.3 if value_ms > 1_000 and cohort == "canary" else 0.03)
                heard_ns = None if lost or outcome != "ok" else round(value_ms * MS)
                sent_turns.append(
                    SentTurn(
                        cohort=cohort,
                        call=f"{cohort}-{call}",
                        user=user,
                        # A call after the other, so that none of it is of another day's run than the command reads.
                        began_unix_ns=began_unix_ns + call * 20 * S + place * 40 * S,
                        outcome=outcome,
                        heard_ns=heard_ns,
                        first_token_ns=None if rng.random() < 0.05 else round(0.6 * value_ms * MS),
                        cache_hit=None if rng.random() < 0.1 else hit,
                        route=None if rng.random() < 0.05 else str(rng.choice(ROUTES)),
                        fallback="model" if rng.random() < 0.03 else None,
                        tokens=int(rng.integers(5, 80)),
                    )
                )
                if outcome == "abandoned":
                    break
    return sent_turns


@dataclass(frozen=True)
class FilledStore:
    """A store that a service's exporter filled, and what that sent."""

    folder: Path
    sent: Sequence[SentTurn]


def filled(folder: Path, exporter: str) -> FilledStore:
    """A store of a real sidecar, which has ended, with all that an exporter sent to it."""
    sent = drawn_turns(time.time_ns() - 7_200 * S)
    folder.mkdir()
    (folder / "turns.jsonl").write_text("\n".join(json.dumps(dataclasses.asdict(turn)) for turn in sent))
    with running_sidecar(folder / "store") as sidecar:
        turns = str(folder / "turns.jsonl")
        command = {
            "sdk-http": [sys.executable, str(PROGRAMS / "send_turns.py"), turns, "http", sidecar.http],
            "sdk-grpc": [processes.python_of("livekit"), str(PROGRAMS / "send_turns.py"), turns, "grpc", sidecar.grpc],
            "pipecat": [processes.python_of("pipecat"), str(PROGRAMS / "send_turns_pipecat.py"), turns, sidecar.http],
        }
        log = folder / "log"
        with processes.started(command[exporter], log) as process:
            assert process.wait(timeout=180) == 0, processes.last_lines(log)
        assert sidecar.terminate() == 0
    return FilledStore(folder / "store", sent)


@pytest.fixture(scope="module", params=nightly_after(1, ["sdk-http", "sdk-grpc", "pipecat"]))
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, FilledStore]:
    return request.param, filled(tmp_path_factory.mktemp("foreign") / request.param, request.param)


# What Pipecat's spans do not state.
_OF_OTHERS = """
[[guardrails]]
check = "cost_per_turn"
price_per_token = 0.003
margin = 0.05
[[guardrails]]
check = "cache_misses"
margin = 0.2
[[guardrails]]
check = "fallback"
margin = 0.1
"""
PLAN = """
name = "{unit}"
unit = "{unit}"
source = "service"
services = ["front-desk"]
slices = ["route"]
[cohorts]
control = "stable"
candidate = "canary"
[primary]
margin = "{margin_ms}ms"
[[stages]]
name = "canary"
share = 0.29
shortest = "0s"
[[guardrails]]
check = "quantile"
statistic = "p50"
margin = "120ms"
[[guardrails]]
check = "tail"
margin = 0.05
[[guardrails]]
check = "good_turns"
within = "{within_ms}ms"
margin = 0.1
[[guardrails]]
check = "no_reply"
margin = 0.05
[[guardrails]]
check = "errors"
margin = 0.05
[[guardrails]]
check = "abandonment"
margin = 0.05
{more}
[completeness]
contaminated_units = 0.05
"""


def plan_text(exporter: str, unit: str, margin_ms: int = 250) -> str:
    more = "" if exporter == "pipecat" else _OF_OTHERS
    return PLAN.format(unit=unit, margin_ms=margin_ms, within_ms=GOOD_WITHIN_MS, more=more)


def columns_of(sent: Sequence[SentTurn], cohort: str, unit: str, *, of_pipecat: bool) -> CohortTurns:
    """A cohort as the gate takes it, in the order in which its turns were sent."""
    turns = [turn for turn in sent if turn.cohort == cohort]
    units = [(turn.user if unit == "user" else None) or turn.call for turn in turns]
    known_units = {name: place for place, name in enumerate(dict.fromkeys(units))}
    missed: list[float | None] = []
    for turn in turns:
        bad = turn.outcome != "ok" or (turn.heard_ns is not None and turn.heard_ns > GOOD_WITHIN_MS * MS)
        missed.append(None if turn.outcome == "ok" and turn.heard_ns is None else float(bad))
    counted_by = f"voice_to_voice within {GOOD_WITHIN_MS * MS:g}"
    numbers = {
        "voice_to_voice": packed_numbers([turn.heard_ns for turn in turns]),
        missed_column(counted_by): packed_numbers(missed),
        open_column(counted_by): packed_numbers([value is None for value in missed]),
    }
    routes: tuple[str, ...] = ()
    if not of_pipecat:
        routes = ROUTES
        fallback = [1 if turn.fallback is not None else None if turn.route is None else 0 for turn in turns]
        numbers |= {
            "cache_hit": packed_numbers([turn.cache_hit for turn in turns]),
            "fallback": packed_numbers(fallback),
            "llm_tokens": packed_numbers([turn.tokens for turn in turns]),
        }
    return CohortTurns(
        cohort=cohort,
        turns=len(turns),
        numbers=numbers,
        codes={
            "outcome": packed_codes([OUTCOMES.index(turn.outcome) for turn in turns]),
            "call": packed_codes([known_units[name] for name in units]),
            "route": packed_codes([routes.index(turn.route) if turn.route in routes else -1 for turn in turns]),
        },
        labels={"route": routes},
        first_unix_ns=min(turn.began_unix_ns for turn in turns),
        newest_unix_ns=max(turn.began_unix_ns for turn in turns),
        unnamed_turns=sum(turn.user is None for turn in turns) if unit == "user" else None,
    )


def units_of(sent: Sequence[SentTurn], plan: RolloutPlan) -> UnitCounts:
    """Count the assigned units: the calls, or the users and the calls that name none."""
    met: dict[tuple[str, bool], set[str]] = {}
    for turn in sent:
        unit = turn.call if plan.unit == "call" or turn.user is None else turn.user
        is_known = plan.unit == "call" or turn.user is not None
        met.setdefault((unit, is_known), set()).add(turn.cohort)

    def alone(cohort: str) -> AssignedUnits:
        are_known = [is_known for (_, is_known), cohorts in met.items() if cohorts == {cohort}]
        return AssignedUnits(sum(are_known), len(are_known) - sum(are_known))

    both = sum(len(cohorts) > 1 for cohorts in met.values())
    unnamed = sum(not is_known for _, is_known in met)
    return UnitCounts(len(met), both, alone(plan.candidate), alone(plan.control), unnamed)


def expected(plan: RolloutPlan, sent: Sequence[SentTurn], since_unix_ns: int, *, of_pipecat: bool) -> dict[str, Any]:
    """The verdict's object by the pure gate, of the turns that were sent."""
    candidate, control = (
        columns_of(sent, cohort, plan.unit, of_pipecat=of_pipecat) for cohort in (plan.candidate, plan.control)
    )
    evidence = RolloutEvidence(
        candidate,
        control,
        telemetry_lost=None,
        cohorts=("canary", "stable"),
        units=units_of(sent, plan),
        services=(("front-desk",), ("front-desk",)),
    )
    history = first_history(plan).at_stage(plan.stages[0].name, since_unix_ns)
    return as_object(plan, decide(plan, evidence, history, time.time_ns()))


def differing(written: Any, wanted: Any, where: str = "") -> list[str]:
    """Where two objects of JSON differ, figures by their last digit too."""
    if isinstance(written, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in {**written, **wanted}
            for difference in differing(written.get(key), wanted.get(key), f"{where}.{key}")
        ]
    if isinstance(written, list) and isinstance(wanted, list) and len(written) == len(wanted):
        pairs = enumerate(zip(written, wanted, strict=True))
        return [
            difference for place, (one, other) in pairs for difference in differing(one, other, f"{where}[{place}]")
        ]
    return [] if written == wanted else [f"{where}: {written!r} was written, not {wanted!r}"]


@pytest.mark.parametrize("unit", nightly_after(1, ["call", "user"]))
def test_command_agrees_with_pure_gate_on_the_values_sent(
    store: tuple[str, FilledStore], unit: str, tmp_path: Path
) -> None:
    exporter, of = store
    text = plan_text(exporter, unit)
    (tmp_path / "rollout.toml").write_text(text)
    began_unix_ns = min(turn.began_unix_ns for turn in of.sent)
    since_unix_ns = began_unix_ns // S * S
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since_unix_ns // S))
    verdict_file = tmp_path / "verdict.json"
    arguments = ("--store", str(of.folder), "--since", since, "--json", str(verdict_file))
    ended = completed("rollout", "check", str(tmp_path / "rollout.toml"), *arguments)
    assert ended.returncode in (0, 3, 6), ended.stderr
    written = json.loads(verdict_file.read_text())
    wanted = expected(parse_plan(text, "the plan"), of.sent, since_unix_ns, of_pipecat=exporter == "pipecat")
    assert differing(written, json.loads(json.dumps(wanted))) == []
    assert ended.stdout.splitlines()[0] == wanted["sentence"]
    # Every figure was there to be compared, and the turns without a value are among those counted.
    for check in written["checks"]:
        assert check["status"] != "unknown", check["reason"]
        assert None not in (check["candidate"], check["control"], check["lower"], check["upper"]), check
    assert written["cohorts"]["candidate"]["turns"] == sum(turn.cohort == "canary" for turn in of.sent)
