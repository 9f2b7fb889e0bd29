"""A Redis server of the audit's own, whose files are searched like all others."""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis

from loadtest.run import processes

_READY_S: Final = 10.0
_END_S: Final = 5.0


@contextmanager
def redis_server(folder: Path) -> Generator[str | None]:
    """Its URL; None where the program is not installed. It saves its data in the folder when it ends.

    Raises ProcessFailedError when it does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    port = processes.free_port()
    log = folder / "redis.log"
    with log.open("ab") as words:
        process = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            preexec_fn=processes.end_with_parent,  # noqa: PLW1509 - it needs no lock
        )
    try:
        _wait(port, process, log)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    client = redis.Redis(host="127.0.0.1", port=port)
    for _ in range(int(_READY_S / 0.05)):
        try:
            client.ping()
        except redis.RedisError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        client.close()
        return
    raise processes.ProcessFailedError(f"redis-server did not start (log: {log})")
