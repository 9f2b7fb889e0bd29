"""One caller who says each utterance to several targets in turn: a process that `voiceprobe pair` starts.

    python -m loadtest.swarm.paired_callers SEED SETTINGS.json SETTINGS.json …

Each file holds the settings of one target, as `loadtest.scenario.document` writes them; all have the same seed, so that
the planners of all deal the same utterances in the same variants. For each line on standard input, the next utterance
is said once to every target, in an order drawn with the seed, and one JSON object comes back: the utterance, and
the outcome and metrics of each turn.
"""

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402 - what is imported before gevent has patched the process keeps the unpatched parts
import random  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from corpora.manifest.errors import CorpusError  # noqa: E402
from loadtest.errors import VoiceprobeError  # noqa: E402
from loadtest.exit_codes import ExitCode  # noqa: E402
from loadtest.scenario.document import read_settings  # noqa: E402
from loadtest.swarm.worker import Worker  # noqa: E402
from telemetry.model.errors import TelemetryError  # noqa: E402
from telemetry.model.metrics import METRICS  # noqa: E402
from telemetry.model.turns import Turn  # noqa: E402


def main() -> int:
    """Serve until standard input closes; the exit code."""
    seed, *files = sys.argv[1:]
    workers: list[Worker] = []
    try:
        for file in files:
            workers.append(Worker(read_settings(Path(file))))
            workers[-1].clock.start(workers[-1].engine.clocks.perf_ns())
    except (VoiceprobeError, CorpusError, TelemetryError) as error:
        sys.stderr.write(f"voiceprobe: {error}\n")
        return int(ExitCode.USAGE)
    order = random.Random(f"{seed} order")  # noqa: S311 - drawn again with the same seed
    _write({"ready": True, "clips": len(workers[0].prepared.clips)})
    try:
        while gevent.get_hub().threadpool.apply(sys.stdin.readline):
            _write(_say(workers, order))
    finally:
        for worker in workers:
            worker.close()
    return int(ExitCode.OK)


def _say(workers: list[Worker], order: random.Random) -> dict[str, Any]:
    """Say the next utterance to every target."""
    plans = [worker.plan() for worker in workers]
    asked = list(range(len(workers)))
    order.shuffle(asked)
    turns: list[dict[str, Any] | None] = [None] * len(workers)
    for place in asked:
        heard: list[Turn] = []
        workers[place].call(heard.append, plan=plans[place])
        turns[place] = _figures(heard[0]) if heard else None
    clip = plans[0].turns[0].clip
    return {"utterance": None if clip is None else clip.rendered.utterance.id, "turns": turns}


def _figures(turn: Turn) -> dict[str, Any]:
    values = {name: metric.value(turn) for name, metric in METRICS.items()}
    return {
        "outcome": turn.outcome,
        "values": {name: value for name, value in values.items() if value is not None},
        "fallback": turn.fallback,
        "cache_hit": turn.cache_hit,
    }


def _write(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
