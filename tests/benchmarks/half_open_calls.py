"""What a proper sender gets, and how soon /healthz answers, in the middle of half-open gRPC calls; printed as JSON.

Beside it stands what the machine and what the front are to blame for: how late an idle process woke meanwhile, and how
long iterations of the front's event loop took, in CPU time of their thread and in all.

300 calls announce a message and hold it back, for good or anew every 0.3 s, with the sidecar's own deadlines and with
short ones: `python -m tests.benchmarks.half_open_calls [--seconds 6]`.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tests.benchmarks.pauses import instrument_loops, iterations_of, pauses_of_the_machine
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn
from tests.integration.raw_clients import GRPC_OPENED, connections, grpc_call, http2_frame

CALLS: Final = 300
HALF_A_MESSAGE: Final = GRPC_OPENED + grpc_call() + http2_frame(0, 0, 1, b"\0\0\1\0\0" + bytes(1000))
DEADLINES: Final[dict[str, tuple[str, ...]]] = {
    "own": (),
    "short": ("--header-timeout", "1", "--body-timeout", "1.5", "--idle-timeout", "1"),
}
_EVERY_S: Final = 0.02
_RENEWED_S: Final = 0.3


@contextlib.contextmanager
def repeated(step: Callable[[], None]) -> Generator[None]:
    """Do a step again and again in a thread."""
    enough = threading.Event()

    def run() -> None:
        while not enough.is_set():
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def measured(arguments: tuple[str, ...], lasts_s: float, *, renewed: bool) -> dict[str, Any]:
    """The figures of one sidecar."""
    health_s: list[float] = []
    export_s: list[float] = []
    refused = 0
    request = turns_request([client_turn()])
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_sidecar(
            Path(folder) / "store", *arguments, before=(loops := instrument_loops(Path(folder) / "before"))
        ) as sidecar,
    ):

        def look() -> None:
            began_s = time.perf_counter()
            pages.get("/healthz").raise_for_status()
            health_s.append(time.perf_counter() - began_s)
            time.sleep(_EVERY_S)

        def renew() -> None:
            with connections(sidecar.grpc, CALLS, HALF_A_MESSAGE):
                time.sleep(_RENEWED_S)

        with contextlib.ExitStack() as stack:
            stack.callback(lambda: found.update(front_loop=iterations_of(loops, sidecar.process.pid)))
            stack.callback(sidecar.terminate)
            stack.enter_context(pauses_of_the_machine(found))
            pages = stack.enter_context(httpx.Client(base_url=sidecar.http, timeout=20))
            stack.enter_context(repeated(look))
            stack.enter_context(connections(sidecar.grpc, CALLS, HALF_A_MESSAGE))
            if renewed:
                stack.enter_context(repeated(renew))
            channel = stack.enter_context(grpc.insecure_channel(sidecar.grpc))
            until_s = time.monotonic() + lasts_s
            while time.monotonic() < until_s:
                began_s = time.perf_counter()
                try:
                    TraceServiceStub(channel).Export(request, timeout=60, wait_for_ready=True)
                    export_s.append(time.perf_counter() - began_s)
                except grpc.RpcError:
                    refused += 1
                time.sleep(_EVERY_S)
    return {
        "stored": len(export_s),
        "refused": refused,
        "stored_worst_s": round(max(export_s, default=0.0), 3),
        "healthz_p99_ms": round(sorted(health_s)[len(health_s) * 99 // 100] * 1e3, 1),
        "healthz_worst_ms": round(max(health_s) * 1e3, 1),
        **found,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each case lasts")
    lasts_s: float = parser.parse_args().seconds
    figures = {
        f"{name} deadlines, {'renewed' if renewed else 'held'}": measured(arguments, lasts_s, renewed=renewed)
        for name, arguments in DEADLINES.items()
        for renewed in (False, True)
    }
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
