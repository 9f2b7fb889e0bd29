"""What a comparison of wires makes of its windows: paired ratios, medians, and the wires that cost too much."""

from io import StringIO

import pytest
from rich.console import Console

from tests.benchmarks.bench.density.report import costs, markdown, print_costs
from tests.benchmarks.bench.density.windows import RECEIVED, SENT, WindowCost
from tests.benchmarks.bench.density.wires import RAW


def sent(wire: str, us: float, *, frames: int = 1000, held_up: int = 0) -> WindowCost:
    return WindowCost(wire, SENT, round(us * 1e3 * frames), frames, held_up, 648, 0, 1)


ROUNDS = [
    [sent(RAW, 2.0), sent("a", 6.0), sent(RAW, 4.0), sent("b", 4.0), sent(RAW, 4.0)],
    [sent(RAW, 10.0), sent("a", 15.0), sent(RAW, 10.0), sent("b", 30.0), sent(RAW, 20.0)],
    [sent(RAW, 1.0), sent("a", 1.5), sent(RAW, 1.0), sent("b", 0.9, held_up=3), sent(RAW, 1.0)],
]


def test_a_wire_is_compared_with_the_raw_windows_around_it_in_each_round() -> None:
    raw, a, b = costs(ROUNDS, {})
    assert raw.times_raw is None
    assert a.times_raw is not None
    assert b.times_raw is not None
    assert (a.times_raw.middle, a.times_raw.least, a.times_raw.most) == pytest.approx((1.5, 1.5, 2.0))
    assert (b.times_raw.middle, b.times_raw.least, b.times_raw.most) == pytest.approx((1.0, 0.9, 2.0))
    assert a.sent_us is not None
    assert a.sent_us.middle == pytest.approx(6.0)
    assert raw.sent_us is not None
    assert raw.sent_us.rounds == 9


def test_a_wire_above_the_most_is_marked() -> None:
    dear = [[sent(RAW, 2.0), sent("a", 3.3), sent(RAW, 2.0), sent("b", 3.2), sent(RAW, 2.0)]]
    assert [cost.verdict for cost in costs(dear, {})] == ["", "above 1.6", "≤ 1.6"]


def test_a_received_chunk_costs_what_its_window_cost_and_outside_of_it_none_counts() -> None:
    windows = [sent(RAW, 2.0), WindowCost(RAW, RECEIVED, 60_000, 1, 0, 648, 100, 200)]
    (raw,) = costs([windows], {RAW: [99, 100, 150, 199, 200]})
    assert raw.received_us is not None
    assert raw.received_us.middle == pytest.approx(20.0)


def test_windows_without_frames_have_no_figure() -> None:
    windows = [sent(RAW, 2.0), sent("a", 0.0, frames=0), sent(RAW, 2.0), WindowCost("a", RECEIVED, 5, 0, 0, 0, 0, 9)]
    raw, a = costs([windows], {})
    assert raw.sent_us is not None
    assert (a.sent_us, a.times_raw, a.received_us) == (None, None, None)


def test_the_table_shows_every_wire_and_what_had_to_wait() -> None:
    output = StringIO()
    found = costs(ROUNDS, {})
    print_costs(Console(file=output, width=132), found)
    assert "1.50 (1.50–2.00)" in output.getvalue()
    assert "b: 3 frames had to wait for the sink" in output.getvalue()
    assert "a: " not in output.getvalue()
    lines = markdown(found, "a machine").splitlines()
    assert "| a | 648 | 6.00 (1.50–15.00) | 1.50 (1.50–2.00) | ≤ 1.6 | – |" in lines
    assert lines[-1] == "a machine"
