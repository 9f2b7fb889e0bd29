"""What a page without a turn says: why there is none, and how to start a run. All sentences are HTML."""

import os
from typing import Final

from dashboard import header
from dashboard.markup import escape
from dashboard.runs_source import ended_without_turn, places
from dashboard.source_names import ENV_LOCUST

_SERVICE: Final = "point a service's <code>OTEL_EXPORTER_OTLP_ENDPOINT</code> at the sidecar"
_BY_COMMAND: Final = "Start a run with <code>./voiceprobe demo</code> or <code>voiceprobe run ws://…</code>"


def start_a_run() -> str:
    """How to get turns into the store that is shown."""
    return f"{_on_locusts_page() or _BY_COMMAND}, or {_SERVICE}"


def why_no_turn(store: str, run_id: str | None) -> tuple[str, ...]:
    """That the run of a store's folder has ended without a turn, and why, as its command found it: a target that was
    never reached leaves an empty store. Nothing where that is not known."""
    found = ended_without_turn(store, run_id)
    if found is None or not found.sentence:
        return ()
    return (f"Run <code>{escape(found.title)}</code> has ended.", f"<b>{escape(found.sentence)}</b>")


def no_runs_yet() -> str:
    """That no run is at the places that are shown, and how to get a first one there."""
    first = _on_locusts_page() or "Start one with <code>voiceprobe run ws://…</code>"
    searched = escape(", ".join(places()))
    return header.empty("No runs yet", f"{searched}: no run is here. {first}; the run shows here while it goes on.")


def _on_locusts_page() -> str:
    """Where callers are started if the launcher was given Locust's page: whoever sees this one may have no command."""
    address = escape(os.environ.get(ENV_LOCUST, ""))
    return address and f'Start callers on Locust\'s page, <a href="{address}">{address}</a>'
