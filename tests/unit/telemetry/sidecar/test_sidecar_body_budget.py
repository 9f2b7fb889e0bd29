"""The budget of bytes that bodies in progress hold."""

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
