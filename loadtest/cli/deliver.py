"""`voiceprobe deliver`: what the workers of a swarm kept on disk, brought to a sidecar after they have ended."""

from pathlib import Path

import psutil

from loadtest.cli.processes import ProcessFailedError
from loadtest.cli.sidecars import deliver_spool
from loadtest.errors import UsageError
from telemetry import journal, spool


def deliver(folder: Path, sidecar_url: str) -> str:
    """Hand over everything in the folder; a sentence that says how much it was.

    Raises UsageError for a folder that is none or that is still written to, ProcessFailedError for what is not taken.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give the one that the workers were given with --spool")
    if not sidecar_url.startswith(("http://", "https://")):
        raise UsageError(f"--sidecar {sidecar_url!r} is no address: give one such as http://127.0.0.1:4318")
    files = [path for suffix in (spool.SUFFIX, journal.SUFFIX) for path in folder.glob(f"*{suffix}")]
    owners = {int(owner) for path in files if (owner := path.name.partition("-")[0]).isdecimal()}
    if writing := sorted(owner for owner in owners if psutil.pid_exists(owner)):
        raise UsageError(f"{folder} is still written to by process {writing[0]}: deliver when the workers have ended")
    delivered, revived = deliver_spool(folder, sidecar_url)
    if delivered.left or not revived:
        raise ProcessFailedError(f"the sidecar at {sidecar_url} takes no more: the rest stays in {folder}; try again")
    turns = sum(path.suffix == journal.SUFFIX for path in files)
    return (
        f"delivered from {folder}: spans of the spool {delivered.spans}, journals with last turns {turns}"
        if files
        else f"nothing was waiting in {folder}"
    )
