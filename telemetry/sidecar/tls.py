"""TLS of the two receivers: version 1.2 or newer, and client certificates if a CA for them is given."""

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from telemetry.model.errors import ConfigError
from telemetry.sidecar.secret_files import SecretFileError, secret_content

_KEY_BYTES_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS settings of the receivers. `requires_certificate` says whether clients must present one that a CA has signed.

    HTTP requests it and admits a client without one, which then sees only health and readiness: probes have no
    certificates. gRPC admits no client without one.
    """

    http: ssl.SSLContext
    grpc: grpc.ServerCredentials
    requires_certificate: bool


def server_tls(cert: Path, key: Path, client_ca: Path | None = None) -> ServerTls:
    """Load PEM files: the certificate chain and its key, and the CAs of the clients if those must present a
    certificate. Raises ConfigError with a sentence for each unusable file."""
    faults: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    for load in (partial(_load_chain, context, cert, key), partial(_load_client_ca, context, client_ca)):
        try:
            load()
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("TLS", faults)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=None if client_ca is None else client_ca.read_bytes(),
        require_client_auth=client_ca is not None,
    )
    return ServerTls(context, credentials, client_ca is not None)


def _load_chain(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        secret_content(key, _KEY_BYTES_MAX)
    except SecretFileError as error:
        raise ConfigError("tls_key", [str(error)]) from error
    asked: list[bool] = []

    def no_passphrase() -> str:
        asked.append(True)
        return ""  # without a callback, OpenSSL would prompt at the terminal; an empty passphrase decrypts nothing

    try:
        context.load_cert_chain(cert, key, password=no_passphrase)
    except (OSError, ValueError) as error:
        if asked:
            raise ConfigError(
                "tls_key", [f"{key} is encrypted; give a key without a passphrase, protected by its mode"]
            ) from error
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigError("tls_key", [f"{key} does not belong to the certificate {cert}"]) from error
        raise ConfigError(
            "tls_cert", [f"{cert} with {key}: {_reason(error)}; give a certificate and its key as PEM"]
        ) from error


def _load_client_ca(context: ssl.SSLContext, client_ca: Path | None) -> None:
    if client_ca is None:
        return
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise ConfigError(
            "tls_client_ca", [f"{client_ca}: {_reason(error)}; give the certificates of CAs as PEM"]
        ) from error
    context.verify_mode = ssl.CERT_OPTIONAL


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "it is not valid PEM"
    return (getattr(error, "strerror", None) or str(error)).lower()
