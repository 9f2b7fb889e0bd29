"""Kills a sidecar again and again while it is sent to.

Four senders post batches of spans and write down what was acknowledged. At a moment drawn by chance every process of
the sidecar is killed (SIGKILL), and another sidecar starts on the same store: what was not acknowledged is sent again,
and some of what was, too; as it was, in two halves, or with another batch, in another order.
In the end every acknowledged span, and the turn of every span that makes one, has to be there exactly once.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.model import semconv
from telemetry.model.turn_spans import turn_attributes
from telemetry.store.database import read_only
from tests.fixtures_sidecar import SidecarProcess, any_value, running_sidecar
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn

_SENDERS: Final = 4
_TURNS: Final = 3
_STAGES: Final = (semconv.SPAN_ASR, semconv.SPAN_LLM, semconv.SPAN_TTS)
_SERVICE_SCOPE: Final = "assistant.turns"
_HEADERS: Final = {"content-type": "application/x-protobuf"}
_OK: Final = 200
_BUSY: Final = 503
Key = tuple[str, str]  # the ids of a trace and of a span in it


@dataclass(frozen=True)
class Sent:
    """A span with the scope it is sent under."""

    scope: str
    span: Span

    @property
    def key(self) -> Key:
        """The key of a part."""
        return self.span.trace_id.hex(), self.span.span_id.hex()

    @property
    def is_turn(self) -> bool:
        """Whether a turn comes of it."""
        return self.span.name == semconv.SPAN_TURN


Part = tuple[Sent, ...]


@dataclass
class Ledger:
    """Record of what was sent and acknowledged, over all lives of the sidecar; its lock is that of all senders."""

    rng: random.Random
    waiting: list[Part] = field(default_factory=list[Part])
    acknowledged: list[Part] = field(default_factory=list[Part])
    sent: dict[Key, Sent] = field(default_factory=dict[Key, Sent])
    batches: int = 0
    of_this_life: int = 0
    sent_again: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def next_part(self, *, only_waiting: bool) -> Part | None:
        """Return the next part to send; with `only_waiting`, None if nothing is left to send again."""
        with self.changed:
            if self.waiting:
                self.sent_again += 1
                return self._other_than_before(self.waiting.pop())
            if only_waiting:
                return None
            if self.acknowledged and self.rng.random() < 0.2:
                self.sent_again += 1
                return self._other_than_before(self.rng.choice(self.acknowledged))
            self.batches += 1
            part = tuple(_batch(self.batches))
            self.sent |= {sent.key: sent for sent in part}
            return part

    def _other_than_before(self, part: Part) -> Part:
        """The part as it was, its first half now and the other one later, or more, in another order."""
        which = self.rng.random()
        if which < 0.3 and len(part) > 1:
            self.waiting.append(part[len(part) // 2 :])
            return part[: len(part) // 2]
        if which < 0.6:
            more = self.waiting.pop() if self.waiting else ()
            return tuple(self.rng.sample(part + more, len(part + more)))
        return part

    def answered(self, part: Part, *, acknowledged: bool) -> None:
        """Write down what became of a request."""
        with self.changed:
            (self.acknowledged if acknowledged else self.waiting).append(part)
            self.of_this_life += acknowledged
            self.changed.notify_all()


def _batch(number: int) -> Iterator[Sent]:
    """A call with its turns and their stages, and for every third one the service's own report of a turn."""
    trace = f"{0xCA11:016x}{number:016x}"
    for index in range(_TURNS):
        turn = client_turn(
            number, call_id=f"call-{number}", turn_index=index, trace_id=trace, span_id=f"{number:08x}{index + 1:08x}"
        )
        yield Sent(semconv.SCOPE, _span(semconv.SPAN_TURN, turn.trace_id, turn.span_id, number, turn_attributes(turn)))
        for place, name in enumerate(_STAGES, start=1):
            span_id = f"{number:08x}{index + 1:04x}{place:04x}"
            yield Sent(semconv.SCOPE, _span(name, trace, span_id, number, {"voice.call.call_id": turn.call_id}))
    if number % 3 == 0:
        own, own_trace = f"{number:08x}{0xA:08x}", f"{0x5E4:016x}{number:016x}"
        span = _span(semconv.SPAN_TURN, own_trace, own, number, {"gen_ai.conversation.id": f"call-{number}"})
        span.events.add(name="voice.speech.end", time_unix_nano=span.start_time_unix_nano)
        voice = _span(semconv.SPAN_TTS, own_trace, f"{number:08x}{0xB:08x}", number, {})
        voice.parent_span_id = span.span_id
        voice.events.add(name="voice.tts.first_chunk", time_unix_nano=span.start_time_unix_nano + SECOND // 2)
        yield from (Sent(_SERVICE_SCOPE, span) for span in (voice, span))


def _span(name: str, trace: str, span_id: str, number: int, attributes: dict[str, Any]) -> Span:
    begin = START_UNIX_NS + number * SECOND
    return Span(
        trace_id=bytes.fromhex(trace),
        span_id=bytes.fromhex(span_id),
        name=name,
        start_time_unix_nano=begin,
        end_time_unix_nano=begin + SECOND,
        attributes=[KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()],
    )


def body_of(part: Part) -> bytes:
    request = ExportTraceServiceRequest()
    for name in dict.fromkeys(span.scope for span in part):
        resource = request.resource_spans.add()
        service = "voiceprobe" if name == semconv.SCOPE else "assistant"
        resource.resource.attributes.append(KeyValue(key="service.name", value=any_value(service)))
        scope = resource.scope_spans.add()
        scope.scope.name = name
        scope.spans.extend(span.span for span in part if span.scope == name)
    return request.SerializeToString()


def _send(url: str, ledger: Ledger, only_waiting: bool) -> None:
    """Send one request after the other until the sidecar is gone, or nothing is left to send again."""
    with httpx.Client(timeout=60) as client:
        while (part := ledger.next_part(only_waiting=only_waiting)) is not None:
            try:
                answer = client.post(f"{url}/v1/traces", content=body_of(part), headers=_HEADERS)
            except httpx.TransportError:
                ledger.answered(part, acknowledged=False)
                return
            assert answer.status_code in (_OK, _BUSY), answer.text
            ledger.answered(part, acknowledged=answer.status_code == _OK)
            if answer.status_code == _BUSY:
                time.sleep(float(answer.headers["retry-after"]))


def _ask(url: str) -> None:
    """Ask one question after the other until the sidecar is gone."""
    with httpx.Client(timeout=60) as client, contextlib.suppress(httpx.TransportError):
        while True:
            client.post(f"{url}/v1/query/summary", json={})


def _life(sidecar: SidecarProcess, ledger: Ledger, kill_after: int | None) -> None:
    """Send until so many requests of this life were acknowledged, and kill it; None: send again what waits."""
    ledger.of_this_life = 0
    threads = [
        threading.Thread(target=_send, args=(sidecar.http, ledger, kill_after is None), daemon=True)
        for _ in range(_SENDERS)
    ]
    if kill_after is not None:
        threads.append(threading.Thread(target=_ask, args=(sidecar.http,), daemon=True))
    for thread in threads:
        thread.start()
    if kill_after is not None:
        with ledger.changed:
            assert ledger.changed.wait_for(lambda: ledger.of_this_life >= kill_after, timeout=120)
        time.sleep(ledger.rng.uniform(0, 0.05))  # anywhere between two acknowledgments
        sidecar.kill_all()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()


def kill_again_and_again(store: Path, times: int, seed: int = 1) -> Ledger:
    """Kill the sidecar of a store so many times; then send again what was never acknowledged, and end it in peace."""
    ledger = Ledger(random.Random(seed))
    for _ in range(times):
        with running_sidecar(store) as sidecar:
            _life(sidecar, ledger, ledger.rng.randrange(1, 40))
    with running_sidecar(store) as sidecar:
        while ledger.waiting:
            _life(sidecar, ledger, None)
        assert sidecar.terminate() == 0
    return ledger


def faults(store: Path, ledger: Ledger) -> list[str]:
    """Return what is lost, stored twice, or stored without having been sent; a line each."""
    acknowledged = {span.key for part in ledger.acknowledged for span in part}
    wanted = {"span": acknowledged, "turn": {key for key in acknowledged if ledger.sent[key].is_turn}}
    texts: list[str] = []
    with read_only(store) as database, database.snapshot() as cursor:
        for kind, keys in wanted.items():
            stored = Counter(cursor.sql(f"SELECT trace_id, span_id FROM {kind}s").fetchall())  # noqa: S608 - names of ours
            texts += [f"{kind} {key} was acknowledged and is lost" for key in keys - stored.keys()]
            texts += [f"{kind} {key} is there {count} times" for key, count in stored.items() if count > 1]
            texts += [f"{kind} {key} was never sent" for key in stored.keys() - ledger.sent.keys()]
    return sorted(texts)
