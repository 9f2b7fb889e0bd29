"""What a worker was given itself wins over the master's, also over an empty option of the master's."""

from argparse import Namespace
from typing import Any

import pytest

from loadtest.swarm.machine_options import NAMES, put_back, resolved, set_aside

EMPTY = dict.fromkeys(NAMES, "")


def heard_by_worker(master: dict[str, Any], worker: dict[str, Any]) -> Namespace:
    """What holds in a worker after Locust has copied the master's options over its own."""
    sent, own = Namespace(**EMPTY | master, users=3), Namespace(**EMPTY | worker, users=1)
    set_aside(sent)
    vars(own).update(vars(sent))
    return resolved(own)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("master", "worker", "holds"),
    [("", "mine", "mine"), ("theirs", "mine", "mine"), ("theirs", "", "theirs"), ("", "", "")],
)
def test_the_workers_own_wins(name: str, master: str, worker: str, holds: str) -> None:
    found = heard_by_worker({name: master}, {name: worker})
    assert getattr(found, name) == holds
    assert found.users == 3, "all else is the master's"


def test_the_masters_key_never_meets_a_workers_own_certificate() -> None:
    found = heard_by_worker({"client_cert": "theirs.pem", "client_key": "theirs.key"}, {"client_cert": "mine.pem"})
    assert (found.client_cert, found.client_key) == ("mine.pem", "")


def test_the_master_has_its_own_while_and_after_a_run_and_as_its_page_changed_it() -> None:
    options = Namespace(**EMPTY | {"spool": "here"})
    for spool in ("here", "there"):
        options.spool = spool
        set_aside(options)
        assert "spool" not in vars(options), "what is sent overwrites nothing"
        assert resolved(options).spool == spool
        set_aside(options)
        put_back(options)
        assert vars(options) == EMPTY | {"spool": spool}
    put_back(options)
    assert options.spool == "there"


def test_options_that_were_never_sent_are_as_given() -> None:
    assert vars(resolved(Namespace(spool="here", users=1))) == {"spool": "here", "users": 1}
