"""Forwards for a store process: `python -m telemetry.sidecar.forwarding DESCRIPTOR`."""

import asyncio
import logging
import os
import signal
import socket
import sys

from telemetry.model.errors import TelemetryError


def main() -> None:
    """Serve the store process at the other end of the socket that was inherited."""
    from telemetry.sidecar.forwarding.process import run
    from telemetry.sidecar.logs import start_child_logging

    start_child_logging("forwarding")
    # Signals of a terminal or a service manager reach every process; the store process says when to stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    code = 0
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        connection.setblocking(False)
        try:
            asyncio.run(run(connection))
        except (TelemetryError, OSError, ValueError):
            logging.getLogger(__name__).exception("nothing can be forwarded")
            code = 1
    # Threads that still wait for a name server must not keep it.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
