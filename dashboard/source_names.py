"""The environment variables by which the launcher tells the pages what to show."""

from typing import Final

ENV_STORE: Final = "VOICEPROBE_DASHBOARD_STORE"
ENV_SLO: Final = "VOICEPROBE_DASHBOARD_SLO"
# A JSON list of places with runs; without it the one store is the place.
ENV_RUNS: Final = "VOICEPROBE_DASHBOARD_RUNS"
# The address of Locust's page, where there is one to start callers on.
ENV_LOCUST: Final = "VOICEPROBE_DASHBOARD_LOCUST"
