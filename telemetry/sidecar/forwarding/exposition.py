"""The display of forwarding: in `/v1/state` as JSON, and as families of `/metrics`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec
from prometheus_client import CollectorRegistry

from telemetry.sidecar.counts.text import Family, ShownFamilies, with_registry
from telemetry.sidecar.forwarding.bounded_queue import DROP_REASONS, DestinationState
from telemetry.sidecar.forwarding.destinations import Destination

# Reasons that are shown from the start, so that their first increase is seen as one.
_REFUSALS: Final = dict.fromkeys(("HTTP status 400", "HTTP status 413"), 0)

_Values = Callable[[DestinationState], Mapping[str, float] | float]


def _family(name: str, text: str, *labels: str, kind: Literal["counter", "gauge"] = "counter") -> Family:
    return Family(f"voice_forward_{name}", kind, text, ("destination", *labels))


# Requests are those that senders made, in protobuf and uncompressed.
_FAMILIES: Final[dict[Family, _Values]] = {
    _family("up", "0 while what is sent to it fails and is tried again, else 1.", kind="gauge"): (
        lambda state: int(not state.failures)
    ),
    _family("backlog_bytes", "Bytes that wait for the destination.", kind="gauge"): lambda state: state.backlog_bytes,
    _family("backlog_items", "Spans and metric points that wait for it.", kind="gauge"): (
        lambda state: state.backlog_items
    ),
    _family("backlog_seconds", "Age of the oldest that waits for it.", kind="gauge"): lambda state: state.backlog_s,
    _family("requests", "Requests that the destination acknowledged."): lambda state: state.forwarded_requests,
    _family("bytes", "Bytes of requests that it acknowledged."): lambda state: state.forwarded_bytes,
    _family("refused_requests", "Requests that it refused for good, by reason; they are not sent again.", "reason"): (
        lambda state: _REFUSALS | state.refused_requests
    ),
    _family(
        "rejected_items", "Spans and metric points that it left out of requests it acknowledged (partial success)."
    ): lambda state: state.rejected_items,
    _family("failed_attempts", "Attempts that are made again."): lambda state: state.failed_attempts,
    _family(
        "dropped_requests",
        "Requests that are not forwarded, by reason: the size of the queue, their age, texts that cannot be taken out, "
        "the end of the sidecar.",
        "reason",
    ): lambda state: {reason: state.dropped_requests[reason] for reason in DROP_REASONS},
    _family("lost_items", "Spans and metric points that never arrive: dropped, refused or rejected."): (
        lambda state: state.lost_items
    ),
}


def forwarding_families() -> tuple[Family, ...]:
    """Every family that is shown where something is forwarded, in the order of the text."""
    return tuple(_FAMILIES)


def with_forwarding(body: bytes, states: Sequence[DestinationState]) -> bytes:
    """A body of `/metrics` with the families of forwarding behind its own."""
    if not states:
        return body
    registry = CollectorRegistry()
    registry.register(
        ShownFamilies(lambda: [family.of(_of_family(values, states)) for family, values in _FAMILIES.items()])
    )  # type: ignore[arg-type] - it has all that is asked of a collector
    return with_registry(body, registry)


def _of_family(values: _Values, states: Sequence[DestinationState]) -> Iterator[tuple[tuple[str, ...], float]]:
    for state in states:
        value = values(state)
        if isinstance(value, Mapping):
            yield from (((state.name, reason), each) for reason, each in value.items())
        else:
            yield (state.name,), value


def shown_in_state(
    destinations: Sequence[Destination], states: Sequence[DestinationState]
) -> dict[str, dict[str, object]]:
    """The destinations by name: where each forwards to, how it fares and what was counted."""
    return {
        state.name: {
            "url": destination.url,
            "text": destination.text,
            "signals": destination.signals,
            "failure": "; ".join(state.failures.values()) or None,
            **{key: value for key, value in msgspec.to_builtins(state).items() if key not in ("name", "failures")},
        }
        for destination, state in zip(destinations, states, strict=True)
    }
