"""Answers as turns: what objectives judge, and the rows of the store that `compare` and a rollout read.

A request is a turn of a text wire: its question ends when it is asked. What is heard and spoken is withheld, with the
reason. Answers under load are of a phase of the kind `ramp`, over which no figure is pooled.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from loadtest.llm.answers import SECOND_NS, FaultKind, LlmAnswer
from loadtest.llm.running import AskedSample, Results
from loadtest.protocols.stages.parts import not_observable
from telemetry.model import semconv
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter

PROTOCOL: Final = "llm"
PROCESS: Final = "llm"
_WITHHELD: Final = not_observable(frozenset({"llm"}))
_OUTCOMES: Final[Mapping[FaultKind, tuple[semconv.Outcome, semconv.FailureKind]]] = {
    "address": ("error", "dns"),
    "connection": ("error", "tcp"),
    "cut_off": ("error", "tcp"),
    "tls": ("error", "tls"),
    "unauthorized": ("error", "http_status"),
    "unknown_model": ("error", "endpoint_error"),
    "rate_limited": ("error", "http_status"),
    "http_status": ("error", "http_status"),
    "error_in_stream": ("error", "endpoint_error"),
    "empty_choices": ("no_reply", "no_reply"),
    "empty_answer": ("no_reply", "no_reply"),
    "not_seen": ("invalid", "generator"),
    "never_ended": ("timeout", "timeout"),
    "no_answer": ("timeout", "timeout"),
}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The run of one target. `offset_ns` is the wall clock less the monotonic one."""

    run_id: str
    target: str
    model: str | None
    cohort: str
    offset_ns: int


def turns_of(results: Results, place: int, run: StoredRun) -> list[Turn]:
    """Every answer of a target."""
    under_load = (sample for level in results.loads for sample in level.samples)
    samples = [sample for sample in (*results.samples, *under_load) if sample.target == place]
    samples.sort(key=lambda sample: sample.answer.started_ns)
    return [_turn(sample, number, run) for number, sample in enumerate(samples)]


def _turn(sample: AskedSample, number: int, run: StoredRun) -> Turn:
    answer, fault = sample.answer, sample.answer.fault
    outcome, failure = ("ok", None) if fault is None else _OUTCOMES.get(fault.kind, ("error", "protocol_violation"))
    asked_ns = answer.started_ns if answer.asked_ns is None else answer.asked_ns
    asked_ns -= round(sample.late_s * SECOND_NS)
    # The call of a tool is an answer without text: it begins with its first piece.
    is_call = bool(answer.tool_calls) and not answer.text
    chunks = [chunk for chunk in answer.chunks if chunk.text or is_call] if fault is None else []
    usage = answer.usage if fault is None else None
    is_load = sample.experiment == "concurrency"

    def at(seconds: float | None) -> int | None:
        return None if seconds is None or answer.asked_ns is None else answer.asked_ns + round(seconds * SECOND_NS)

    return Turn(
        run_id=run.run_id,
        call_id=secrets.token_hex(8),
        turn_index=0,
        source="client",
        outcome=outcome,
        trace_id=secrets.token_hex(16),
        span_id=secrets.token_hex(8),
        process_id=PROCESS,
        sequence=number,
        started_unix_ns=answer.started_ns + run.offset_ns,
        started_perf_ns=min(answer.started_ns, asked_ns),
        speech_end_perf_ns=asked_ns,
        speech_end_uncertainty_ns=0,
        speech_end_later_ns=0,
        held_up_ns=0,
        stamp_error_ns=0,
        llm_first_token_perf_ns=at(answer.first_token_s if is_call else answer.first_answer_token_s),
        llm_first_token_earlier_ns=chunks[0].upper_ns - chunks[0].lower_ns if chunks else None,
        llm_first_sentence_perf_ns=at(answer.first_sentence_s),
        llm_first_sentence_earlier_ns=round((answer.stamp_error_s or 0) * SECOND_NS) if chunks else None,
        llm_last_token_perf_ns=chunks[-1].upper_ns if chunks else None,
        llm_tokens=None if usage is None else usage.completion,
        llm_input_tokens=None if usage is None else usage.prompt,
        llm_cached_tokens=None if usage is None else usage.cached,
        llm_chunks=len(chunks) or None,
        llm_chunk_gaps_ns=tuple(later.upper_ns - earlier.upper_ns for earlier, later in pairwise(chunks)),
        connect_ns=None if answer.connect_s is None else round(answer.connect_s * SECOND_NS),
        phase=f"concurrency {sample.cell}" if is_load else sample.experiment,
        phase_kind="ramp" if is_load else "hold",
        utterance_id=f"{sample.experiment} {sample.cell} {sample.state or sample.prompt} {sample.block}",
        domain=sample.experiment,
        protocol=PROTOCOL,
        target=run.target,
        cohort=run.cohort,
        model=answer.served_model or run.model,
        outcome_reason=None if fault is None else fault.sentence,
        failure_kind=failure,
        failure_code=_code(answer),
        retry_after_ns=None if fault is None else fault.retry_after_ns,
        receive_stamp=answer.stamps,
        withheld_metrics=tuple(_WITHHELD),
        withheld_reasons=tuple(_WITHHELD.values()),
    )


def _code(answer: LlmAnswer) -> str | None:
    if answer.fault is None:
        return None
    return answer.fault.kind if answer.fault.status is None else str(answer.fault.status)


def store_turns(folder: Path, runs: Sequence[tuple[StoredRun, Sequence[Turn]]], seed: int) -> None:
    """Write the runs to a store, each with its beginning and its end. Raises StoreError."""
    with StoreWriter(folder) as writer:
        for run, turns in runs:
            if turns:
                begin, end = turns[0].started_unix_ns, max(turn.started_unix_ns for turn in turns) + SECOND_NS
                spans = [_run_span(run, "start", begin, seed), _run_span(run, "end", end, seed)]
                writer.append(Batch(turns=turns, spans=spans))


def _run_span(run: StoredRun, phase: str, at_unix_ns: int, seed: int) -> SpanRow:
    declared: dict[str, object] = {
        "run_id": run.run_id,
        "phase": phase,
        "process_id": PROCESS,
        "target": run.target,
        "protocol": PROTOCOL,
        "seed": seed,
    }
    return SpanRow(
        trace_id=secrets.token_hex(16),
        span_id=secrets.token_hex(8),
        parent_span_id=None,
        name=semconv.SPAN_RUN,
        service="voiceprobe",
        start_unix_ns=at_unix_ns,
        end_unix_ns=at_unix_ns,
        attributes={semconv.ATTR_SCHEMA: semconv.SCHEMA_VERSION}
        | {f"{semconv.RUN_PREFIX}{name}": value for name, value in declared.items()},
        scope_name=semconv.SCOPE,
    )
