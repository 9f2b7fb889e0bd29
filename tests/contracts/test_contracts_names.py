"""Every runner of the suite gives a test the same name, whenever and in whichever process it collects it."""

import pytest


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00\x84w\x01k"])
def test_bytes_which_may_hold_a_time_of_day_name_no_test(request: pytest.FixtureRequest, content: bytes) -> None:
    assert request.node.name.endswith("[content]")
    assert content
