"""Two thousand callers in one small process, and hundreds of calls that leave nothing behind."""

import json
import subprocess
import sys

import pytest

from tests.integration.calling import CORPUS
from tests.integration.engine.soak import CALLS, WARM_UP_CALLS
from tests.integration.quick_endpoint import quick_endpoint

pytestmark = pytest.mark.nightly

MEGABYTE = 2**20
# What the process may have grown by after so many more calls; a leak of one read buffer a call would be 19 MB.
GROWTH_BYTES = 6 * MEGABYTE


def test_two_thousand_callers_on_shared_clips_use_under_400_mb() -> None:
    with quick_endpoint(round_s=0.1, deaf=True) as endpoint:
        command = [
            sys.executable,
            "-m",
            "tests.integration.engine.crowd",
            endpoint.url,
            "--count",
            "2000",
            "--corpus",
            CORPUS,
        ]
        output = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert (output["callers"], output["failed"]) == (2000, 0), output
    assert output["frames"] >= 50_000, output
    assert output["rss_mb"] < 400, output


def test_hundreds_of_calls_leave_nothing_behind() -> None:
    with quick_endpoint() as endpoint:
        command = [sys.executable, "-m", "tests.integration.engine.soak", endpoint.url]
        result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    before, after = result["before"], result["after"]
    assert set(result["left"].values()) == {0}, result["left"]
    assert result["lags_are_bounded"]
    assert result["outcomes"] == {"ok": WARM_UP_CALLS + CALLS}
    assert (result["survivors"], result["grown"]) == ([], {}), "what is over is freed at once, and waits for no round"
    assert (after["descriptors"], after["greenlets"]) == (before["descriptors"], before["greenlets"])
    assert after["rss_bytes"] - before["rss_bytes"] < GROWTH_BYTES
    assert result["frames_sent"] > CALLS
