"""Decodes a chunk of the spans of a group into rows of the store."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from telemetry.model import semconv
from telemetry.sidecar.otlp.arrow_messages import ARRAY, ArrowArray, MalformedMessageError, compute
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.span_columns import (
    Mask,
    Places,
    fault_masks,
    hex_text,
    lengths,
    spans_columns,
    stored_attributes,
)
from telemetry.sidecar.otlp.span_groups import NOT_A_REQUEST, SHOWN_CHARS, SpanGroup
from telemetry.sidecar.otlp.span_limits import REQUEST_PARTS_MAX, TOO_MANY_PARTS, beyond_limits, parts_of_spans
from telemetry.sidecar.otlp.span_reading import ReadChunk, ReadSpans, read_spans
from telemetry.sidecar.otlp.span_redaction import redact_spans
from telemetry.sidecar.otlp.turn_columns import DecodedTurns, TurnSpans, decode_turns
from telemetry.sidecar.privacy.requests import Redactor
from telemetry.store.schema import ArrowTable

_SERVICE_NAME: Final = "service.name"


@dataclass(slots=True)
class DecodedChunk:
    """The rows of a chunk and the number of the request of each, and why which spans are rejected."""

    turns: ArrowTable
    spans: ArrowTable
    request_of_turn: Places
    request_of_span: Places
    rejections: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    unknown_fields: Counter[str] = field(default_factory=Counter[str])

    def without(self, requests: list[int]) -> tuple[ArrowTable, ArrowTable]:
        """The turns and the spans of all requests but these."""
        if not requests:
            return self.turns, self.spans
        of_turn, of_span = (np.isin(each, requests) for each in (self.request_of_turn, self.request_of_span))
        return self.turns.filter(pa.array(~of_turn)), self.spans.filter(pa.array(~of_span))


def decode_chunks(group: SpanGroup, redactor: Redactor | None = None) -> list[DecodedChunk]:
    """Decode the spans of a group. Requests that cannot be decoded are refused in the group; what may not be stored is
    taken out of the others there."""
    parts = np.zeros(len(group.faults), np.int64)
    found: list[DecodedChunk] = []
    for places in group.chunks():
        chunk = _read(group, places)
        left_out: Mask | None = None
        if redactor is not None:
            left_out = redact_spans(group, chunk, redactor)
            chunk = _read(group, places) if left_out is None else chunk
        np.add.at(parts, chunk.request_of, parts_of_spans(chunk.read, chunk.resource_of))
        for number in np.flatnonzero(parts > REQUEST_PARTS_MAX).tolist():
            group.refuse(number, TOO_MANY_PARTS)
        found.append(_decoded(chunk, left_out))
    return found


def _read(group: SpanGroup, places: Places) -> ReadChunk:
    """Read the spans of a chunk. Requests of which something cannot be read are read without that, or refused."""
    places = _taken(group, places)
    try:
        return _read_all(group, places)
    except (MalformedMessageError, OtlpDecodeError):
        request_of = np.array(group.request_of, np.int64)[places]
        for number in np.unique(request_of).tolist():
            own = places[request_of == number]
            if _fault_of(group, own) is not None:
                group.make_readable(number, own)
                if (fault := _fault_of(group, own)) is not None:
                    group.refuse(number, fault)
        return _read_all(group, _taken(group, places))


def _fault_of(group: SpanGroup, places: Places) -> str | None:
    """Why spans cannot be read."""
    try:
        _read_all(group, places)
    except MalformedMessageError:
        return NOT_A_REQUEST
    except OtlpDecodeError as error:
        return str(error)
    return None


def _taken(group: SpanGroup, places: Places) -> Places:
    refused = group.faulty()
    return places[~np.isin(np.array(group.request_of, np.int64)[places], refused)] if refused else places


def _read_all(group: SpanGroup, places: Places) -> ReadChunk:
    first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    shifted = places - first
    request_of, resource_of, scope_of = (
        np.array(each[first:last], np.int64)[shifted] for each in (group.request_of, group.resource_of, group.scope_of)
    )
    resources, resource_of = np.unique(resource_of, return_inverse=True)
    scopes, scope_of = np.unique(scope_of, return_inverse=True)
    read = read_spans(
        [group.spans[place] for place in places.tolist()],
        [group.resources[place] for place in resources.tolist()],
        [group.scopes[place] for place in scopes.tolist()],
    )
    return ReadChunk(read, places, request_of, resource_of, scope_of, resources, scopes)


def _decoded(chunk: ReadChunk, left_out: Mask | None) -> DecodedChunk:
    reasons = _faults(chunk)
    good = np.ones(len(chunk.request_of), np.bool_)
    good[list(reasons)] = False
    is_turn = good & compute.equal(chunk.read.spans["name"], semconv.SPAN_TURN).to_numpy(zero_copy_only=False)
    decoded, held = _turns(chunk.read, is_turn)
    held = held if left_out is None else held | left_out
    rows = np.flatnonzero(is_turn)
    for row, reason in decoded.reasons.items():
        reasons[int(rows[row])] = reason
        good[rows[row]] = False
    is_turn[rows[decoded.of_services]] = False
    spans = spans_columns(chunk.read.spans, _without(chunk.read.spans["attributes"], held), _origin(chunk))
    return DecodedChunk(
        turns=decoded.turns,
        spans=spans if good.all() else spans.filter(pa.array(good)),
        request_of_turn=chunk.request_of[is_turn & good],
        request_of_span=chunk.request_of[good],
        rejections=[(int(chunk.request_of[row]), reasons[row]) for row in sorted(reasons)],
        unknown_fields=decoded.unknown_fields,
    )


def _faults(chunk: ReadChunk) -> dict[int, str]:
    """Why spans are not taken, by their row; of several faults of one the first."""
    found: dict[int, str] = {}
    masks = fault_masks(chunk.read.spans) | beyond_limits(chunk.read, chunk.resource_of, chunk.scope_of)
    for sentence, mask in masks.items():
        for row in np.flatnonzero(mask).tolist() if mask.any() else ():
            name = chunk.read.spans["name"][row].as_py()
            found.setdefault(row, f"span {name[:SHOWN_CHARS]!r}: {sentence}")
    return found


def _turns(read: ReadSpans, is_turn: Mask) -> tuple[DecodedTurns, Mask]:
    """The turns of the spans that carry one, and which attributes of all spans their rows hold."""
    attributes, bits, items = read.spans["attributes"], read.kinds, read.items
    trace_ids, span_ids = hex_text(read.spans["trace_id"]), hex_text(read.spans["span_id"])
    of_turn = np.repeat(is_turn, lengths(attributes))
    if not is_turn.all():
        chosen = pa.array(is_turn)
        items = items.filter(pa.array(of_turn[bits == ARRAY]))
        attributes, trace_ids, span_ids = (each.filter(chosen) for each in (attributes, trace_ids, span_ids))
        bits = bits[of_turn]
    decoded = decode_turns(TurnSpans(trace_ids, span_ids, attributes, bits, items))
    held = np.zeros(len(of_turn), np.bool_)
    held[of_turn] = decoded.held
    return decoded, held


def _without(lists: ArrowArray, held: Mask) -> ArrowArray:
    """The attributes to store with their spans: all but those that the row of a turn holds, or that are left out."""
    stored = stored_attributes(lists)
    if not held.any():
        return stored
    before = np.concatenate([[0], np.cumsum(~held)]).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(lengths(lists))])
    return pa.ListArray.from_arrays(pa.array(before[ends]), stored.values.filter(pa.array(~held)), type=stored.type)


def _origin(chunk: ReadChunk) -> dict[str, ArrowArray]:
    """The columns that a span has from its resource and its scope."""
    resources = stored_attributes(chunk.read.resources["attributes"])
    resource_of, scope_of = pa.array(chunk.resource_of), pa.array(chunk.scope_of)
    return {
        "resource_attributes": resources.take(resource_of),
        "service_name": pa.array(list(map(_service, resources.to_pylist())), pa.string()).take(resource_of),
        "scope_name": chunk.read.scopes["name"].take(scope_of),
        "scope_version": chunk.read.scopes["version"].take(scope_of),
    }


def _service(attributes: list[dict[str, Any]]) -> str:
    stated = [pair["value"] for pair in attributes if pair["key"] == _SERVICE_NAME]
    return (stated[-1] or {}).get("string_value") or "" if stated else ""
