"""The backlog: bytes and seconds of work that wait, and who is sent back."""

import pytest

from telemetry.sidecar.otlp.backlog import Backlog, Overloaded

MB = 1_000_000


def _measured(bytes_per_s: float, durable_s: float = 0.0) -> Backlog:
    """A backlog that has seen ten seconds of work at a rate."""
    backlog = Backlog()
    for _ in range(200):
        backlog.measured(0, int(bytes_per_s * 0.05), 0.05, durable_s)
    return backlog


def _admitted(backlog: Backlog, body_bytes: int) -> int:
    """How many requests of a size are taken before one is sent back."""
    for count in range(100_000):
        try:
            backlog.add(body_bytes)
        except Overloaded:
            return count
    raise AssertionError("nothing was ever sent back")


def test_about_two_seconds_of_work_may_wait() -> None:
    # At 1 MB/s, requests of 96 kB (100 kB with what each costs by itself): 2 s are twenty of them, and one on top.
    assert _admitted(_measured(1 * MB), 96_000) in (20, 21, 22)
    assert _admitted(_measured(10 * MB), 96_000) in range(195, 215)


def test_waiting_for_the_disk_counts() -> None:
    # 2 s at 50 ms decoding and 150 ms disk for each group: a quarter of the bytes.
    assert _admitted(_measured(1 * MB, durable_s=0.15), 96_000) in (5, 6, 7)


def test_bytes_are_bounded_however_quick_it_is() -> None:
    backlog = Backlog(bytes_max=10 * MB)
    backlog.measured(1, 1000 * MB, 1.0, 0.0)
    assert _admitted(backlog, MB) in (9, 10)


def test_a_request_alone_may_be_of_any_size() -> None:
    backlog = Backlog(bytes_max=10 * MB)
    backlog.add(20 * MB)
    with pytest.raises(Overloaded, match="send it again") as refused:
        backlog.add(1)
    assert 0 < refused.value.retry_after_s <= 2
    backlog.remove(20 * MB)
    assert (backlog.pending_bytes, backlog.pending_s) == (0, 0.0)
    backlog.add(20 * MB)


def test_tiny_requests_do_not_make_a_large_one_look_endless() -> None:
    backlog = Backlog()
    for _ in range(10_000):
        backlog.measured(1, 50, 0.0004, 0.0)
    backlog.add(50)
    backlog.add(18 * MB)  # 10 MB/s by what each request costs: under two seconds
