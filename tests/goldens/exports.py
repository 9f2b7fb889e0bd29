"""The OTLP requests of a day, and when each comes: those of callers, of services, of frameworks and of model servers.

Callers send the turns of `calls` with a span for each stage and for each call. The service `assistant` reports a third
of the calls by spans of its own: in the caller's trace, or, where the wire lost it, in one of its own that names the
call. A bot of Pipecat reports two days. Some requests come twice, some spans late, some in another order.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.model.generator_health import gauge_metric
from telemetry.model.turn_spans import turn_attributes
from telemetry.model.turns import Turn
from tests.fixtures_frameworks import PipecatTurn, pipecat_request
from tests.fixtures_sidecar import any_value
from tests.goldens.calls import MINUTE, MORNING_UNIX_NS, MS, RUNS, SECOND, CallerRun, turns_of

DAY_NS: Final = 24 * 60 * MINUTE
LATER_NS: Final = 45 * SECOND
_SPANS_OF_A_REQUEST: Final = 64
_STAGES: Final = (
    (semconv.SPAN_ASR, "speech_start_perf_ns", "asr_final_perf_ns"),
    (semconv.SPAN_LLM, "asr_final_perf_ns", "llm_last_token_perf_ns"),
    (semconv.SPAN_TTS, "llm_first_token_perf_ns", "tts_last_chunk_perf_ns"),
)
# Events of a service of one's own, by the field of the turn that each sets.
_EVENTS: Final = {
    "speech_start_perf_ns": "voice.speech.start",
    "speech_end_perf_ns": "voice.speech.end",
    "endpoint_perf_ns": "voice.endpoint",
    "asr_final_perf_ns": "voice.asr.final",
    "llm_first_token_perf_ns": "voice.llm.first_token",
    "llm_last_token_perf_ns": "voice.llm.last_token",
}
_NETWORK_NS: Final = 7 * MS


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request, and when it comes by the receiver's clock."""

    unix_ns: int
    signal: Literal["traces", "metrics"]
    body: bytes


def arrivals(changed: Callable[[Turn], Turn] = lambda turn: turn) -> list[Arrival]:
    """All requests, in the order in which they come; with other turns of callers where `changed` gives others."""
    sent: list[Arrival] = []
    for run in RUNS:
        calls = [[changed(turn) for turn in call] for call in turns_of(run)]
        sent += _of_callers(run, calls)
        sent += _of_assistant(run, calls)
        emitted = [0] * run.workers
        for turn in (turn for call in calls for turn in call):
            emitted[int(turn.process_id[-1])] = (turn.sequence or 0) + 1
        sent.append(Arrival(run.ends_unix_ns, "metrics", health(run, emitted)))
    sent += _of_bot()
    sent += _of_model_servers()
    return sorted(sent, key=lambda arrival: arrival.unix_ns)


def _of_callers(run: CallerRun, calls: Sequence[Sequence[Turn]]) -> Iterator[Arrival]:
    yield Arrival(run.begins_unix_ns, "traces", traces_request("voiceprobe", semconv.SCOPE, announced(run, "start")))
    spans = [span for number, call in enumerate(calls) for span in call_spans(run, number, call)]
    spans.sort(key=lambda span: span.end_time_unix_nano)
    for number, first in enumerate(range(0, len(spans), _SPANS_OF_A_REQUEST)):
        part = spans[first : first + _SPANS_OF_A_REQUEST]
        body = traces_request("voiceprobe", semconv.SCOPE, part)
        at_unix_ns = part[-1].end_time_unix_nano + SECOND
        yield Arrival(at_unix_ns, "traces", body)
        if number % 4 == 1:  # sent again, and once more split and turned round
            yield Arrival(at_unix_ns + LATER_NS, "traces", body)
            again = traces_request("voiceprobe", semconv.SCOPE, part[: -_SPANS_OF_A_REQUEST // 2 : -1])
            yield Arrival(at_unix_ns + 2 * LATER_NS, "traces", again)
    yield Arrival(run.ends_unix_ns, "traces", traces_request("voiceprobe", semconv.SCOPE, announced(run, "end")))


def announced(run: CallerRun, phase: str) -> Iterator[Span]:
    """Yield what each process declares about the run; one of those of `evening` ends without declaring it."""
    rng = random.Random(f"{run.run_id} {phase}")
    at_unix_ns = run.begins_unix_ns if phase == "start" else run.ends_unix_ns
    for worker in range(run.workers):
        if phase == "end" and run.run_id == "evening" and worker == 2:
            return
        attributes = {
            "run_id": run.run_id,
            "phase": phase,
            "process_id": f"{run.run_id}-worker-{worker}",
            "worker": f"{worker + 1} of {run.workers}",
            "processes": run.workers,
            "users": 8,
            "target": run.target,
            "protocol": run.protocol,
            "seed": 7,
            "noise": "babble",
            "cores": 4,
            "calibrated_to_ms": "0.4",
            "arrivals": "open" if run.run_id == "evening" else "closed",
        }
        yield _span(
            semconv.SPAN_RUN,
            (f"{rng.getrandbits(128):032x}", f"{rng.getrandbits(64):016x}", None),
            (at_unix_ns, at_unix_ns),
            {f"{semconv.RUN_PREFIX}{name}": value for name, value in attributes.items()},
        )


def call_spans(run: CallerRun, number: int, call: Sequence[Turn]) -> Iterator[Span]:
    first, last = call[0], call[-1]
    call_span = f"{number + 1:016x}"
    for turn in call:
        end_perf_ns = turn.reply_end_perf_ns or turn.hangup_perf_ns or turn.started_perf_ns + 12 * SECOND
        span = _span(
            semconv.SPAN_TURN,
            (turn.trace_id, turn.span_id, call_span),
            (turn.started_unix_ns, turn.started_unix_ns + end_perf_ns - turn.started_perf_ns),
            turn_attributes(turn),
        )
        yield span
        for place, (name, begin, end) in enumerate(_STAGES, start=1):
            begin_perf_ns, end_perf_ns = getattr(turn, begin), getattr(turn, end)
            if begin_perf_ns is not None and end_perf_ns is not None:
                to_wall = turn.started_unix_ns - turn.started_perf_ns
                own = {f"{semconv.CALL_PREFIX}call_id": turn.call_id, "gen_ai.system": "scripted"}
                ids = (turn.trace_id, f"{int(turn.span_id, 16) ^ place:016x}", turn.span_id)
                yield _span(name, ids, (begin_perf_ns + to_wall, end_perf_ns + to_wall), own)
    yield _span(
        semconv.SPAN_CALL,
        (first.trace_id, call_span, None),
        (first.started_unix_ns, last.started_unix_ns + 15 * SECOND),
        {f"{semconv.CALL_PREFIX}run_id": run.run_id, f"{semconv.CALL_PREFIX}call_id": first.call_id},
    )


def _of_assistant(run: CallerRun, calls: Sequence[Sequence[Turn]]) -> Iterator[Arrival]:
    """Every third call, as the service itself saw it; the synthesis of some turns is reported late."""
    rng = random.Random(f"assistant {run.run_id}")
    for number, call in enumerate(calls):
        if number % 3:
            continue
        conversation = {0: call[0].call_id, 1: f"CA-{call[0].trace_id}", 2: call[0].call_id}[number // 3 % 3]
        is_lost = number // 3 % 3 != 2
        trace_id = f"{rng.getrandbits(128):032x}" if is_lost else call[0].trace_id
        spans: list[Span] = []
        late: list[Span] = []
        for turn in call:
            own = _service_spans(rng, turn, trace_id, conversation)
            if number % 2 == 0:
                own[0].attributes.append(KeyValue(key="voice.run_id", value=any_value(run.run_id)))
            spans += own
            if rng.random() < 0.15 and len(own) > 1:
                late.append(spans.pop())
        rng.shuffle(spans)
        at_unix_ns = call[-1].started_unix_ns + 14 * SECOND
        yield Arrival(at_unix_ns, "traces", traces_request("assistant", "assistant.turns", spans))
        if late:
            yield Arrival(at_unix_ns + LATER_NS, "traces", traces_request("assistant", "assistant.turns", late))


def _service_spans(rng: random.Random, turn: Turn, trace_id: str, conversation: str) -> list[Span]:
    """The service's span of a turn, and that of its synthesis where it answered."""
    to_wall = turn.started_unix_ns - turn.started_perf_ns + rng.randrange(-3, 3) * MS
    own = f"{rng.getrandbits(64):016x}"
    attributes: dict[str, object] = {
        "gen_ai.conversation.id": conversation,
        "voice.turn.turn_index": turn.turn_index,
        "voice.turn.cohort": turn.cohort,
        "voice.turn.route": turn.route,
        "voice.turn.cache_hit": turn.cache_hit,
        "voice.turn.fallback": turn.fallback,
        "voice.turn.response_id": turn.response_id,
        "user.id": turn.user_id,
    }
    end_unix_ns = turn.started_unix_ns + 9 * SECOND
    span = _span(
        semconv.SPAN_TURN,
        (trace_id, own, turn.span_id if trace_id == turn.trace_id else None),
        (turn.started_unix_ns, end_unix_ns),
        {name: value for name, value in attributes.items() if value is not None},
    )
    moments = {name: moment - _NETWORK_NS for name in _EVENTS if (moment := getattr(turn, name)) is not None}
    if rng.random() < 0.05 and "llm_first_token_perf_ns" in moments:
        moments["llm_first_token_perf_ns"] = turn.started_perf_ns - 40 * SECOND  # which cannot be
    for name, moment in moments.items():
        span.events.add(name=_EVENTS[name], time_unix_nano=moment + to_wall)
    if turn.tts_first_chunk_perf_ns is None:
        span.status.code = 2 if turn.outcome == "error" else 0
        return [span]
    chunk_unix_ns = turn.tts_first_chunk_perf_ns - _NETWORK_NS + to_wall
    voice = _span(semconv.SPAN_TTS, (trace_id, f"{rng.getrandbits(64):016x}", own), (chunk_unix_ns, end_unix_ns), {})
    voice.events.add(name="voice.tts.first_chunk", time_unix_nano=chunk_unix_ns)
    return [span, voice]


def _of_bot() -> Iterator[Arrival]:
    """A bot of Pipecat on two days, and spans that no adapter knows."""
    for day in range(2):
        for call in range(7):
            begins = MORNING_UNIX_NS - 60 * MINUTE + day * DAY_NS
            turns = [
                PipecatTurn(
                    10 * day + call,
                    index,
                    None if (call + index) % 6 == 5 else 0.4 + 0.037 * (3 * call + index),
                    begins,
                )
                for index in range(3)
            ]
            at_unix_ns = turns[-1].start_unix_ns + 5 * SECOND
            yield Arrival(at_unix_ns, "traces", pipecat_request([span for turn in turns for span in turn.spans()]))
    odd = _span("http.request", (f"{9:032x}", f"{9:016x}", None), (MORNING_UNIX_NS, MORNING_UNIX_NS + SECOND), {})
    yield Arrival(MORNING_UNIX_NS, "traces", traces_request("gateway", "opentelemetry.http", [odd]))


def health(run: CallerRun, emitted: Sequence[int]) -> bytes:
    """Encode what the generator's processes report about themselves and their turns, and of open arrivals how
    calls began."""
    rng = random.Random(f"health {run.run_id}")
    points: list[tuple[str, int, float, dict[str, object]]] = []
    for worker in range(run.workers):
        own: dict[str, object] = {"run_id": run.run_id, "process_id": f"{run.run_id}-worker-{worker}"}
        lasts = run.ends_unix_ns - run.begins_unix_ns
        for place in range(24):
            at_unix_ns = run.begins_unix_ns + lasts * place // 23
            values = {
                "cpu_ratio": round(rng.uniform(0.2, 0.5), 4),
                "loop_lag_worst_ns": float(rng.randrange(3 * MS)),
                "frame_lateness_worst_ns": float(rng.randrange(4 * MS)),
                "calls_in_flight": float(rng.randrange(9)) if place < 23 else 0.0,
                "gc_pause_worst_ns": float(rng.randrange(MS)),
                "clock_offset_drift_ns": float(rng.randrange(-20_000, 20_000)),
                "unsent_worst_bytes": float(rng.choice((0, 640))),
                "frames_held_up": float(place // 8),
                "frames_sent": float(place * 4_000),
            }
            points += [(gauge_metric(name), at_unix_ns, value, own) for name, value in values.items()]
        points.append((semconv.METRIC_TURNS_EMITTED, run.ends_unix_ns, float(emitted[worker]), own))
        if run.run_id == "evening":
            points += _starts(run, own, worker)
    return metrics_request("voiceprobe", semconv.SCOPE, points)


def _starts(run: CallerRun, own: dict[str, object], worker: int) -> Iterator[tuple[str, int, float, dict[str, object]]]:
    for begin_s, (phase, kind) in zip((0.0, 150.0), run.phases, strict=True):
        counts = {"planned": 18 + worker, "started": 17 + worker, "late": worker, "dropped": 1}
        for which, count in counts.items():
            named = {"phase": phase, "phase_kind": kind, "phase_begin_s": begin_s, "which": which}
            at_unix_ns = run.begins_unix_ns + round(begin_s * SECOND) + MINUTE
            yield semconv.METRIC_GENERATOR_STARTS, at_unix_ns, float(count), own | named


def _of_model_servers() -> Iterator[Arrival]:
    """The page of a vLLM server with two engines, read every 30 s in the morning; one reading failed."""
    rng = random.Random("vllm")
    totals = {(name, engine): 1_000.0 for name in ("queries", "hits") for engine in (0, 1)}
    counts = [[0] * 4, [0] * 4]
    for place in range(30):
        at_unix_ns = MORNING_UNIX_NS - 60 * SECOND + place * 30 * SECOND
        is_read = place != 16
        up = (semconv.SCRAPE_UP, at_unix_ns, float(is_read), dict[str, object]())
        request = ExportMetricsServiceRequest.FromString(metrics_request("vllm-1", semconv.SCRAPE_SCOPE, [up]))
        for engine in (0, 1) if is_read else ():
            own: dict[str, object] = {semconv.GEN_AI_REQUEST_MODEL: "large", semconv.SCRAPE_ENGINE: engine}
            asked = rng.randrange(100, 900)
            totals["queries", engine] += asked
            totals["hits", engine] += asked // rng.choice((2, 3))
            counts[engine][rng.randrange(4)] += rng.randrange(1, 12)
            metrics = request.resource_metrics[0].scope_metrics[0].metrics
            for name in ("queries", "hits"):
                metric = metrics.add(name=f"vllm:prefix_cache_{name}")
                metric.sum.aggregation_temporality, metric.sum.is_monotonic = 2, True
                _number(metric.sum.data_points.add(), at_unix_ns, totals[name, engine], own)
            metric = metrics.add(name="vllm:num_requests_waiting")
            _number(metric.gauge.data_points.add(), at_unix_ns, float(rng.randrange(5)), own)
            _histogram(metrics.add(name="vllm:request_queue_time_seconds"), at_unix_ns, counts[engine], own)
        yield Arrival(at_unix_ns, "metrics", request.SerializeToString())


def _number(point: object, unix_ns: int, value: float, attributes: dict[str, object]) -> None:
    point.time_unix_nano, point.as_double = unix_ns, value
    point.attributes.extend(KeyValue(key=key, value=any_value(attribute)) for key, attribute in attributes.items())


def _histogram(metric: Metric, unix_ns: int, counts: Sequence[int], attributes: dict[str, object]) -> None:
    metric.histogram.aggregation_temporality = 2
    point = metric.histogram.data_points.add(time_unix_nano=unix_ns, count=sum(counts), sum=sum(counts) * 0.25)
    point.bucket_counts.extend(counts)
    point.explicit_bounds.extend((0.1, 0.5, 1.0))
    point.attributes.extend(KeyValue(key=key, value=any_value(attribute)) for key, attribute in attributes.items())


def metrics_request(service: str, scope: str, points: Iterable[tuple[str, int, float, dict[str, object]]]) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=any_value(service)))
    of_scope = resource.scope_metrics.add()
    of_scope.scope.name = scope
    for name, unix_ns, value, attributes in points:
        _number(of_scope.metrics.add(name=name).gauge.data_points.add(), unix_ns, value, attributes)
    return request.SerializeToString()


def traces_request(service: str, scope: str, spans: Iterable[Span]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=any_value(service)))
    of_scope = resource.scope_spans.add()
    of_scope.scope.name = scope
    of_scope.spans.extend(spans)
    return request.SerializeToString()


def _span(name: str, ids: tuple[str, str, str | None], lasts: tuple[int, int], attributes: dict[str, object]) -> Span:
    trace_id, span_id, parent = ids
    return Span(
        trace_id=bytes.fromhex(trace_id),
        span_id=bytes.fromhex(span_id),
        parent_span_id=b"" if parent is None else bytes.fromhex(parent),
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=lasts[0],
        end_time_unix_nano=max(lasts),
        attributes=[KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()],
    )
