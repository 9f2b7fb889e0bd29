"""Certificates made by openssl for a test: an authority, what it signs, and keys under a passphrase."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.programs import needed

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority in a folder."""

    folder: Path
    cert: Path
    key: Path

    def sign(self, name: str, *, days: int = 2, passphrase: str | None = None) -> Signed:
        """A certificate for a DNS name; with negative `days` it has expired."""
        made = Signed(self.folder / f"{name}{days}.pem", self.folder / f"{name}{days}.key")
        request = self.folder / f"{name}.csr"
        secrecy = ["-noenc"] if passphrase is None else ["-passout", f"pass:{passphrase}"]
        _openssl("req", "-new", *_KEY, *secrecy, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=DNS:{name}\nauthorityKeyIdentifier=keyid\n")
        given = ["-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", str(days), "-extfile", extensions]
        _openssl("x509", "-req", "-in", request, *given, "-out", made.cert)
        return made


def authority(folder: Path, name: str = "authority") -> Authority:
    """A new authority."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Authority(folder, folder / f"{name}.pem", folder / f"{name}.key")
    rights = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    made_for = ["-subj", f"/CN={name}", "-days", "2", *rights]
    _openssl("req", "-x509", *_KEY, "-noenc", *made_for, "-keyout", made.key, "-out", made.cert)
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([needed("openssl"), *map(str, arguments)], check=True, capture_output=True)
