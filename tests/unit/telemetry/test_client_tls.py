"""TLS settings from the environment, for every client of a sidecar."""

import ssl
from pathlib import Path

import pytest

from telemetry.client_tls import sidecar_context
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.model import semconv
from telemetry.model.errors import ConfigError, StoreError
from telemetry.store.reader import RemoteStore


@pytest.fixture
def no_pem(tmp_path: Path) -> str:
    file = tmp_path / "no.pem"
    file.write_text("nothing")
    return str(file)


def test_certificates_are_verified_with_tls_1_2_or_newer() -> None:
    context = sidecar_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("variable", [semconv.SIDECAR_CA_VARIABLE, semconv.SIDECAR_CLIENT_CERT_VARIABLE])
def test_a_file_that_cannot_be_used_is_a_sentence(variable: str, no_pem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, no_pem)
    with pytest.raises(ConfigError, match=f"{variable}: .*no.pem cannot be used") as refused:
        OtlpHttpExporter("https://localhost:4318", None)
    with pytest.raises(StoreError, match=f"{variable}: .*no.pem cannot be used"):
        RemoteStore("https://localhost:4318", None)
    assert str(refused.value).count("PEM") == 1
    OtlpHttpExporter("http://localhost:4318", None)
    RemoteStore("http://localhost:4318", None)
