"""Runs a store process for a front: `python -m telemetry.sidecar.store_process DESCRIPTOR OPTIONS`."""

import signal
import socket
import sys

import msgspec

from telemetry.sidecar.messages import StoreOptions
from telemetry.sidecar.store_process.connection import FrontConnection
from telemetry.sidecar.store_process.process import run


def main() -> None:
    """Serve the front at the other end of the socket that was inherited."""
    # Ctrl-C reaches every process of a terminal; the front says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, options = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as connection:
        run(FrontConnection(connection), msgspec.json.decode(options, type=StoreOptions))


if __name__ == "__main__":
    main()
