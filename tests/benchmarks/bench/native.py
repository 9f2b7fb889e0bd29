"""The parts in C, built when they are needed, and what takes their place where there is no compiler."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

C_SOURCES: Final = Path(__file__).parent / "c"


@dataclass(frozen=True, slots=True)
class Native:
    """Commands of what could be built; None for what could not. `notes` say why."""

    control: str | None
    peer: str | None
    peer_tls: str | None
    notes: tuple[str, ...]
    conversation_caller: str | None = None
    conversation_endpoint: str | None = None

    def peer_command(self, *, tls: bool) -> list[str]:
        """How to start the peer: in C where it could be built, else in Python."""
        built = self.peer_tls if tls else self.peer
        return [built] if built is not None else [sys.executable, "-m", "tests.benchmarks.bench.endpoints.peer"]


def build(folder: Path, compiler: str | None = None) -> Native:
    """Compile the control and the peers into a folder. `compiler` is looked for when it is not named."""
    cc = compiler or shutil.which("cc")
    if cc is None:
        note = "there is no C compiler (cc): no control to compare with, and the peer is slower than the one in C"
        return Native(None, None, None, (note,))
    notes: list[str] = []

    def compiled(name: str, source: str, *flags: str) -> str | None:
        target = folder / name
        done = subprocess.run(
            [cc, "-O2", "-o", str(target), str(C_SOURCES / source), *flags], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return str(target)
        first = next((line for line in done.stderr.splitlines() if "error" in line), "it printed nothing")
        notes.append(f"{source} could not be compiled{' with TLS' if flags else ''}: {first}")
        return None

    control, peer = compiled("control", "control.c"), compiled("peer", "peer.c")
    peer_tls = compiled("peer-tls", "peer.c", "-DPEER_TLS", "-lssl", "-lcrypto")
    caller = compiled("conversation-caller", "conversation_caller.c")
    endpoint = compiled("conversation-endpoint", "conversation_endpoint.c")
    return Native(control, peer, peer_tls, tuple(notes), caller, endpoint)
