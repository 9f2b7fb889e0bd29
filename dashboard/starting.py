"""What a page without a run says of how to start one. All sentences are HTML."""

import os
from typing import Final

from dashboard.markup import escape
from dashboard.source_names import ENV_LOCUST

_SERVICE: Final = "point a service's <code>OTEL_EXPORTER_OTLP_ENDPOINT</code> at the sidecar"
_BY_COMMAND: Final = "Start a run with <code>./voiceprobe demo</code> or <code>voiceprobe run ws://…</code>"


def start_a_run() -> str:
    """How to get turns into the store that is shown."""
    return f"{_on_locusts_page() or _BY_COMMAND}, or {_SERVICE}"


def start_the_first() -> str:
    """How to get a first run into a list of runs."""
    first = _on_locusts_page() or "Start one with <code>voiceprobe run ws://…</code>"
    return f"{first}; the run shows here while it goes on."


def _on_locusts_page() -> str:
    """Where callers are started if the launcher was given Locust's page: whoever sees this one may have no command."""
    address = escape(os.environ.get(ENV_LOCUST, ""))
    return address and f'Start callers on Locust\'s page, <a href="{address}">{address}</a>'
