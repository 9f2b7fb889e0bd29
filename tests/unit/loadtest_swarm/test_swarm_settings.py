"""Settings are checked as a whole."""

from types import SimpleNamespace

import pytest

from loadtest.swarm.settings import SwarmSettings
from loadtest.swarm.worker import public_target

GOOD = "ws://127.0.0.1:9/v1/realtime"


def test_good_settings_have_no_faults() -> None:
    assert SwarmSettings(host=GOOD, noise="babble", snr=10.0, patience=2.0).faults() == []


def test_all_faults_are_said_at_once_each_with_how_to_mend_it() -> None:
    bad = SwarmSettings(
        host="http://x",
        protocol="carrier-pigeon",
        noise="pinkk",
        snr=3.0,
        onset="loud",
        turns=0,
        think=-1.0,
        patience=0.0,
    )
    faults = bad.faults()
    assert len(faults) == 7
    for part in ("ws://127.0.0.1", "openai-realtime", "babble", "rms-10ms", "1 to 1000", "--think -1", "--patience 0"):
        assert any(part in fault for fault in faults), part


@pytest.mark.parametrize("host", ["", "127.0.0.1:80", "ws://", "ws://h:99999/", "ftp://h/x"])
def test_an_address_that_is_none_is_refused(host: str) -> None:
    assert len(SwarmSettings(host=host).faults()) == 1


def test_what_locust_does_not_know_keeps_its_default() -> None:
    options = SimpleNamespace(host=GOOD, noise="", snr=None, turns=2, users=7)
    settings = SwarmSettings.from_options(options)
    assert (settings.host, settings.noise, settings.snr, settings.turns) == (GOOD, None, None, 2)
    assert settings.think == SwarmSettings().think


def test_a_token_comes_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEPROBE_TOKEN", "s3cret")
    settings = SwarmSettings(host=GOOD)
    assert settings.token == "s3cret"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://user:pass@host:8/v1?key=abc", "wss://host:8/v1"),
        ("ws://127.0.0.1:8765/v1/realtime", "ws://127.0.0.1:8765/v1/realtime"),
        ("wss://user:p@ss@host/x", "wss://host/x"),
    ],
)
def test_the_target_is_shown_without_credentials_and_query(url: str, shown: str) -> None:
    assert public_target(url) == shown
