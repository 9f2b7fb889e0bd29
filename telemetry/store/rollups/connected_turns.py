"""Which open turns have to do with each other: those of one call, as far as pairing looks (`pairs.pair`).

Two turns are linked by the trace of a call, by its digits at the end of a service's name of the call, or, one of each
side, by the name of the call. What becomes of a turn depends on no turn that it is not connected to by links.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from telemetry.store.rollups.buckets import Ints
from telemetry.store.schema import ArrowTable

pc: Any = pyarrow.compute  # pyarrow ships no types of its own
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class _Keys:
    """By what turns are linked, a column each; null where they are not."""

    is_service: Any
    traces: Any
    digits: Any
    calls: Any

    @classmethod
    def of(cls, turns: ArrowTable) -> Self:
        is_service = pc.equal(turns.column("source"), "service")
        traces, calls = turns.column("trace_id"), turns.column("call_id")
        # Turns of services without a trace are told apart by their response alone (pairs).
        is_traced = pc.or_(is_service, pc.not_equal(traces, ""))
        digits = pc.utf8_lower(pc.replace_substring(calls, "-", ""))
        digits = pc.utf8_slice_codeunits(digits, start=-_DIGITS, stop=None)
        is_trace = pc.and_(is_service, pc.equal(pc.utf8_length(digits), _DIGITS))
        named = pc.not_equal(calls, "")
        return cls(
            is_service,
            pc.if_else(is_traced, traces, None),
            pc.if_else(is_trace, digits, None),
            pc.if_else(named, calls, None),
        )


@dataclass(frozen=True, slots=True)
class Links:
    """The hashes, ascending, of what turns are linked by: turns of which two have none in common are not connected."""

    traces: Ints
    client_calls: Ints
    service_calls: Ints

    @classmethod
    def of(cls, turns: ArrowTable) -> Self:
        """Those of turns with the columns of OPEN_COLUMNS."""
        keys = _Keys.of(turns)
        calls_of_services = keys.calls.filter(keys.is_service)
        calls_of_clients = keys.calls.filter(pc.invert(keys.is_service))
        return cls(_hashes((keys.traces, keys.digits)), _hashes((calls_of_clients,)), _hashes((calls_of_services,)))

    def meet(self, other: "Links") -> bool:
        """Whether a turn of these may be linked to one of the others."""
        return (
            _have_common(self.traces, other.traces)
            or _have_common(self.client_calls, other.service_calls)
            or _have_common(self.service_calls, other.client_calls)
        )


def connected_to(turns: ArrowTable, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where turns are connected to the chosen ones, these among them."""
    keys = _Keys.of(turns)
    is_client = pc.invert(keys.is_service)
    found = chosen
    while True:
        known = pa.array(found)
        traces = pa.chunked_array([*keys.traces.filter(known).chunks, *keys.digits.filter(known).chunks], pa.string())
        linked = pc.or_(_is_in(keys.traces, traces), _is_in(keys.digits, traces))
        for one, other in ((is_client, keys.is_service), (keys.is_service, is_client)):
            calls = keys.calls.filter(pc.and_(known, one))
            linked = pc.or_(linked, pc.and_(other, _is_in(keys.calls, calls)))
        after = found | linked.to_numpy()
        if after.sum() == found.sum():
            return found
        found = after


def _is_in(column: Any, values: Any) -> Any:
    return pc.is_in(column, values.drop_null())


def _hashes(columns: Iterable[Any]) -> Ints:
    texts: set[str] = set()
    for column in columns:
        texts.update(column.drop_null().to_pylist())
    return np.sort(np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts)))


def _have_common(one: Ints, other: Ints) -> bool:
    few, many = sorted((one, other), key=len)
    if not len(few):
        return False
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return bool((many[places] == few).any())
