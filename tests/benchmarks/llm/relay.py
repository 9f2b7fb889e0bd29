"""A relay before a model's server that says when each answer really passed: the reference for every tool's figures.

    python tests/benchmarks/llm/relay.py PORT          prints its own port, then a line of JSON for each answer

It forwards bytes as they come. `first` and `wall` are ms from the kernel's stamp of a request's first byte to when the
first piece with text, and the end, were handed to the kernel. Knows nothing of our own packages.
"""

import gc
import json
import re
import socket
import struct
import sys
import threading
import time

SO_TIMESTAMPNS = 35
TEXT = re.compile(rb'"content": ?"[^"]')


def pass_requests(client: socket.socket, server: socket.socket, asked: list[int]) -> None:
    """Forward requests, and note when each began."""
    client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    while True:
        data, ancillary, _, _ = client.recvmsg(65536, 64)
        arrived_ns = time.perf_counter_ns()
        if ancillary:
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            arrived_ns -= time.time_ns() - seconds * 1_000_000_000 - nanoseconds
        if not data:
            server.shutdown(socket.SHUT_WR)
            return
        if data.startswith(b"POST"):
            asked.append(arrived_ns)
        server.sendall(data)


def pass_answers(server: socket.socket, client: socket.socket, asked: list[int]) -> None:
    """Forward answers, and print their moments."""
    first_ns = None
    while data := server.recv(65536):
        sent_ns = time.perf_counter_ns()
        client.sendall(data)
        first_ns = first_ns or (sent_ns if TEXT.search(data) else None)
        if first_ns and b"[DONE]" in data:
            begin_ns, moments = asked.pop(), {"first": first_ns, "wall": sent_ns}
            line = json.dumps({name: (at_ns - begin_ns) / 1e6 for name, at_ns in moments.items()})
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            first_ns = None
    client.shutdown(socket.SHUT_WR)


def main() -> None:
    gc.disable()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        asked: list[int] = []
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=pass_requests, args=(client, server, asked), daemon=True).start()
        threading.Thread(target=pass_answers, args=(server, client, asked), daemon=True).start()


if __name__ == "__main__":
    main()
