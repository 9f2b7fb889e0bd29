"""`voiceprobe rollout check` over a store that somebody else's service wrote: recorded conversations of Pipecat and of
LiveKit, sent to a real sidecar, get the verdicts that the same turns get when our own callers report them."""

import copy
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from rich.console import Console

from loadtest.run.rollout_check import RolloutCheckRequest, check
from telemetry.model.turns import Turn
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.commands import carried_out
from tests.nightly import nightly_after

S = 1_000_000_000
ANSWERED = 6  # turns of a call
HANGS_UP_EVERY = 50  # calls
CALLS_OF_A_REQUEST = 25
CONTROL_CALLS = 150


@dataclass(frozen=True)
class Candidate:
    """A variant of the service: how much slower its replies are, how many calls it has, and what is to be done."""

    name: str
    calls: int
    slower_ms: float
    verdict: str
    exit_code: int


CANDIDATES = (
    Candidate("same", 90, 0.0, "promote", 0),
    Candidate("slower", 90, 900.0, "roll_back", 3),
    Candidate("rare", 22, 0.0, "hold", 6),
)
BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}


@dataclass(frozen=True)
class DrawnCall:
    """A call: its variant, when it begins, and what its caller waited for in each turn; None where it hung up, in the
    last turn of the recording."""

    number: int
    variant: str
    begin_unix_ns: int
    latencies_ns: tuple[int | None, ...]


def drawn_calls(begin_unix_ns: int) -> list[DrawnCall]:
    """The calls of every variant: slow calls stay slow, and now and then a caller hangs up."""
    rng = np.random.default_rng(11)
    drawn: list[DrawnCall] = []
    for variant, calls, slower_ms in (
        ("stable", CONTROL_CALLS, 0.0),
        *((candidate.name, candidate.calls, candidate.slower_ms) for candidate in CANDIDATES),
    ):
        for place in range(calls):
            of_call = 0.25 * rng.normal()
            values = 350 + 250 * np.exp(of_call + 0.3 * rng.normal(size=ANSWERED)) + slower_ms
            latencies: list[int | None] = [round(float(value) * 1e6) for value in values]
            if place % HANGS_UP_EVERY == 7:
                latencies.append(None)
            number = len(drawn)
            drawn.append(DrawnCall(number, variant, begin_unix_ns + number * S, tuple(latencies)))
    return drawn


def as_our_callers_report(calls: Sequence[DrawnCall]) -> list[Turn]:
    """The same turns as a generator's spans have them."""
    turns: list[Turn] = []
    for call in calls:
        for place, latency_ns in enumerate(call.latencies_ns):
            heard_ms = None if latency_ns is None else latency_ns / 1e6
            turn = client_turn(
                len(turns),
                voice_to_voice_ms=heard_ms,
                call_id=f"call-{call.number}",
                turn_index=place,
                cohort=call.variant,
                started_unix_ns=call.begin_unix_ns + place * S // 10,
                process_id="worker-1",
                sequence=len(turns),
            )
            if latency_ns is None:
                turn = msgspec.structs.replace(turn, outcome="abandoned")
            turns.append(turn)
    return turns


def plan_of(candidate: Candidate, source: str) -> str:
    whole = CONTROL_CALLS + candidate.calls
    return f"""
name = "{candidate.name}"
unit = "call"
source = "{source}"
[cohorts]
control = "stable"
candidate = "{candidate.name}"
[primary]
margin = "400ms"
[[stages]]
name = "canary"
share = {candidate.calls / whole}
[[guardrails]]
check = "abandonment"
margin = 0.1
[[guardrails]]
check = "tail"
margin = 0.1
"""


# A store at rest does not say when the rollout began.
SINCE = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fill a store with what each service and our callers sent, through its own sidecar, which has ended."""
    calls = drawn_calls(time.time_ns() - 7200 * S)
    groups = [calls[place : place + CALLS_OF_A_REQUEST] for place in range(0, len(calls), CALLS_OF_A_REQUEST)]
    by_name: dict[str, Path] = {}
    for name in ("pipecat", "livekit", "ours"):
        store = tmp_path_factory.mktemp(name) / "store"
        with running_sidecar(store) as sidecar:
            if name == "ours":
                content = turns_request(as_our_callers_report(calls)).SerializeToString()
                _send(sidecar.http, content, "application/x-protobuf")
            else:
                recorded = RecordedCalls(PIPECAT if name == "pipecat" else LIVEKIT)
                for group in groups:
                    _send(sidecar.http, recorded.request(group), "application/json")
            assert sidecar.terminate() == 0
        by_name[name] = store
    return by_name


def _send(address: str, content: bytes, kind: str) -> None:
    answer = httpx.post(f"{address}/v1/traces", content=content, headers={"content-type": kind}, timeout=60)
    while answer.status_code == 503:  # busy for now, as an exporter would take it
        time.sleep(float(answer.headers["retry-after"]))
        answer = httpx.post(f"{address}/v1/traces", content=content, headers={"content-type": kind}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "rejected" not in answer.text.lower()


def looked(store: Path, candidate: Candidate, source: str, folder: Path) -> tuple[int, dict[str, object]]:
    folder.mkdir()
    (folder / "rollout.toml").write_text(plan_of(candidate, source))
    request = RolloutCheckRequest(
        plan=folder / "rollout.toml",
        store=str(store),
        since=SINCE,
        json_file=folder / "verdict.json",
    )
    code = check(request, Console(quiet=True))
    return int(code), json.loads((folder / "verdict.json").read_text())


@pytest.mark.parametrize("name", nightly_after(1, BY_NAME))
@pytest.mark.parametrize("service", nightly_after(1, ["pipecat", "livekit"]))
def test_a_services_own_spans_get_the_verdict_of_our_callers(
    stores: dict[str, Path], service: str, name: str, tmp_path: Path
) -> None:
    candidate = BY_NAME[name]
    code, theirs = looked(stores[service], candidate, "service", tmp_path / "theirs")
    own_code, ours = looked(stores["ours"], candidate, "client", tmp_path / "ours")
    assert (code, own_code) == (candidate.exit_code, candidate.exit_code), theirs["sentence"]
    assert theirs["verdict"] == ours["verdict"] == candidate.verdict
    assert theirs["sentence"] == ours["sentence"]
    assert theirs["reasons"] == ours["reasons"]
    assert theirs["cohorts"] == ours["cohorts"]
    assert theirs["turns_needed"] == ours["turns_needed"]
    assert theirs["sample_ratio"] == ours["sample_ratio"]
    assert _figures(theirs) == pytest.approx(_figures(ours), rel=1e-9)
    hung_up = len([place for place in range(candidate.calls) if place % HANGS_UP_EVERY == 7])
    cohorts = theirs["cohorts"]
    assert isinstance(cohorts, dict)
    assert cohorts["candidate"]["turns"] == candidate.calls * ANSWERED + hung_up


def _figures(verdict: dict[str, object]) -> list[float]:
    checks = verdict["checks"]
    assert isinstance(checks, list)
    assert len(checks) == 3
    names = ("candidate", "control", "difference", "lower", "upper", "p_value", "turns", "eligible")
    values = [check[name] for check in checks for name in names]
    values += [share for check in checks for share in (check["shares"] or {}).values()]
    return [-1.0 if value is None else float(value) for value in values]


def test_the_command_says_so_of_a_services_store(stores: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "rollout.toml").write_text(plan_of(BY_NAME["slower"], "service"))
    store = ("--store", str(stores["livekit"]), "--since", SINCE)
    ended = carried_out("rollout", "check", "rollout.toml", *store, cwd=tmp_path)
    assert ended.returncode == 3
    assert "roll back slower at stage canary: p95 of voice to voice is worse" in ended.stdout


FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "frameworks"
VARIANT = "feature_flag.result.variant"
# A latency that is longer than its turn is no latency: recorded turns last long enough for those that are drawn.
SLOWER = 3
Span = dict[str, Any]


@dataclass(frozen=True)
class Framework:
    """The span names of a framework: among a turn's own spans, the one with the latency that callers waited for."""

    recording: str
    turn_spans: tuple[str, ...]
    stating: str
    latency: str
    conversation: str | None = None  # the attribute that names the call, in addition to the trace


PIPECAT = Framework(
    "pipecat-1.14.0/talk", ("turn",), "turn", "turn.user_bot_latency_seconds", conversation="conversation.id"
)
LIVEKIT = Framework("livekit-agents-1.8.9/talk", ("user_turn", "agent_turn"), "agent_turn", "lk.e2e_latency")


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
        resources = copy.deepcopy(self._request["resourceSpans"])
        for resource in resources:
            for scope in resource["scopeSpans"]:
                kept = [span for span in scope["spans"] if self._is_of(span, call)]
                scope["spans"] = [self._replaced(span, call) for span in kept]
        return resources

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
            holder["attributes"] = [
                attribute for attribute in holder.get("attributes", ()) if attribute["key"] != VARIANT
            ]
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
    variants: set[str] = set()
    for name in of.turn_spans:
        last = max((span for span in spans if span["name"] == name), key=lambda span: int(span["startTimeUnixNano"]))
        variants.add(last["spanId"])
    begin = min(int(span["startTimeUnixNano"]) for span in spans if span["spanId"] in variants)
    variants |= {span["spanId"] for span in spans if span["name"] == "llm" and int(span["startTimeUnixNano"]) >= begin}
    while more := {span["spanId"] for span in spans if span.get("parentSpanId") in variants} - variants:
        variants |= more
    return variants


def _id(recorded: str, call: DrawnCall, digits: int) -> str:
    return hashlib.sha256(f"{recorded} {call.number}".encode()).hexdigest()[:digits]


def _attribute(span: Span, key: str) -> object | None:
    return next((attribute["value"] for attribute in span.get("attributes", ()) if attribute["key"] == key), None)


def _set(span: Span, key: str, value: dict[str, Any]) -> None:
    for attribute in span["attributes"]:
        if attribute["key"] == key:
            attribute["value"] = value
