"""How forwarding is shown: in `/v1/state` as JSON, and as families of `/metrics`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from telemetry.sidecar.counts.text import Family, label_text, with_families
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.forwarding.link_messages import DestinationReport
from telemetry.sidecar.forwarding.tally import DROP_REASONS

_DESTINATION: Final = ("destination",)

_Values = Callable[[DestinationReport], Mapping[tuple[str, ...], float]]


def _one(value: Callable[[DestinationReport], float]) -> _Values:
    return lambda report: {(): value(report)}


def _dropped(report: DestinationReport) -> Mapping[tuple[str, ...], float]:
    return {(reason,): report.tally.dropped_requests.get(reason, 0) for reason in DROP_REASONS}


# Requests are those that senders made, in protobuf and uncompressed.
_FAMILIES: Final[dict[Family, _Values]] = {
    Family("voice_forward_up", "gauge", "1 if the destination took what was sent last, else 0.", _DESTINATION): _one(
        lambda report: int(report.failure is None)
    ),
    Family("voice_forward_backlog_bytes", "gauge", "Bytes that wait for the destination.", _DESTINATION): _one(
        lambda report: report.backlog.size_bytes
    ),
    Family(
        "voice_forward_backlog_seconds", "gauge", "Age of the oldest that waits for the destination.", _DESTINATION
    ): _one(lambda report: report.backlog.age_s),
    Family("voice_forward_requests", "counter", "Requests that the destination acknowledged.", _DESTINATION): _one(
        lambda report: report.tally.forwarded_requests
    ),
    Family("voice_forward_bytes", "counter", "Bytes of requests that it acknowledged.", _DESTINATION): _one(
        lambda report: report.tally.forwarded_bytes
    ),
    Family(
        "voice_forward_refused_requests",
        "counter",
        "Requests that it refused for good; they are not sent again.",
        _DESTINATION,
    ): _one(lambda report: report.tally.refused_requests),
    Family(
        "voice_forward_rejected_items",
        "counter",
        "Spans and metric points that it left out of requests it acknowledged (partial success).",
        _DESTINATION,
    ): _one(lambda report: report.tally.rejected_items),
    Family("voice_forward_failed_attempts", "counter", "Attempts that are made again.", _DESTINATION): _one(
        lambda report: report.tally.failed_attempts
    ),
    Family(
        "voice_forward_dropped_requests",
        "counter",
        "Requests that are not forwarded, by reason: its limits of age and size, a full disk, a queue that cannot be "
        "read, a restart while they were in memory alone.",
        ("destination", "reason"),
    ): _dropped,
}


def forwarding_families() -> tuple[Family, ...]:
    """Every family that is shown where something is forwarded, in the order of the text."""
    return tuple(_FAMILIES)


def with_forwarding(body: bytes, reports: Sequence[DestinationReport]) -> bytes:
    """A body of `/metrics` with the families of forwarding behind its own."""
    return with_families(body, lambda openmetrics: _parts(reports, openmetrics=openmetrics)) if reports else body


def _parts(reports: Sequence[DestinationReport], *, openmetrics: bool) -> Iterator[str]:
    for family, values in _FAMILIES.items():
        yield family.head(openmetrics=openmetrics)
        for report in reports:
            for labels, value in values(report).items():
                yield family.sample(label_text(family.labels, (report.name, *labels)), value)


def shown_in_state(destinations: Sequence[Destination], reports: Sequence[DestinationReport]) -> dict[str, object]:
    """The destinations by name: where each forwards to, how it fares and what was counted."""
    return {
        report.name: {
            "url": destination.url,
            "text": destination.text,
            "signals": destination.signals,
            "failure": report.failure,
            "unreadable": report.unreadable,
            "backlog_bytes": report.backlog.size_bytes,
            "backlog_s": round(report.backlog.age_s, 3),
            **msgspec.structs.asdict(report.tally),
        }
        for destination, report in zip(destinations, reports, strict=True)
    }
