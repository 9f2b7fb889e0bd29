"""Many calls of a recorded conversation of a framework: its spans with new ids and times, and drawn latencies."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "fixtures" / "frameworks"
VARIANT = "feature_flag.result.variant"
# A latency that is longer than its turn is no latency: recorded turns last long enough for those that are drawn.
SLOWER = 3
Span = dict[str, Any]


@dataclass(frozen=True)
class Framework:
    """How a framework's spans are named: of a turn's own spans, the one with the latency that callers waited for."""

    recording: str
    turn_spans: tuple[str, ...]
    stating: str
    latency: str
    conversation: str | None = None  # the attribute that names the call, beside the trace


PIPECAT = Framework(
    "pipecat-1.14.0/talk", ("turn",), "turn", "turn.user_bot_latency_seconds", conversation="conversation.id"
)
LIVEKIT = Framework("livekit-agents-1.8.9/talk", ("user_turn", "agent_turn"), "agent_turn", "lk.e2e_latency")


@dataclass(frozen=True)
class DrawnCall:
    """A call: its variant, when it begins, and what its caller waited for in each turn; None where it hung up, in the
    last turn of the recording."""

    number: int
    variant: str
    begin_unix_ns: int
    latencies_ns: tuple[int | None, ...]


class RecordedCalls:
    """Calls made of one recording, whose last turn is the one in which the caller hung up."""

    def __init__(self, of: Framework) -> None:
        self.of = of
        content = json.loads((FOLDER / f"{of.recording}.json").read_text())
        self._request: Mapping[str, Any] = content["request"]
        spans = list(_spans(self._request))
        self._begin_ns = min(int(span["startTimeUnixNano"]) for span in spans)
        stating = sorted(
            (span for span in spans if span["name"] == of.stating), key=lambda span: int(span["startTimeUnixNano"])
        )
        self.turns = [span["spanId"] for span in stating]
        assert _attribute(stating[-1], of.latency) is None, "the caller hung up in the last turn"
        self._of_last = _of_last_turn(spans, of)

    def request(self, calls: Sequence[DrawnCall]) -> bytes:
        """An export of the calls' spans in OTLP/JSON."""
        resources = [resource for call in calls for resource in self._resources(call)]
        return json.dumps({"resourceSpans": resources}).encode()

    def _resources(self, call: DrawnCall) -> list[dict[str, Any]]:
        found = copy.deepcopy(self._request["resourceSpans"])
        for resource in found:
            for scope in resource["scopeSpans"]:
                kept = [span for span in scope["spans"] if self._is_of(span, call)]
                scope["spans"] = [self._replaced(span, call) for span in kept]
        return found

    def _is_of(self, span: Span, call: DrawnCall) -> bool:
        """Most calls end before the turn in which nobody answers."""
        return len(call.latencies_ns) == len(self.turns) or span["spanId"] not in self._of_last

    def _replaced(self, span: Span, call: DrawnCall) -> Span:
        recorded_id = span["spanId"]
        span["traceId"] = _id(span["traceId"], call, 32)
        span["spanId"] = _id(recorded_id, call, 16)
        if span.get("parentSpanId"):
            span["parentSpanId"] = _id(span["parentSpanId"], call, 16)
        for holder in (span, *span.get("events", ())):
            for key in ("startTimeUnixNano", "endTimeUnixNano", "timeUnixNano"):
                if key in holder:
                    holder[key] = str(call.begin_unix_ns + SLOWER * (int(holder[key]) - self._begin_ns))
            holder["attributes"] = [each for each in holder.get("attributes", ()) if each["key"] != VARIANT]
        # A processor of the service copies what its flag decided onto each span of the call.
        span["attributes"].append({"key": VARIANT, "value": {"stringValue": call.variant}})
        if recorded_id in self.turns:
            latency_ns = call.latencies_ns[self.turns.index(recorded_id)]
            if latency_ns is not None:
                _set(span, self.of.latency, {"doubleValue": latency_ns / 1e9})
        if self.of.conversation is not None and _attribute(span, self.of.conversation) is not None:
            _set(span, self.of.conversation, {"stringValue": f"call-{call.number}"})
        return span


def _spans(request: Mapping[str, Any]) -> Iterator[Span]:
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def _of_last_turn(spans: Sequence[Span], of: Framework) -> set[str]:
    """The spans of the last turn: its own, those below them, and what the call had begun for it."""
    found: set[str] = set()
    for name in of.turn_spans:
        last = max((span for span in spans if span["name"] == name), key=lambda span: int(span["startTimeUnixNano"]))
        found.add(last["spanId"])
    begin = min(int(span["startTimeUnixNano"]) for span in spans if span["spanId"] in found)
    found |= {span["spanId"] for span in spans if span["name"] == "llm" and int(span["startTimeUnixNano"]) >= begin}
    while more := {span["spanId"] for span in spans if span.get("parentSpanId") in found} - found:
        found |= more
    return found


def _id(recorded: str, call: DrawnCall, digits: int) -> str:
    return hashlib.sha256(f"{recorded} {call.number}".encode()).hexdigest()[:digits]


def _attribute(span: Span, key: str) -> object | None:
    return next((each["value"] for each in span.get("attributes", ()) if each["key"] == key), None)


def _set(span: Span, key: str, value: dict[str, Any]) -> None:
    for each in span["attributes"]:
        if each["key"] == key:
            each["value"] = value
