"""Folders of runs for tests: stores of synthetic runs as `voiceprobe run` leaves them, with or without a summary."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from telemetry.model.turns import Turn
from tests.fixtures_turns import MS, START_UNIX_NS, Run, exchange, fill_store, run_span

HOUR_NS = 3_600_000_000_000


def latency_run(
    run_id: str, calls: int = 60, *, llm_ms: float = 150.0, seed: int = 1, began_unix_ns: int = START_UNIX_NS
) -> Run:
    """A run of three turns a call whose LLM takes `llm_ms` in the middle; slow calls are slow in all of their turns.
    40 utterances, in the same order in every run."""
    rng, run = np.random.default_rng(seed), Run()
    slow = np.repeat(rng.normal(0, 15, calls), 3)
    for index in range(3 * calls):
        client, service = exchange(
            index,
            run_id=run_id,
            started_unix_ns=began_unix_ns + index * 1_000_000_000,
            llm_ms=max(5.0, llm_ms + slow[index] + rng.normal(0, 25)),
            endpointing_ms=200 + (index % 40) * 2,
            cache_hit=bool(rng.random() < 0.3),
        )
        run.turns += [client, service]
    for worker in range(2):
        for phase, at in (("start", 0), ("end", 3 * calls)):
            span = run_span(f"{run_id}-{worker}", began_unix_ns + at * 1_000_000_000, phase)
            own = {
                "voice.run.run_id": run_id,
                "voice.run.process_id": f"{run_id}-worker-{worker}",
                "voice.run.corpus": "synthetic",
            }
            run.spans.append(replace(span, attributes={**span.attributes, **own}))
    return run


def run_folder(root: Path, name: str, run: Run) -> Path:
    """The folder of a run, without a summary."""
    folder = root / name
    (folder / "logs").mkdir(parents=True)
    fill_store(folder / "store", run)
    return folder


def write_summary(folder: Path, run_id: str, **changes: object) -> None:
    """The part of a summary that the list of runs reads."""
    summary: dict[str, object] = {
        "schema_version": 2,
        "run": {
            "id": run_id,
            "target": "ws://127.0.0.1:8080/v1/realtime",
            "protocol": "openai-realtime",
            "users": 8,
            "state": "ended",
            "started_unix_ns": START_UNIX_NS,
            "profile": {"noise": "babble", "snr_db": 10.0, "length": None, "channel": "clean"},
        },
        "turns": {"total": 180, "ok": 180, "invalid": 0},
        "metrics": {"voice_to_voice": {"n": 180, "p50_s": 0.5, "p95_s": 0.75, "p99_s": None}},
        "exit_code": 0,
        "exit_reason": "all 7 objectives are met",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps({**summary, **changes}))


def run_of(name: str, began_unix_ns: int, calls: int = 40) -> Run:
    """A run whose traces are its own."""
    run = latency_run(name, calls, seed=len(name), began_unix_ns=began_unix_ns)

    def own(turn: Turn) -> Turn:
        return msgspec.structs.replace(turn, trace_id=name.encode().hex().ljust(8, "0")[:8] + turn.trace_id[8:])

    return replace(run, turns=[own(turn) for turn in run.turns])


def part(run: Run, source: str, begin: int = 0, end: int | None = None) -> Run:
    """Some of a run's turns of one side."""
    return Run([turn for turn in run.turns if turn.source == source][begin:end])


__all__ = ["HOUR_NS", "MS", "latency_run", "part", "run_folder", "run_of", "write_summary"]
