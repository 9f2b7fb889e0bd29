"""A collector that takes everything: HTTP/1.1 on loopback, each request read whole and answered with 200."""

import asyncio
import contextlib
import json
import sys


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
