"""The machine that figures were taken on: a figure without it says nothing."""

import os
import platform
import shutil
import ssl
import subprocess
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("gevent", "locust", "websocket-client", "websockets", "numpy", "orjson", "opentelemetry-sdk")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _compiler() -> str | None:
    cc = shutil.which("cc")
    if cc is None:
        return None
    output = subprocess.run([cc, "--version"], capture_output=True, text=True, check=False).stdout
    return output.splitlines()[0] if output else None


def machine_info() -> dict[str, object]:
    """What the figures depend on."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "compiler": _compiler(),
        "load_before": round(load[0], 2) if load else None,
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def sentence(known: dict[str, object]) -> str:
    """The same in one line, for people."""
    return f"{known['cpu']}, {known['cores']} cores, {known['system']} {known['kernel']}, Python {known['python']}"
