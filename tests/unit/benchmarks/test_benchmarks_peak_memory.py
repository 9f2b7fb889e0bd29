"""The peak of a process is its own, and not that of the process that started it."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.peak_memory import peak_rss_bytes_of

HELD_BYTES = 200_000_000
ASK = "from tests.benchmarks.peak_memory import peak_rss_bytes_of; print(peak_rss_bytes_of('self'))"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say")
def test_the_peak_is_that_of_the_process_itself() -> None:
    held = b"x" * HELD_BYTES
    child = int(subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True).stdout)
    own = peak_rss_bytes_of("self")
    assert own is not None
    assert own > len(held)
    assert 1_000_000 < child < HELD_BYTES
    by_number = peak_rss_bytes_of(os.getpid())
    assert by_number is not None
    assert own <= by_number < own + HELD_BYTES // 100  # the process goes on between the two
    assert peak_rss_bytes_of(2**30) is None
