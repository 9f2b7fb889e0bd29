"""`voiceprobe deliver`: what the workers of a swarm kept on disk, brought to a sidecar after they have ended."""

from pathlib import Path

import psutil

from loadtest.errors import UsageError
from loadtest.reports.figures import turns_and_spans
from loadtest.run.processes import ProcessFailedError
from loadtest.run.sidecars import deliver_spool
from telemetry.export import spool, wal
from telemetry.model.foreign_text import has_control_characters


def deliver(folder: Path, sidecar_url: str) -> str:
    """Hand over everything in the folder; a sentence that says how much it was.

    Raises UsageError for a path that is not a folder or is still written to, ProcessFailedError for what is not taken.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: give the one that the workers were given with --spool")
    if not sidecar_url.startswith(("http://", "https://")) or has_control_characters(sidecar_url):
        raise UsageError(f"--sidecar {sidecar_url!r} is not an address: give one such as http://127.0.0.1:4318")
    files = [path for suffix in (spool.SUFFIX, wal.SUFFIX) for path in folder.glob(f"*{suffix}")]
    owners = {int(owner) for path in files if (owner := path.name.partition("-")[0]).isdecimal()}
    if writing := sorted(owner for owner in owners if psutil.pid_exists(owner)):
        raise UsageError(f"{folder} is still written to by process {writing[0]}: deliver when the workers have ended")
    delivered, revived = deliver_spool(folder, sidecar_url)
    if delivered.left or not revived:
        rest = turns_and_spans(delivered.left_turns, delivered.left_spans)
        raise ProcessFailedError(
            f"the sidecar at {sidecar_url} takes no more: {rest} of the spool stay in {folder}; try again"
        )
    turns = sum(path.suffix == wal.SUFFIX for path in files)
    return (
        f"delivered from {folder}: {turns_and_spans(delivered.turns, delivered.spans)} of the spool, "
        f"write-ahead logs with last turns {turns}"
        if files
        else f"nothing was waiting in {folder}"
    )
