"""A certificate of the benchmark's own, for the peer over wss."""

import shutil
import subprocess
from pathlib import Path


def make(folder: Path) -> tuple[Path, Path] | None:
    """(certificate, key) for localhost; None where the openssl command is not there."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
