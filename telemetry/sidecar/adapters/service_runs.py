"""The names of `telemetry.model.service_runs`, where the store can import them too."""

from telemetry.model.service_runs import UNNAMED_SERVICE, ServiceDay, service_day, service_run_id

__all__ = ["UNNAMED_SERVICE", "ServiceDay", "service_day", "service_run_id"]
