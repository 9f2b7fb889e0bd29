"""Servers that we did not write, one process for each in a run of the tests, started for the first test that asks; and
a second try for what fails."""

from collections.abc import Generator

import pytest

from tests.integration.calling import assistant
from tests.integration.peers import processes
from tests.integration.reruns import pytest_itemcollected, pytest_runtest_makereport, pytest_runtest_teardown

__all__ = ["pytest_itemcollected", "pytest_runtest_makereport", "pytest_runtest_teardown"]  # hooks of a second try


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a reference assistant whose answers begin after 80 ms; files with another one have their own."""
    with assistant(tmp_path_factory.mktemp("logs"), "--llm-ttft", "constant:80ms") as address:
        yield address


@pytest.fixture(scope="session")
def pipecat_port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """The port of Pipecat's development runner with the bot of pipecat_bot.py.

    All its wires are on it: `/ws-client` (protobuf), `/ws` (telephony and evaluation), `/api/offer` (SmallWebRTC).
    """
    port = processes.free_port()
    command = processes.pipecat_runner(port)
    # Pipecat's telephony serializers ask for an account, with which they would end a real call.
    account = {"TWILIO_ACCOUNT_SID": "ACtest", "TWILIO_AUTH_TOKEN": "none", "TELNYX_API_KEY": "none"}
    account |= {"PLIVO_AUTH_ID": "none", "PLIVO_AUTH_TOKEN": "none"}
    log = tmp_path_factory.mktemp("pipecat") / "pipecat.log"
    with processes.running(command, port, log, environment=account):
        yield port
