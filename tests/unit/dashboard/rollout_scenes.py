"""Stores with a rollout for the dashboard's tests: turns through the real writer, verdicts by the real gate and log."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from telemetry.model.turns import Turn
from telemetry.rollout.gate import decide
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.rollouts.rollout_log import RolloutLog
from telemetry.store.questions.rollouts import evidence_of, question_of
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn

S = 1_000_000_000
MINUTE = 60 * S
PLAN = """\
name = "streaming"
unit = "call"
slices = ["noise_profile", "length_class"]

[cohorts]
control = "stable"
candidate = "streaming"

[[stages]]
name = "20-percent"
share = 0.2
shortest = "10m"
fewest_turns = 300

[[stages]]
name = "50-percent"
share = 0.5
shortest = "10m"
fewest_turns = 300

[[stages]]
name = "80-percent"
share = 0.8
shortest = "10m"
fewest_turns = 500

[primary]
metric = "voice_to_voice"
statistic = "p95"
margin = "100ms"

[[guardrails]]
check = "good_turns"
within = "1s"
margin = 0.03

[[guardrails]]
check = "no_reply"
margin = 0.02

[[guardrails]]
check = "tail"
margin = 0.04
"""


@dataclass(frozen=True)
class Rollout:
    """The course of a rollout: the candidate is later by `slower_ms`, turns come one a second from `begins` on, and one
    of `invalid_each` is invalid."""

    slower_ms: float = 0.0
    turns: int = 6400
    looks: int = 16
    seed: int = 3
    moves: bool = True
    invalid_each: int = 0


def turns_of(of: Rollout, begins_unix_ns: int, places: range, share: float) -> list[Turn]:
    """Turns of calls of four, so large a share of the calls on the candidate."""
    rng = np.random.default_rng((of.seed, places.start))
    turns: list[Turn] = []
    for index in places:
        call = index // 4
        is_candidate = call % 10 < share * 10
        value = 450 + 150 * float(rng.lognormal(0, 0.35)) + (of.slower_ms if is_candidate else 0)
        turns.append(
            client_turn(
                index,
                voice_to_voice_ms=None if rng.random() < 0.004 else value,
                call_id=f"call-{call}",
                turn_index=index % 4,
                cohort="streaming" if is_candidate else "stable",
                started_unix_ns=begins_unix_ns + index * S,
                noise_profile=("clean", "street")[call % 2],
                length_class=("short", "long")[call // 2 % 2],
                utterance_id=f"u{index % 40}",
                route=("cloud", "local")[call % 3 // 2],
                trace_id=f"{call + 1:032x}",
                # A process numbers its turns once: none of another run may have its number.
                process_id="rollout-worker",
            )
        )
        if of.invalid_each and index % of.invalid_each == 7:
            turns[-1] = msgspec.structs.replace(turns[-1], outcome="invalid", invalid_reasons=("a frame was late",))
    return turns


def fill_rollout(store: Path, of: Rollout, now_unix_ns: int, text: str = PLAN) -> Path:
    """Write the turns and take the looks, evenly; a promotion begins the next stage where there is one."""
    begins = now_unix_ns - of.turns * S
    plan = parse_plan(text, "streaming")
    written = 0
    with StoreWriter(store) as writer, RolloutLog(store, plan, text, begins) as log:
        for look in range(1, of.looks + 1):
            until = of.turns * look // of.looks // 4 * 4
            share = plan.stage(log.history.stage).share
            writer.append(Batch(turns=turns_of(of, begins, range(written, until), share)))
            written = until
            at = begins + until * S
            with StoreReader(store, wall_clock_ns=lambda at=at: at) as reader:
                evidence = reader.rollout_turns(question_of(plan, log.history.stage_since_unix_ns))
            verdict = decide(plan, evidence_of(evidence), log.history, at)
            log.append(plan, verdict)
            if of.moves and verdict.verdict == "promote" and verdict.next_stage is not None:
                log.move(verdict.next_stage.name, at)
    return store
