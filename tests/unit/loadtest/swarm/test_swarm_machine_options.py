"""A worker's own options take precedence over the master's, also over an empty option of the master's."""

from argparse import Namespace
from typing import Any

import pytest

from loadtest.scenario.document import decode_settings, encode_settings
from loadtest.scenario.options import settings_from
from loadtest.scenario.settings import SwarmSettings
from loadtest.swarm.resolution import NAMES, hold_back, put_back, with_own

EMPTY = dict.fromkeys(NAMES, "")


def settings_of_worker(master: dict[str, Any], worker: dict[str, Any]) -> SwarmSettings:
    """Return a worker's settings after Locust has copied the master's options over its own."""
    sent, own = Namespace(**EMPTY | master, turns=3), Namespace(**EMPTY | worker, turns=1)
    sent.voice_settings = encode_settings(settings_from(vars(sent)))
    hold_back(sent)
    vars(own).update(vars(sent))
    return with_own(decode_settings(own.voice_settings), own)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("master", "worker", "holds"),
    [("", "mine", "mine"), ("theirs", "mine", "mine"), ("theirs", "", "theirs"), ("", "", None)],
)
def test_the_workers_own_wins(name: str, master: str, worker: str, holds: str | None) -> None:
    settings = settings_of_worker({name: master}, {name: worker})
    assert getattr(settings, name) == holds
    assert settings.turns == 3, "all else is the master's"


def test_the_masters_key_never_meets_a_workers_own_certificate() -> None:
    theirs = {"client_cert": "theirs.pem", "client_key": "theirs.key"}
    settings = settings_of_worker(theirs, {"client_cert": "mine.pem"})
    assert (settings.client_cert, settings.client_key) == ("mine.pem", None)
    settings = settings_of_worker(theirs, {"client_cert": "mine.pem", "client_key": "mine.key"})
    assert (settings.client_cert, settings.client_key) == ("mine.pem", "mine.key")


def test_master_has_own_options_after_run_and_page_changes() -> None:
    options = Namespace(**EMPTY | {"spool": "here"})
    for spool in ("here", "there"):
        options.spool = spool
        held = hold_back(options)
        assert not set(NAMES) & set(vars(options)), "what is sent overwrites nothing"
        put_back(options, held)
        assert vars(options) == EMPTY | {"spool": spool}
    put_back(options, {})
    assert options.spool == "there"


def test_a_process_by_itself_has_what_its_flags_say() -> None:
    options = Namespace(**EMPTY | {"client_cert": "mine.pem", "client_key": "mine.key", "spool": "here"})
    settings = settings_from(vars(options))
    assert with_own(settings, options) == settings
    assert (settings.client_key, settings.spool) == ("mine.key", "here")
