"""speech-to-speech's own server, a voice server that we did not write, as a process on a free port."""

import contextlib
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

_SERVER = Path(__file__).parents[1] / "peers" / "s2s_server.py"


@contextlib.contextmanager
def s2s_server(units: int) -> Generator[int]:
    """Its port, once it listens; `units` calls at the same time."""
    with subprocess.Popen(
        [sys.executable, str(_SERVER), "--units", str(units)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            announced = process.stdout.readline()
            assert announced.startswith("listening 127.0.0.1:"), announced
            yield int(announced.rsplit(":", 1)[1])
        finally:
            process.terminate()
