"""`voiceprobe deliver`: what the workers of a swarm kept on disk, brought to a sidecar after they have ended."""

from pathlib import Path

import psutil

from loadtest.errors import UsageError
from loadtest.reports.figures import turns_and_spans
from loadtest.run.processes import ProcessFailedError
from loadtest.run.sidecars import deliver_spool
from telemetry.export.span_log import logs_in
from telemetry.model.foreign_text import has_control_characters


def deliver(folder: Path, sidecar_url: str) -> str:
    """Hand over everything in the folder; a sentence that says how much it was.

    Raises UsageError for a path that is not a folder and for a folder that is still written to or holds logs of another
    version, ProcessFailedError if the sidecar does not take everything.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give the one that the workers were given with --spool")
    if not sidecar_url.startswith(("http://", "https://")) or has_control_characters(sidecar_url):
        raise UsageError(f"--sidecar {sidecar_url!r} is not an address: give one such as http://127.0.0.1:4318")
    owners = {int(owner) for path in logs_in(folder) if (owner := path.name.partition("-")[0]).isdecimal()}
    if writing := sorted(owner for owner in owners if psutil.pid_exists(owner)):
        raise UsageError(f"{folder} is still written to by process {writing[0]}: deliver when the workers have ended")
    delivered = deliver_spool(folder, sidecar_url)
    if not delivered.is_complete:
        rest = turns_and_spans(delivered.left_turns, delivered.left_spans)
        raise ProcessFailedError(
            f"the sidecar at {sidecar_url} takes no more: {rest} of the spool stay in {folder}; try again"
        )
    if delivered.foreign:
        names = ", ".join(path.name for path in delivered.foreign)
        raise UsageError(
            f"{folder} holds logs that another version of voiceprobe wrote ({names}): deliver them with that version; "
            "all others were delivered"
        )
    if delivered.requests:
        return f"delivered from {folder}: {turns_and_spans(delivered.turns, delivered.spans)} of the spool"
    others = sum(path.is_file() for path in folder.iterdir())
    return f"nothing was waiting in {folder}" + (
        f"; files there that are not logs of this version: {others}" if others else ""
    )
