"""The run of turns that a service reports on its own: one for each service and UTC day."""

import re
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

# What every figure of such a run is, for people.
REPORTED: Final = "reported by the service, not heard by a caller"
UNNAMED_SERVICE: Final = "unknown_service"  # OpenTelemetry's own name for a service without one
SERVICE_RUN_PREFIX: Final = "service:"
_RUN_ID: Final = re.compile(SERVICE_RUN_PREFIX + r"(?P<service>.+):(?P<day>\d{4}-\d{2}-\d{2})", re.DOTALL)


class ServiceDay(NamedTuple):
    """A service by its `service.name`, and a day in UTC."""

    service: str
    day: date


def service_run_id(service: str, unix_ns: int) -> str:
    """The run of a turn of `service` that began at `unix_ns` of the wall clock: `service:NAME:YYYY-MM-DD`, in UTC."""
    day = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).date()
    return f"{SERVICE_RUN_PREFIX}{service or UNNAMED_SERVICE}:{day.isoformat()}"


def service_day(run_id: str) -> ServiceDay | None:
    """The service and day of a run id made by `service_run_id`; None for any other run id."""
    found = _RUN_ID.fullmatch(run_id)
    if found is None:
        return None
    try:
        return ServiceDay(found["service"], date.fromisoformat(found["day"]))
    except ValueError:
        return None
