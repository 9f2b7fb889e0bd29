"""First bytes that show that only one side speaks TLS."""

import pytest

from loadtest.engine.tls_mismatch import cannot_be_tls, hint, is_alert


@pytest.mark.parametrize("first", [b"H", b"HT", b"\x81", b"\x16H", b"\x15\x00", b"\x00\x00", b"220 mail ready\r\n"])
def test_bytes_that_no_tls_server_begins_with(first: bytes) -> None:
    assert cannot_be_tls(first)
    assert not is_alert(first)


@pytest.mark.parametrize("first", [b"", b"\x15", b"\x16", b"\x15\x03", b"\x16\x03", b"\x16\x03\x03\x00\x7a"])
def test_bytes_that_a_tls_server_may_begin_with(first: bytes) -> None:
    assert not cannot_be_tls(first)
    assert is_alert(first) is first.startswith(b"\x15")


def test_the_hint_names_the_other_scheme() -> None:
    assert hint("h:1", "ws", tls=True) == "if the server at h:1 does not speak TLS, use ws://"
    assert hint("h:1", "tls", tls=False) == "if the server at h:1 speaks TLS, use tls://"
