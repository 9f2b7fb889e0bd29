"""What telemetry costs a worker for each turn, from the finished exchange to the collector's answer: the record, its
spans with their log, Locust's statistics, and the way to a collector.

`python -m ….callers.telemetry_cost COLLECTOR TURNS` prints one JSON object. It is measured in a process
that holds a worker of a swarm, patched by Locust, with one whole exchange that was played through a conversation;
processor time, not time that passed.
"""

# isort: off
from tests.benchmarks.bench.callers.our_callers import NO_LIMITS, make_worker  # first: it patches the process

# isort: on
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import locust
from locust.env import Environment

from loadtest.conversation.conversation import Conversation
from loadtest.conversation.evidence import ValidityLimits
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import CallPlan, PlannedTurn
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.record import CallInfo, RecordOptions, build_turn
from loadtest.conversation.transcripts import word_errors
from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.scenario.redactor import SecretRedactor
from loadtest.swarm.users import report_to_locust
from loadtest.swarm.worker import Worker
from telemetry.export import sdk
from telemetry.export.instrumentation import CallTrace
from telemetry.model.turns import Turn, with_plain_texts
from tests.benchmarks.bench.messages import tone

MS: Final = 1_000_000
BATCH_TURNS: Final = 250  # four spans each: a batch fits into the queue
FLUSH_S: Final = 30.0
LOOKED_FOR: Final = "0123456789abcdef"  # a run has a token, which is looked for in every text
ANSWER: Final = "it is open from nine to five on every day of the week but sunday"


def played_through(worker: Worker) -> Exchange:
    """A whole exchange of a call: asked, transcribed, answered in words and speech."""
    (speech,) = worker.prepared.clips
    plan = CallPlan("bench", (PlannedTurn(speech, 0, None),), worker.prepared.background, NO_LIMITS)
    conversation, at = Conversation(plan, PlayoutBuffer("rms-10ms")), worker.engine.clocks.perf_ns()
    conversation.begin(at)
    conversation.on_time(at)
    conversation.on_speech_start(at + 100 * MS, 20_000)
    conversation.on_speech_end(at + 1500 * MS, 1_400 * MS, 20_000, 0)
    end = at + 1500 * MS

    def heard(after_ms: int, event: VoiceEvent) -> list[object]:
        return list(conversation.on_event(event, end + after_ms * MS))

    words = speech.rendered.utterance.text
    heard(200, VoiceEvent(EventKind.SPEECH_STOPPED, "speech_stopped"))
    heard(300, VoiceEvent(EventKind.ASR_FINAL, "asr_final", text=words))
    cohort = {"voice.cohort": "control"}
    heard(320, VoiceEvent(EventKind.RESPONSE_STARTED, "response_started", response_id="r", metadata=cohort))
    for number, word in enumerate(ANSWER.split(" ")):
        heard(400 + 30 * number, VoiceEvent(EventKind.LLM_TEXT, "llm_text", response_id="r", text=f"{word} "))
    for number in range(40):
        audio = VoiceEvent(EventKind.AUDIO, "audio", response_id="r", audio=tone(4800), rate_hz=24_000)
        heard(900 + 20 * number, audio)
    done = heard(1800, VoiceEvent(EventKind.RESPONSE_DONE, "response_done", response_id="r", status="completed"))
    done += conversation.on_time(end + 60_000 * MS)
    (exchange,) = (action for action in done if isinstance(action, Exchange))
    return exchange


def call_info(worker: Worker) -> CallInfo:
    """What is recorded of the call beside its turn, as a worker does."""
    return CallInfo(
        run_id=worker.run_id,
        call_id="bench",
        scenario=None,
        noise_profile="clean",
        channel_profile="clean",
        protocol="openai-realtime",
        target="ws://127.0.0.1/",
        region=None,
        cohort=None,
        model=None,
        onset_preset="rms-10ms",
        connect_ns=None,
        start_late_ns=None,
        receive_stamp="user",
        pacer=worker.engine.pacer,
        not_observable={},
    )


def measure(worker: Worker, telemetry: sdk.Telemetry, turns: int) -> dict[str, object]:
    """Microseconds of processor time a turn, by step."""
    exchange, info, clocks = played_through(worker), call_info(worker), worker.engine.clocks
    options = RecordOptions(
        ValidityLimits(),
        keep_transcripts=False,
        word_errors=word_errors,
        unix_ns=clocks.to_unix_ns,
        phase_of=worker.clock.phase_of,
    )
    trace = CallTrace(
        telemetry,
        run_id=worker.run_id,
        call_id="bench",
        source="client",
        started_unix_ns=clocks.to_unix_ns(clocks.perf_ns()),
        started_perf_ns=clocks.perf_ns(),
        attributes={},
    )
    redactor = SecretRedactor([LOOKED_FOR])
    environment = Environment(events=locust.events)
    environment.create_local_runner()

    def record(each: Exchange) -> Turn:
        return redactor.turn(with_plain_texts(build_turn(each, info, options)))

    spent_s: defaultdict[str, float] = defaultdict(float)

    def timed(step: str, work: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
        began_s = time.process_time()
        done = [work(each) for each in given]
        spent_s[step] += time.process_time() - began_s
        return done

    before = telemetry.export_stats().exported_spans
    for first in range(0, turns, BATCH_TURNS):
        emitted = timed("emit", trace.emit, timed("build", record, [exchange] * min(BATCH_TURNS, turns - first)))
        timed("events", lambda turn: report_to_locust(environment, turn), emitted)
        if not all(timed("export", telemetry.flush, [FLUSH_S])):
            raise RuntimeError(f"the collector did not take the spans of {len(emitted)} turns within {FLUSH_S:g} s")
    stats = telemetry.export_stats()
    return {
        "turns": turns,
        "outcome": exchange.outcome,
        **{f"{step}_us": seconds / turns * 1e6 for step, seconds in spent_s.items()},
        "spans_exported": stats.exported_spans - before,
        "spans_lost": stats.dropped_spans + stats.rejected_spans,
    }


def main() -> None:
    """Measure, and print the figures."""
    collector, turns = sys.argv[1:]
    worker = make_worker("ws://127.0.0.1/")
    with tempfile.TemporaryDirectory() as folder:
        telemetry = sdk.start(sdk.SdkOptions(collector, "voiceprobe-caller", spool_dir=Path(folder)))
        telemetry.flush(FLUSH_S)
        found = measure(worker, telemetry, int(turns))
        telemetry.shutdown(FLUSH_S)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
