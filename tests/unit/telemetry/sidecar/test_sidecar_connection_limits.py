"""Number of connections below the limit of descriptors."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from telemetry.sidecar.limits import connections_allowed
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(connections_allowed({wanted}), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "soft_after"),
    [
        (64, 2000, 500, 500, 1256),  # raised as far as needed: 2 × 500 + 256
        (64, 600, 500, 172, 600),  # raised to the hard limit: (600 - 256) ÷ 2
        (1500, 1500, 500, 500, 1500),  # enough already
        (64, 64, 500, 16, 64),  # half of a small limit is kept free
    ],
)
def test_both_receivers_fit_below_the_limit_of_descriptors(
    soft: int, hard: int, wanted: int, allowed: int, soft_after: int
) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this process may not open so many descriptors")
    program = PROGRAM.format(soft=soft, hard=hard, wanted=wanted)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(allowed), str(soft_after), str(hard)]
