"""Turns that arrive at a sidecar as spans all the time, while something else is looked at."""

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from telemetry.model.turns import Turn
from tests import asking
from tests.fixtures_sidecar import turns_request

PROTOBUF = {"content-type": "application/x-protobuf"}
EVERY_S = 0.2


@contextmanager
def traffic(http: str, batches: Iterable[Sequence[Turn]]) -> Generator[None]:
    """Send a sidecar one batch after another, each made when it is due; `batches` may be without end."""
    stop = threading.Event()

    def send() -> None:
        for turns in batches:
            asking.post(f"{http}/v1/traces", content=turns_request(turns).SerializeToString(), headers=PROTOBUF)
            if stop.wait(EVERY_S):
                return

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join(60)
