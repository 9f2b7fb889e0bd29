"""What telemetry costs a worker for each turn: the record, its span with the stages, and the way to a collector.

`python -m tests.benchmarks.telemetry_cost COLLECTOR TURNS` prints one JSON object. A worker of a swarm does it, patched
by Locust, with one whole exchange that was played through its session; processor time, not time that passed.
"""

# isort: off
from tests.benchmarks import our_callers  # first: it patches the process

# isort: on
import json
import sys
import time

from loadtest.conversation.conversation import Exchange
from loadtest.conversation.plan import CallPlan, PlannedTurn
from loadtest.conversation.record import build_turn
from loadtest.engine.call import Call
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, EventKind, UpgradeRequest, VoiceEvent
from loadtest.protocols.websocket import WebSocketClient
from loadtest.swarm.worker import Worker
from telemetry.export.instrumentation import CallTrace
from tests.benchmarks.messages import tone

MS = 1_000_000
BATCH_TURNS = 250  # four spans each: a batch fits into the queue
FLUSH_S = 30.0
ANSWER = "it is open from nine to five on every day of the week but sunday"


def played_through(worker: Worker) -> tuple[Call, Exchange]:
    """A call, and a whole exchange of it: asked, transcribed, answered in words and speech."""
    (speech,) = worker.prepared.clips
    plan = CallPlan(
        "bench", (PlannedTurn(speech, 0, None),), worker.prepared.background, our_callers.endless("", speech).limits
    )
    protocol = registry.make_caller("openai-realtime", CallerOptions())
    call = Call(worker.engine, plan, protocol, WebSocketClient(UpgradeRequest("ws://127.0.0.1/")), "rms-10ms")
    conversation, at = call.conversation, worker.engine.clocks.perf_ns()
    conversation.begin(at)
    conversation.on_time(at)
    conversation.on_speech_start(at + 100 * MS, 20_000)
    conversation.on_speech_end(at + 1500 * MS, 1_400 * MS, 20_000, 0)
    end = at + 1500 * MS

    def heard(after_ms: int, kind: EventKind, **fields: object) -> list[object]:
        event = VoiceEvent(kind, str(kind), **fields)  # type: ignore[arg-type]  # a literal each
        return list(conversation.on_event(event, end + after_ms * MS))

    heard(200, EventKind.SPEECH_STOPPED)
    heard(300, EventKind.ASR_FINAL, text=speech.rendered.utterance.text)
    heard(320, EventKind.RESPONSE_STARTED, response_id="r", metadata={"voice.cohort": "control"})
    for number, word in enumerate(ANSWER.split(" ")):
        heard(400 + 30 * number, EventKind.LLM_TEXT, response_id="r", text=f"{word} ")
    for number in range(40):
        audio = tone(4800)
        heard(900 + 20 * number, EventKind.AUDIO, response_id="r", audio=audio, rate_hz=24_000)
    done = heard(1800, EventKind.RESPONSE_DONE, response_id="r", status="completed")
    done += conversation.on_time(end + 60_000 * MS)
    (exchange,) = (action for action in done if isinstance(action, Exchange))
    return call, exchange


def measure(worker: Worker, turns: int) -> dict[str, object]:
    """Microseconds of processor time a turn, by step."""
    call, exchange = played_through(worker)
    clocks, telemetry = worker.engine.clocks, worker._telemetry
    trace = CallTrace(
        telemetry,
        run_id=worker.run_id,
        call_id="bench",
        source="client",
        started_unix_ns=clocks.to_unix_ns(clocks.perf_ns()),
        started_perf_ns=clocks.perf_ns(),
        attributes={},
    )
    facts = worker._info(call)
    build_s = emit_s = export_s = 0.0
    before = telemetry.export_stats().exported_spans
    for first in range(0, turns, BATCH_TURNS):
        number = min(BATCH_TURNS, turns - first)
        began_s = time.process_time()
        built = [build_turn(exchange, facts, worker._record) for _ in range(number)]
        built_s = time.process_time()
        for turn in built:
            trace.emit(turn)
        emitted_s = time.process_time()
        if not telemetry.flush(FLUSH_S):
            raise RuntimeError(f"the collector did not take the spans of {number} turns within {FLUSH_S:g} s")
        build_s += built_s - began_s
        emit_s += emitted_s - built_s
        export_s += time.process_time() - emitted_s
    stats = telemetry.export_stats()
    return {
        "turns": turns,
        "outcome": exchange.outcome,
        "build_us": build_s / turns * 1e6,
        "emit_us": emit_s / turns * 1e6,
        "export_us": export_s / turns * 1e6,
        "spans_exported": stats.exported_spans - before,
        "spans_lost": stats.dropped_spans + stats.rejected_spans,
    }


def main() -> None:
    """Measure, and say it."""
    collector, turns = sys.argv[1:]
    worker = our_callers.make_worker("ws://127.0.0.1/", sidecar=collector)
    worker._telemetry.flush(FLUSH_S)
    sys.stdout.write(json.dumps(measure(worker, int(turns))) + "\n")


if __name__ == "__main__":
    main()
