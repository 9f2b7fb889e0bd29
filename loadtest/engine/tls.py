"""TLS over memory buffers, because a socket wrapped by the ssl module gives no kernel stamps.

The endpoint's certificate is always verified. What goes wrong is said in one sentence with the flag that mends it.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final

from loadtest.errors import UsageError

PASSPHRASE_VARIABLE: Final = "VOICEPROBE_CLIENT_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_WRONG_NAME: Final = frozenset({62, 64})
_NOT_TRUSTED: Final = frozenset({2, 18, 19, 20, 21, 27})
_WANTS_CERTIFICATE: Final = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
# What an endpoint says of a certificate of ours.
_REFUSES_CERTIFICATE: Final = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_DECRYPT_ERROR",
    }
)
_TOO_OLD: Final = frozenset({"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"})


def verifying_context() -> ssl.SSLContext:
    """The system's authorities, verification of chain and name, TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True, slots=True)
class TlsClient:
    """How callers secure their connections. `server_name` stands in for the host's name in SNI and verification."""

    context: ssl.SSLContext = field(default_factory=verifying_context)
    server_name: str | None = None
    shows_certificate: bool = False

    def begin(self, host: str) -> "Tls":
        """TLS for one connection. Raises ValueError for a name that cannot be one."""
        return Tls(self.context, self.server_name or host, self.shows_certificate)


def tls_client(
    ca_file: str | None = None,
    *,
    client_cert: str | None = None,
    client_key: str | None = None,
    server_name: str | None = None,
    passphrase: str | None = None,
) -> TlsClient:
    """TLS as the flags ask for it. With `ca_file` its authorities alone are trusted.

    Raises UsageError with one line for each file or name that cannot be used.
    """
    faults: list[str] = []
    context = verifying_context()
    if ca_file is not None:
        try:
            context = ssl.create_default_context(cafile=ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        except (OSError, ssl.SSLError) as error:
            faults.append(f"--ca-file {ca_file}: {_reason(error)}; give a PEM file with the authority's certificate")
    if client_cert is not None:
        faults += _load_certificate(context, client_cert, client_key, passphrase)
    elif client_key is not None:
        faults.append(f"--client-key {client_key}: a key alone is of no use; give its certificate with --client-cert")
    client = TlsClient(context, server_name, client_cert is not None)
    if server_name is not None:
        try:
            client.begin(server_name)
        except ValueError:
            faults.append(f"--sni {server_name!r} is no host name: give one such as voice.example.com")
    if faults:
        raise UsageError("\n".join(faults))
    return client


def _load_certificate(context: ssl.SSLContext, cert: str, key: str | None, passphrase: str | None) -> list[str]:
    asked: list[bool] = []

    def answer() -> str:
        asked.append(True)
        # Without a callback OpenSSL would ask the terminal. An empty passphrase opens nothing.
        return passphrase or ""

    flag = f"--client-cert {cert}" if key is None else f"--client-key {key}"
    try:
        context.load_cert_chain(cert, key, password=answer)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return [f"{flag}: the key does not belong to the certificate {cert}"]
        if asked and not passphrase:
            return [f"{flag}: the key is encrypted; put its passphrase into {PASSPHRASE_VARIABLE}"]
        if asked:
            return [f"{flag}: the passphrase in {PASSPHRASE_VARIABLE} does not open the key"]
        files = cert if key is None else f"{cert} and {key}"
        return [f"--client-cert {files}: {_reason(error)}; give a certificate and its private key as PEM"]
    return []


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "it holds nothing of the kind"
    return (getattr(error, "strerror", None) or str(error)).lower()


class Tls:
    """TLS of one connection: bytes in, bytes out, no socket."""

    def __init__(self, context: ssl.SSLContext, server_name: str, shows_certificate: bool = False) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._server_name = server_name
        self._shows_certificate = shows_certificate
        self._heard = False  # application data came: the endpoint accepted us
        self.done = False

    def step(self) -> bytes:
        """Go on with the handshake; bytes to send, an alert among them where it has failed."""
        if not self.done:
            try:
                self._object.do_handshake()
                self.done = True
            except ssl.SSLError:
                pass  # more is wanted; a fault was raised by `feed`, which saw it first
        return self._outgoing.read()

    def feed(self, data: bytes) -> bytes:
        """Encrypted bytes in, plain bytes out. Raises ssl.SSLError; `sentence` says what it means."""
        self._incoming.write(data)
        if not self.done:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.done = True
        plain = bytearray()
        while True:
            try:
                piece = self._object.read(65536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                piece = b""
            if not piece:
                self._heard = self._heard or bool(plain)
                return bytes(plain)
            plain += piece

    def encrypt(self, data: bytes) -> bytes:
        """Plain bytes in, encrypted bytes out."""
        self._object.write(data)
        return self._outgoing.read()

    def sentence(self, error: ssl.SSLError) -> str:
        """Why there is no secure connection, and how to mend it."""
        return f"no secure connection to {self._server_name}: {self._cause(error)}"

    def _cause(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return _verification_cause(error, self._server_name)
        reason = error.reason or ""
        if reason in _WANTS_CERTIFICATE and not self._shows_certificate:
            return "the endpoint asks for a client certificate; give one with --client-cert and --client-key"
        if reason in _REFUSES_CERTIFICATE and self._shows_certificate:
            word = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
            return f"the endpoint refused the client certificate ({word}); give one that it trusts with --client-cert"
        if reason == "TLSV1_UNRECOGNIZED_NAME":
            return "the endpoint does not know that name; give the one it expects with --sni"
        if reason in _TOO_OLD:
            return "the endpoint offers nothing from TLS 1.2 on"
        return f"TLS failed ({reason.lower().replace('_', ' ') or error})"

    def why_it_ended(self, reason: str) -> str:
        """The reason for an end of the connection after the handshake, with what is likely behind it."""
        if self._heard:
            return reason
        question = (
            "does it trust the client certificate" if self._shows_certificate else "does it ask for a --client-cert"
        )
        return f"{reason} right after the TLS handshake; {question}?"


def _verification_cause(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet"
    if error.verify_code in _WRONG_NAME:
        return f"its certificate is not for {name}; give the name that it is for with --sni"
    if error.verify_code in _NOT_TRUSTED:
        return f"nobody we trust signed its certificate ({error.verify_message}); give the authority with --ca-file"
    return f"its certificate cannot be verified ({error.verify_message})"
