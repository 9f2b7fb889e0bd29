"""The turn of a framework's spans, by the alias table.

Every latency is one that the framework states; the duration of a span is never used as one. `speech_end` and the
timestamps after it are placed by stated latencies, so that their differences are the framework's own figures; the
starts of spans only anchor them on the process's clock. That clock is the wall clock of the process, treated as
monotonic: only differences within one turn are formed. A stated latency is the distance between two points and is kept
to the nanosecond: points connected by latencies are placed together, by the first of them whose time is known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from telemetry.model import contradictions
from telemetry.model.contradictions import SpanBounds, SpanEvidence
from telemetry.model.semconv import Contradiction, FailureKind, Fallback, Outcome
from telemetry.model.turns import Turn, with_plain_texts
from telemetry.sidecar.adapters import attribute_values as values
from telemetry.sidecar.adapters.frameworks import Column, Framework, Role
from telemetry.sidecar.adapters.spans_of_turn import Part, SpansOfTurn, failed

# Latencies that count from the end of the caller's speech, and the timestamp at their other end.
_FROM_SPEECH_END: Final[dict[Column, str]] = {
    "voice_to_voice": "first_audio",
    "endpointing": "endpoint",
    "asr_final_latency": "asr_final",
}
# The latencies among them that cannot be negative; only an answer may begin before the end of the speech.
_WAITS: Final[tuple[Column, ...]] = ("endpointing", "asr_final_latency")
# Latencies that count from the beginning of a stage's span, and the metrics that have no value without them.
_STAGE_COLUMNS: Final[dict[Column, tuple[str, ...]]] = {
    "asr_final": ("asr_final_latency",),
    "llm_first_token": ("llm_first_token_latency", "llm_ttft", "tts_first_chunk_latency"),
    "tts_first_chunk": ("tts_first_chunk_latency",),
}
# Spans whose error fails a turn without a reply: another attempt may have succeeded after a failed one.
_FAILING: Final[tuple[Role, ...]] = ("turn", "fallback", "llm", "tts")
_FAILURES: Final[dict[Outcome, FailureKind]] = {
    "error": "endpoint_error",
    "no_reply": "no_reply",
    "abandoned": "abandoned",
    "interrupted": "interrupted",
}
_REASONS: Final[dict[Outcome, str]] = {
    "error": "the service reports an error and no reply",
    "no_reply": "the service reports no reply",
    "abandoned": "the call ended before a reply",
    "interrupted": "the reply was interrupted before it was heard",
}


class Latency(NamedTuple):
    """A distance of `ns` from `earlier` to `later`, as the framework states it."""

    earlier: str
    later: str
    ns: int


@dataclass(frozen=True, slots=True)
class _Stated:
    """The time of a stage's result as its span states it: `ns` after the span's start. `fault` says why that is
    impossible."""

    part: Part
    attribute: str
    ns: int
    fault: Contradiction | None = None

    @property
    def at_unix_ns(self) -> int:
        """The time; for an impossible one the start of its span, which keeps the stages in order."""
        return self.part.span.start_unix_ns + (self.ns if self.fault is None else 0)


def framework_turn(parts: SpansOfTurn, framework: Framework) -> Turn | None:
    """The turn; None if nothing was spoken: a reply that was generated and never spoken."""
    reading = _TurnReading(parts, framework)
    if not reading.asked and not reading.answered and not parts.of("tts"):
        return None
    return with_plain_texts(reading.turn())


class _TurnReading:
    """The values that the spans of one turn contain."""

    def __init__(self, parts: SpansOfTurn, framework: Framework) -> None:
        self._parts = parts
        self._framework = framework
        self._chosen = self._from_speech_end()
        self._speech_end_latencies: dict[Column, _Stated] = {
            column: stage for column, stage in self._chosen.items() if stage.fault is None
        }
        self._stage_results = {column: self._stages(column) for column in _STAGE_COLUMNS}
        self._knows_speech = framework.turns != "outermost"

    def turn(self) -> Turn:
        parts, at, outcome = self._parts, self._at, self._outcome
        turn = Turn(
            run_id=parts.run_id(),
            call_id=parts.call_id,
            turn_index=parts.turn_index,
            source="service",
            outcome=outcome,
            outcome_reason=_REASONS.get(outcome),
            failure_kind=_FAILURES.get(outcome),
            failure_code=parts.error_code(self._errors) if outcome == "error" else None,
            trace_id=parts.first.span.trace_id,
            span_id=parts.first.span.span_id,
            started_unix_ns=parts.start_unix_ns,
            started_perf_ns=parts.start_unix_ns,
            speech_start_perf_ns=at.get("speech_start"),
            speech_end_perf_ns=at.get("speech_end"),
            endpoint_perf_ns=at.get("endpoint"),
            asr_first_partial_perf_ns=at.get("asr_first_partial"),
            asr_final_perf_ns=at.get("asr_final"),
            llm_first_token_perf_ns=at.get("llm_first_token"),
            tts_first_chunk_perf_ns=at.get("tts_first_chunk"),
            first_audio_perf_ns=at.get("first_audio"),
            hangup_perf_ns=self._hangup_unix_ns,
            turn_kind=None if self.asked else "silence",
            cut_short=self._interrupted and not self._call_ended if self.answered else None,
            cohort=parts.variant(),
            user_id=parts.user_id(),
            fallback=self._fallback(),
            model=self._model(),
            llm_tokens=self._tokens(),
            llm_input_tokens=self._all_tokens("llm_input_tokens"),
            llm_cached_tokens=self._all_tokens("cache_read_tokens"),
            withheld_metrics=tuple(self._framework.withheld),
            withheld_reasons=tuple(self._framework.withheld.values()),
            service_reported=tuple(f"{stage.part.span.name}: {stage.attribute}" for stage in self._reported),
            service_reported_ns=tuple(stage.ns for stage in self._reported),
        )
        faults = contradictions.timestamp_contradictions(
            turn, SpanEvidence(min(parts.start_unix_ns, parts.end_unix_ns), self._bounds())
        )
        turn = contradictions.without_contradictions(turn, faults, self._faults)
        return contradictions.begun_with_its_moments(turn, parts.start_unix_ns)

    @cached_property
    def asked(self) -> bool:
        """Whether the caller spoke in this turn."""
        if not self._knows_speech or self._parts.user is not None or "voice_to_voice" in self._chosen:
            return True
        # Of turns that hold everything only the first may begin without the caller, with the call.
        if self._framework.turns == "nested" and self._parts.turn_index > 0:
            return True
        # If recognition states its end, a span without one belongs to the speech that begins the next turn.
        if any(read.column == "asr_final" for read in self._framework.reads):
            return bool(self._stage_results["asr_final"])
        return bool(self._parts.of("asr"))

    @cached_property
    def answered(self) -> bool:
        """Whether the reply was heard; without speech, whether there was one."""
        if not self._knows_speech:
            return not self._errors
        # A latency that cannot be was stated of a reply nevertheless.
        return "first_audio" in self._at or "voice_to_voice" in self._chosen or self._is_spoken

    @cached_property
    def _at(self) -> dict[str, int]:
        """The timestamps of the turn, on the wall clock."""
        moments = self._moments()
        token, chunk = self._token, self._chunk
        for name, stage in (("llm_first_token", token), ("tts_first_chunk", chunk), ("asr_final", self._final)):
            if stage is not None and stage.fault is None:
                moments.setdefault(name, stage.at_unix_ns)
        if (partial := values.first_partial_unix_ns(self._parts.value("transcript_events"))) is not None:
            moments["asr_first_partial"] = partial
        latencies = [
            Latency("speech_end", _FROM_SPEECH_END[column], stage.ns)
            for column, stage in self._speech_end_latencies.items()
        ]
        return place(latencies, moments, self._parts.start_unix_ns)

    @cached_property
    def _hangup_unix_ns(self) -> int | None:
        """The end of the call, if it ended the turn and the turn's other timestamps are on the same clock."""
        if not self._call_ended or not self._interrupted or set(self._moments()).isdisjoint(self._at):
            return None
        return self._parts.end_unix_ns

    @cached_property
    def _faults(self) -> dict[str, Contradiction]:
        """The metrics with impossible values, each with the cause."""
        faults: dict[str, Contradiction] = {
            column: stage.fault for column, stage in self._chosen.items() if stage.fault is not None
        }
        token = self._token
        if token is None and (self._chunk is not None or self._heard_unix_ns() is not None):
            token = next((stage for stage in self._stage_results["llm_first_token"] if stage.fault is not None), None)
        stages: dict[Column, _Stated | None] = {
            "asr_final": self._final,
            "llm_first_token": token,
            "tts_first_chunk": self._chunk,
        }
        for column, stage in stages.items():
            fault = None if stage is None else stage.fault
            if fault is not None:
                faults = {**dict.fromkeys(_STAGE_COLUMNS[column], fault), **faults}
        # Without a common clock the distance of the first token from the end of the speech is unknown.
        for part in self._parts.of("asr"):
            if (skewed := self._parts.outside(part)) is not None and self._token is not None:
                faults.setdefault("llm_first_token_latency", skewed)
        return faults

    @cached_property
    def _reported(self) -> list[_Stated]:
        """The latencies that the service claims, including impossible ones."""
        stage_results = (stage for stages in self._stage_results.values() for stage in stages)
        return [stage for stage in (*self._chosen.values(), *stage_results) if stage.fault != "not_a_number"]

    @cached_property
    def _is_spoken(self) -> bool:
        """Whether the reply was synthesized, if the spans do not say when it was heard: a synthesis that was canceled
        before its first chunk does not count."""
        if "speaking" in self._framework.spans.values():
            return False
        stating = {stage.part.span.span_id for stage in self._stage_results["tts_first_chunk"]}
        broken_off = self._interrupted or self._parts.value("call_ended") is True
        return any(
            part.span.span_id in stating or not broken_off
            for part in self._parts.of("tts")
            if part.span.status_code != "Error"
        )

    @cached_property
    def _final(self) -> _Stated | None:
        return self._stage_results["asr_final"][-1] if self._stage_results["asr_final"] else None

    @cached_property
    def _chunk(self) -> _Stated | None:
        return min(self._stage_results["tts_first_chunk"], key=lambda stage: stage.at_unix_ns, default=None)

    @cached_property
    def _token(self) -> _Stated | None:
        """The first token of the answer that was spoken: an earlier generation may have called a tool."""
        stages = self._stage_results["llm_first_token"]
        until = self._chunk.at_unix_ns if self._chunk is not None else self._heard_unix_ns()
        if until is not None:
            stages = [stage for stage in stages if stage.at_unix_ns <= until]
        elif self._framework.llm_needs_speech:
            return None
        return stages[-1] if stages else None

    @cached_property
    def _interrupted(self) -> bool | None:
        stated = [value for _, _, value in self._parts.values("interrupted") if isinstance(value, bool)]
        return any(stated) if stated else None

    @cached_property
    def _call_ended(self) -> bool:
        """Whether the call ended in this turn, before its reply or in it."""
        if self._parts.value("call_ended") is True:
            return True
        if self.answered and not self._interrupted:
            return False
        if self._framework.turns == "nested" and self._interrupted and not self.answered:
            return True  # only a bot that speaks can be interrupted
        ends = [part.span.start_unix_ns for part in self._parts.calls if part.role.role == "call_end"]
        ends = ends or [part.span.end_unix_ns for part in self._parts.calls if part.role.role == "call"]
        after_ns = min(ends) - self._parts.end_unix_ns if ends and not self._parts.has_later_turn else None
        within_ns = round(self._framework.call_end_within_s * 1e9)
        return after_ns is not None and abs(after_ns) <= within_ns

    @cached_property
    def _errors(self) -> list[Part]:
        return [part for role in _FAILING for part in failed(self._parts.of(role))]

    @cached_property
    def _outcome(self) -> Outcome:
        if self.answered or not self.asked:
            return "ok"
        if self._errors:
            return "error"
        if self._call_ended:
            return "abandoned"
        return "interrupted" if self._interrupted else "no_reply"

    def _from_speech_end(self) -> dict[Column, _Stated]:
        """The latencies that count from the end of the caller's speech: of several recognitions, the last."""
        latencies: dict[Column, _Stated] = {}
        for column in _FROM_SPEECH_END:
            stated = self._parts.latencies(column)
            if column == "voice_to_voice" and self._framework.repeats_latency:
                stated = [claim for claim in stated if claim[2] != self._parts.latency_before_ns]
            claims: list[_Stated] = []
            for part, read, ns in stated:
                may_be_negative = column not in _WAITS
                fault = contradictions.latency_contradiction(
                    ns, self._parts.lasted_ns(part), may_be_negative=may_be_negative
                )
                claims.append(_Stated(part, read.attributes[0], ns or 0, fault))
            if claims and claims[0].part.role.role == "asr":
                latencies[column] = claims[-1]
            elif claims:
                # Two spans of one turn state the same value: if one of them is impossible, neither is trusted.
                latencies[column] = next((claim for claim in claims if claim.fault is not None), claims[0])
        return latencies

    def _stages(self, column: Column) -> list[_Stated]:
        """Return the results that the spans of a stage state."""
        stages: list[_Stated] = []
        for part, read, ns in self._parts.latencies(column):
            fault = self._parts.outside(part) or contradictions.latency_contradiction(ns, self._parts.lasted_ns(part))
            stages.append(_Stated(part, read.attributes[0], ns or 0, fault))
        return stages

    def _bounds(self) -> dict[str, SpanBounds]:
        """The span that each timestamp was read from."""
        stages = {"asr_final": self._final, "llm_first_token": self._token, "tts_first_chunk": self._chunk}
        return {
            name: SpanBounds(stage.part.span.start_unix_ns, stage.part.span.end_unix_ns)
            for name, stage in stages.items()
            if stage is not None and stage.fault is None and self._at.get(name) == stage.at_unix_ns
        }

    def _moments(self) -> dict[str, int]:
        """The timestamps at which spans start or end, as the table says. Of the spans that can state a latency from the
        end of speech, only those that do are used: the others ended for another reason."""
        stating = {stage.part.span.span_id for stage in self._speech_end_latencies.values()}
        can_state = {read.span for read in self._framework.reads if read.column in _FROM_SPEECH_END} - {
            "turn",
            "user_turn",
        }
        moments: dict[str, int] = {}
        for name, places in self._framework.moments.items():
            for boundary in places:
                role, _, end = boundary.partition(".")
                parts = self._parts.of(role)  # pyright: ignore[reportArgumentType] - checked
                spans = [part.span for part in parts if self._parts.outside(part) is None]
                if role in can_state and end == "end":
                    spans = [span for span in spans if span.span_id in stating]
                if spans:
                    moments.setdefault(name, spans[0].start_unix_ns if end == "start" else spans[-1].end_unix_ns)
        return moments

    def _heard_unix_ns(self) -> int | None:
        """Return when the reply was first heard, from the spans of speech alone."""
        spoken = self._parts.of("speaking")
        return spoken[0].span.start_unix_ns if spoken else None

    def _fallback(self) -> Fallback | None:
        for part in self._parts.of("fallback"):
            if part in failed([part]):
                continue
            tried = [attempt for attempt in self._parts.of("attempt") if _within(attempt, part)]
            wrong = failed(tried)
            if tried and tried[0] in wrong and len(wrong) < len(tried):
                return "model"
        indices = [values.count(value) for _, _, value in self._parts.values("fallback_index")]
        return "model" if any(indices) else None

    def _model(self) -> str | None:
        """The model that answered: the first that did not fail, starting with the generation that was spoken."""
        named = [(part, name) for part, _, value in self._parts.values("model") if (name := values.name(value))]
        since_ns = self._token.part.span.start_unix_ns if self._token is not None else 0
        answering = [
            name for part, name in named if part.span.start_unix_ns >= since_ns and part.span.status_code != "Error"
        ]
        return next(iter(answering), None) or (named[-1][1] if named else None)

    def _tokens(self) -> int | None:
        counts = self._counts("llm_tokens")
        return counts[-1] if counts else None

    def _all_tokens(self, column: Column) -> int | None:
        """The tokens of every request of the turn."""
        return sum(counts) if (counts := self._counts(column)) else None

    def _counts(self, column: Column) -> list[int]:
        return [count for _, _, value in self._parts.values(column) if (count := values.count(value)) is not None]


def _within(part: Part, other: Part) -> bool:
    return other.span.start_unix_ns <= part.span.start_unix_ns <= other.span.end_unix_ns


def place(latencies: Iterable[Latency], moments: Mapping[str, int], otherwise_unix_ns: int) -> dict[str, int]:
    """The points on the wall clock, in ns. Of two contradictory latencies, the first one counts.

    `moments` are points with known times, in order of trust. If no point of a connected group has a known time, its
    distance from the other groups is unknown: the group is then separate, begins at `otherwise_unix_ns`, and all other
    points are left out.
    """
    groups: list[dict[str, int]] = []
    for latency in latencies:
        _connect(groups, latency)
    placed: dict[str, int] = {}
    for group in groups:
        anchor = next((name for name in moments if name in group), None)
        if anchor is None:
            shift_ns = otherwise_unix_ns - min(group.values())
            return {name: at_ns + shift_ns for name, at_ns in group.items()}
        placed |= {name: at_ns + moments[anchor] - group[anchor] for name, at_ns in group.items()}
    return {**moments, **placed}


def _connect(groups: list[dict[str, int]], latency: Latency) -> None:
    """Connect two points; each group holds the distances of its points from an origin of its own."""
    with_earlier, with_later = _group_of(groups, latency.earlier), _group_of(groups, latency.later)
    if with_earlier is with_later:
        return
    shift_ns = with_earlier[latency.earlier] + latency.ns - with_later[latency.later]
    with_earlier |= {name: at_ns + shift_ns for name, at_ns in with_later.items()}
    groups[:] = [group for group in groups if group is not with_later]


def _group_of(groups: list[dict[str, int]], point: str) -> dict[str, int]:
    for group in groups:
        if point in group:
            return group
    groups.append({point: 0})
    return groups[-1]
