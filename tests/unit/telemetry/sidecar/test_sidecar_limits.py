"""The budget of bytes that bodies in progress hold, and the number of connections below the limit of descriptors."""

import resource
import subprocess
import sys

import pytest

from telemetry.sidecar.limits import BodyBudget, BudgetExhausted


def test_leases_share_a_budget_and_give_it_back() -> None:
    budget = BodyBudget(100)
    with budget.lease() as first:
        first.grow(60)
        with budget.lease() as second:
            second.grow(40)
            with pytest.raises(BudgetExhausted):
                second.grow(1)
            assert (budget.held_bytes, second.held_bytes) == (100, 40)
        first.grow(40)
        first.shrink(70)
        assert budget.held_bytes == 30
    assert budget.held_bytes == 0


def test_a_request_that_has_ended_holds_nothing_more() -> None:
    budget = BodyBudget(100)
    with budget.lease() as lease:
        lease.grow(10)
    with pytest.raises(BudgetExhausted):
        lease.grow(1)
    lease.shrink(10)
    assert budget.held_bytes == 0


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
