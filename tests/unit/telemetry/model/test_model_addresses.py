"""Host names and addresses as they stand in URLs."""

from urllib.parse import urlsplit

import pytest

from telemetry.model.addresses import host_and_port, is_loopback, is_unspecified, local_host, without_brackets


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "Localhost.", "::ffff:127.0.0.1"])
def test_an_address_that_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "voice.example", "192.0.2.1", "::ffff:192.0.2.1", "", "[::1]"])
def test_an_address_that_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "2001:db8::1", "voice.example", "0.0.0.0"])
def test_a_url_made_of_a_host_has_that_host_and_port(host: str) -> None:
    parts = urlsplit(f"http://{host_and_port(host, 8501)}/path")
    assert (parts.hostname, parts.port, parts.path) == (host, 8501, "/path")


def test_the_zone_of_an_address_is_encoded() -> None:
    assert host_and_port("fe80::1%eth0", 80) == "[fe80::1%25eth0]:80"


def test_every_address_of_this_machine_is_reached_at_the_loopback_one_of_its_kind() -> None:
    assert [local_host(host) for host in ("0.0.0.0", "::", "192.0.2.1")] == ["127.0.0.1", "::1", "192.0.2.1"]
    assert [is_unspecified(host) for host in ("0.0.0.0", "::", "::1", "any")] == [True, True, False, False]


def test_brackets_belong_to_urls_alone() -> None:
    assert [without_brackets(host) for host in ("[::1]", "::1", "[::1", "a")] == ["::1", "::1", "[::1", "a"]
