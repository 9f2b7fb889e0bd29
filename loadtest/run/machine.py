"""What a calibration depends on: the machine, its kernel, the interpreter, and the code that moves the audio."""

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from loadtest.run.processes import ROOT
from loadtest.swarm.cores import usable_cores
from loadtest.swarm.priority import may_be_realtime

UNKNOWN: Final = "unknown"
# The code between the wire and the figures: a change in it may change the instrument's error.
_ENGINE: Final = (
    "loadtest/engine",
    "loadtest/conversation",
    "loadtest/protocols",
    "loadtest/audio",
    "loadtest/scenario",
    "loadtest/speech",
    "loadtest/swarm",
    "loadtest/timerfd.py",
)


def fingerprint() -> dict[str, str]:
    """This machine and this engine, in words."""
    return {
        "cpu": _cpu(),
        "cores": str(usable_cores()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        # How soon a generator of this user gets the processor beside others.
        "priority": "real-time" if may_be_realtime() else "normal",
        "engine": engine_version(),
        "gevent": _version("gevent"),
        "locust": _version("locust"),
    }


def engine_version() -> str:
    """The distribution's version and a digest of the engine's sources, which change more often than it does."""
    digest = hashlib.sha256()
    for name in _ENGINE:
        place = ROOT / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    released, digested = _version("voiceprobe"), digest.hexdigest()[:8]
    return digested if released == UNKNOWN else f"{released}+{digested}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine() or UNKNOWN


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return UNKNOWN
