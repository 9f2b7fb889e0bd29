"""Tokens and TLS of clients that send to a sidecar or read from it, from the environment."""

import os
import ssl

from telemetry.model import semconv
from telemetry.model.addresses import checked_token
from telemetry.model.errors import ConfigError


def sidecar_token() -> str | None:
    """The token that the sidecar requires, from the environment only, so that no process list shows it.

    Raises ConfigError, which does not show it, if a header cannot carry it.
    """
    token = os.environ.get(semconv.SIDECAR_TOKEN_VARIABLE, "")
    return checked_token(token, semconv.SIDECAR_TOKEN_VARIABLE) if token.strip() else None


def sidecar_context() -> ssl.SSLContext:
    """Create a context that verifies the sidecar, TLS 1.2 or newer, with a client certificate if one is given.

    Raises ConfigError for an unusable file; without a CA file, the system's authorities are trusted.
    """
    ca_file = os.environ.get(semconv.SIDECAR_CA_VARIABLE) or None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            semconv.SIDECAR_CA_VARIABLE,
            [f"{ca_file} cannot be used ({_reason(error)}); name a PEM file with the CA of the sidecar's certificate"],
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    cert = os.environ.get(semconv.SIDECAR_CLIENT_CERT_VARIABLE) or None
    key = os.environ.get(semconv.SIDECAR_CLIENT_KEY_VARIABLE) or None
    if cert is not None:
        _load(context, cert, key)
    return context


def _load(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    try:
        # Without a passphrase, OpenSSL would ask for one at the terminal; an empty one decrypts nothing.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        files = cert if key is None else f"{cert} with {key}"
        raise ConfigError(
            semconv.SIDECAR_CLIENT_CERT_VARIABLE,
            [f"{files} cannot be used ({_reason(error)}); name a certificate and its key, not encrypted, as PEM files"],
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return (getattr(error, "strerror", None) or str(error)).lower()
