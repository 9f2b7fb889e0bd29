"""A stand-in for a clone of the project, with empty locks, so that an environment is made without any network."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUND_S = 600

PYTEST = "import sys\nprint('pytest:', *sys.argv[1:])\n"
MAIN = """
import sys

def main():
    print("arguments:", *sys.argv[1:])
    return 3 if "fail" in sys.argv else 0
"""


class Checkout:
    """A stand-in for a clone of the project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        (root / "loadtest" / "cli").mkdir(parents=True)
        (root / "loadtest" / "cli" / "main.py").write_text(MAIN)
        (root / "pytest.py").write_text(PYTEST)
        (root / "tests").mkdir()
        (root / ".ci").mkdir()
        for lock in ("requirements.lock", "requirements-dev.lock", "tests/peers.lock", ".ci/system-packages.txt"):
            (root / lock).write_text("# nothing\n")
        shutil.copy2(ROOT / "voiceprobe", root / "voiceprobe")

    def environment(self, **settings: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VOICEPROBE_", "PYTHON"))}
        return kept | {"VOICEPROBE_NO_UV": "1", "VOICEPROBE_PYTHON": sys.executable, "PIP_NO_INDEX": "1"} | settings

    def start(
        self, *arguments: str, command: Path | None = None, cwd: Path | None = None, **settings: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(command or self.root / "voiceprobe"), *arguments],
            cwd=cwd or self.root,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A suite that a shell started in the background ignores interrupts, and its children would, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - pytest has one thread
        )

    def run(
        self, *arguments: str, command: Path | None = None, cwd: Path | None = None, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, command=command, cwd=cwd, **settings)
        try:
            out, err = process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
