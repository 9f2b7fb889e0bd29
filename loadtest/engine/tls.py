"""TLS over memory buffers, because a socket wrapped by the ssl module gives no kernel timestamps.

The endpoint's certificate is always verified. Each error is one sentence that names the flag that fixes it.
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
_CERTIFICATE_REQUIRED: Final = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
# The alerts with which an endpoint rejects the client certificate.
_CERTIFICATE_REJECTED: Final = frozenset(
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
    """Return a context with the system's CAs that verifies chain and host name and requires TLS 1.2 or newer."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True, slots=True)
class TlsClient:
    """TLS settings of callers. `server_name` replaces the host name in SNI and verification."""

    context: ssl.SSLContext = field(default_factory=verifying_context)
    server_name: str | None = None
    has_client_certificate: bool = False

    def begin(self, host: str) -> "Tls":
        """Create the TLS state of one connection. Raises ValueError for an invalid host name."""
        return Tls(self.context, self.server_name or host, self.has_client_certificate)


def tls_client(
    ca_file: str | None = None,
    *,
    client_cert: str | None = None,
    client_key: str | None = None,
    server_name: str | None = None,
    passphrase: str | None = None,
) -> TlsClient:
    """Set up TLS as the flags request it. With `ca_file`, only its CAs are trusted.

    Raises UsageError with one line for each unusable file or name.
    """
    faults: list[str] = []
    context = verifying_context()
    if ca_file is not None:
        try:
            context = ssl.create_default_context(cafile=ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        except (OSError, ssl.SSLError) as error:
            faults.append(f"--ca-file {ca_file}: {_reason(error)}; give a PEM file that contains the CA certificate")
    if client_cert is not None:
        faults += _load_certificate(context, client_cert, client_key, passphrase)
    elif client_key is not None:
        faults.append(f"--client-key {client_key}: requires --client-cert with the certificate that belongs to the key")
    client = TlsClient(context, server_name, client_cert is not None)
    if server_name is not None:
        try:
            client.begin(server_name)
        except ValueError:
            faults.append(f"--sni {server_name!r} is not a host name; give one such as voice.example.com")
    if faults:
        raise UsageError("\n".join(faults))
    return client


def _load_certificate(context: ssl.SSLContext, cert: str, key: str | None, passphrase: str | None) -> list[str]:
    prompts: list[bool] = []

    def supply_passphrase() -> str:
        prompts.append(True)
        # Without a callback, OpenSSL would prompt on the terminal. An empty passphrase decrypts nothing.
        return passphrase or ""

    flag = f"--client-cert {cert}" if key is None else f"--client-key {key}"
    try:
        context.load_cert_chain(cert, key, password=supply_passphrase)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return [f"{flag}: the key does not belong to the certificate {cert}"]
        if prompts and not passphrase:
            return [f"{flag}: the key is encrypted; set {PASSPHRASE_VARIABLE} to its passphrase"]
        if prompts:
            return [f"{flag}: the passphrase in {PASSPHRASE_VARIABLE} does not decrypt the key"]
        files = cert if key is None else f"{cert} and {key}"
        return [f"--client-cert {files}: {_reason(error)}; give a certificate and its private key in PEM format"]
    return []


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "it is not valid PEM"
    return (getattr(error, "strerror", None) or str(error)).lower()


class Tls:
    """TLS of one connection: bytes in, bytes out, no socket."""

    def __init__(self, context: ssl.SSLContext, server_name: str, has_client_certificate: bool = False) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._server_name = server_name
        self._has_client_certificate = has_client_certificate
        self._received_data = False  # application data came, so the endpoint accepted the connection
        self.done = False
        self.has_rest = False  # more came with what was fed last than decrypts to data: a record, or a part of one

    def step(self) -> bytes:
        """Continue the handshake and return the bytes to send, including an alert if it failed."""
        if not self.done:
            try:
                self._object.do_handshake()
                self.done = True
            except ssl.SSLError:
                pass  # more data is needed; `feed` has already raised any real error
        return self._outgoing.read()

    def feed(self, data: bytes) -> bytes:
        """Decrypt received bytes. Raises ssl.SSLError, which `sentence` explains."""
        self._incoming.write(data)
        self.has_rest = True
        if not self.done:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b""
            self.done = True
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(65536):
                pieces.append(piece)
                # Nothing more is there. The exception that says so costs as much as decrypting a frame of audio.
                if not self._incoming.pending and not self._object.pending():
                    self.has_rest = False
                    break
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # what was decrypted before it counts
        self._received_data = self._received_data or bool(pieces)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def has_output(self) -> bool:
        """Whether records of TLS's own are waiting to be sent."""
        return bool(self._outgoing.pending)

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt bytes to send."""
        self._object.write(data)
        return self._outgoing.read()

    def sentence(self, error: ssl.SSLError) -> str:
        """Explain in one sentence why the TLS connection failed and how to fix it."""
        return f"no secure connection to {self._server_name}: {self._cause(error)}"

    def _cause(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return _verification_cause(error, self._server_name)
        reason = error.reason or ""
        if reason in _CERTIFICATE_REQUIRED and not self._has_client_certificate:
            return "the endpoint requires a client certificate; give one with --client-cert and --client-key"
        if reason in _CERTIFICATE_REJECTED and self._has_client_certificate:
            alert = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
            return f"the endpoint rejected the client certificate ({alert}); give one that it trusts with --client-cert"
        if reason == "TLSV1_UNRECOGNIZED_NAME":
            return "the endpoint does not recognize that name; give the one it expects with --sni"
        if reason in _TOO_OLD:
            return "the endpoint does not support TLS 1.2 or newer"
        return f"TLS failed ({reason.lower().replace('_', ' ') or error})"

    def why_it_ended(self, reason: str) -> str:
        """Return the reason why the connection ended after the handshake, with its likely cause."""
        if self._received_data:
            return reason
        question = (
            "does it trust the client certificate"
            if self._has_client_certificate
            else "does it require a --client-cert"
        )
        return f"{reason} right after the TLS handshake; {question}?"


def _verification_cause(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet"
    if error.verify_code in _WRONG_NAME:
        return f"its certificate is not valid for {name}; give a name that it is valid for with --sni"
    if error.verify_code in _NOT_TRUSTED:
        return f"its certificate is not signed by a trusted CA ({error.verify_message}); give the CA with --ca-file"
    return f"its certificate cannot be verified ({error.verify_message})"
