"""Every runner of the suite gives a test the same name, whenever and in whichever process it collects it."""

import pytest

SHORT = 8


def test_bytes_name_no_test(request: pytest.FixtureRequest) -> None:
    named = [
        item.nodeid
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for value in item.callspec.params.values()
        if isinstance(value, bytes) and len(value) > SHORT and repr(value)[2:-1] in item.nodeid
    ]
    assert not named, "these names hold bytes, which may hold a time of day"


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00\x84w\x01k"])
def test_a_test_with_bytes_is_named_after_its_parameter(request: pytest.FixtureRequest, content: bytes) -> None:
    assert request.node.name.endswith("[content]")
    assert content
