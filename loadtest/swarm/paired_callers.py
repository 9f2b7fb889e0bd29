"""One caller who says each utterance to several targets in turn: a process that `voiceprobe pair` starts.

    python -m loadtest.swarm.paired_callers SEED HEARS_OUT SETTINGS.json SETTINGS.json …

Each file holds the settings of one target, as `loadtest.scenario.document` writes them; all have the same seed, so that
the planners of all deal the same utterances in the same variants. For each line on standard input, the next utterance
is said once to every target, in an order drawn with the seed, and one JSON object comes back: the utterance, and
the outcome and metrics of each turn. With HEARS_OUT 0 a caller hangs up once the answer is audible and has arrived
whole, and does not wait until it has been played.
"""

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402 - what is imported before gevent has patched the process keeps the unpatched parts
import random  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Final  # noqa: E402

import gevent  # noqa: E402

from corpora.manifest.errors import CorpusError  # noqa: E402
from loadtest.conversation.exchange import Exchange  # noqa: E402
from loadtest.errors import VoiceprobeError  # noqa: E402
from loadtest.exit_codes import ExitCode  # noqa: E402
from loadtest.scenario.document import read_settings  # noqa: E402
from loadtest.swarm.worker import Worker  # noqa: E402
from telemetry.model.bounds import metric_bounds  # noqa: E402
from telemetry.model.errors import TelemetryError  # noqa: E402
from telemetry.model.metrics import METRICS  # noqa: E402
from telemetry.model.turns import Turn  # noqa: E402
from telemetry.objectives.judgment import is_unanswered  # noqa: E402

# Where an endpoint reports what an answer took, as a JSON object of numbers: the reference assistant does.
META_WORK: Final = "voice.work"
_ENDED: Final = re.compile(r"[.!?…][\"')\]]*\s*$")


def main() -> int:
    """Serve until standard input closes; the exit code."""
    seed, hears_out, *files = sys.argv[1:]
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
            _write(_say(workers, order, hears_out=hears_out != "0"))
    finally:
        for worker in workers:
            worker.close()
    return int(ExitCode.OK)


def _say(workers: list[Worker], order: random.Random, *, hears_out: bool) -> dict[str, Any]:
    """Speak the next utterance to every target."""
    plans = [worker.plan() for worker in workers]
    asked = list(range(len(workers)))
    order.shuffle(asked)
    turns: list[dict[str, Any] | None] = [None] * len(workers)
    for place in asked:
        plan = replace(plans[place], limits=replace(plans[place].limits, hears_out=hears_out))
        heard: list[Turn] = []
        exchanges: list[Exchange] = []
        workers[place].call(heard.append, plan=plan, on_exchange=exchanges.append)
        turns[place] = _figures(heard[0], exchanges[0]) if heard else None
    clip = plans[0].turns[0].clip
    return {"utterance": None if clip is None else clip.rendered.utterance.id, "turns": turns}


def _figures(turn: Turn, exchange: Exchange) -> dict[str, Any]:
    values = {
        name: (value, *(metric_bounds(turn, metric) or (value, value)))
        for name, metric in METRICS.items()
        if (value := metric.value(turn)) is not None
    }
    answer = exchange.timeline.answer
    text = "" if answer is None else answer.text.strip()
    metadata = exchange.service.metadata | ({} if answer is None else answer.metadata)
    return {
        # Objectives count a reply that was broken off unheard as no reply.
        "outcome": "no_reply" if turn.outcome == "interrupted" and is_unanswered(turn) else turn.outcome,
        "values": values,
        "wer_errors": turn.wer_errors,
        "wer_words": turn.wer_reference_words,
        "fallback": turn.fallback,
        "cache_hit": turn.cache_hit,
        "cache_tier": turn.cache_tier,
        "route": turn.route,
        "answer_words": len(text.split()) if text else None,
        "answer_whole": bool(_ENDED.search(text)) if text else None,
        "work": {
            "input_tokens": turn.llm_input_tokens,
            "cached_tokens": turn.llm_cached_tokens,
            "output_tokens": turn.llm_tokens,
        },
        "reported_work": metadata.get(META_WORK, ""),
    }


def _write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
