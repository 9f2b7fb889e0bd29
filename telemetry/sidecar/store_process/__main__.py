"""Runs a store process for a front: `python -m telemetry.sidecar.store_process DESCRIPTOR OPTIONS`."""

import os
import signal
import socket
import sys

import msgspec

from telemetry.sidecar.messages import StoreOptions
from telemetry.sidecar.store_process.connection import FrontConnection
from telemetry.store.without_pandas import refuse_pandas


def main() -> None:
    """Serve the front at the other end of the socket that was inherited."""
    refuse_pandas()  # before modules are imported that make arrays
    from telemetry.sidecar.logs import start_child_logging
    from telemetry.sidecar.store_process.process import run

    start_child_logging("store")
    # Ctrl-C reaches every process of a terminal; the front says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, options = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as connection:
        run(FrontConnection(connection), msgspec.json.decode(options, type=StoreOptions))
    # Everything is closed. Threads that still wait for something must not meet an interpreter that takes itself apart.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
