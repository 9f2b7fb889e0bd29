"""A collector that takes everything: HTTP/1.1 on loopback, each request read whole and answered with 200."""

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass


@dataclass(slots=True)
class SinkCounts:
    """What came so far."""

    requests: int = 0
    bytes: int = 0


async def _serve(taken: SinkCounts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            await reader.readexactly(size)
            taken.requests += 1
            taken.bytes += size
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    writer.close()


async def _main() -> None:
    taken, over = SinkCounts(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    server = await asyncio.start_server(lambda r, w: _serve(taken, r, w), "127.0.0.1", 0)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await over.wait()
    sys.stdout.write(json.dumps({"requests": taken.requests, "bytes": taken.bytes}) + "\n")


if __name__ == "__main__":
    asyncio.run(_main())
