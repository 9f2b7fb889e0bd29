"""Declared distributions: their text form, their draws, their tails."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.distributions import Delay, parse_delay, random_source
from loadtest.errors import UsageError

MS = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "constant:60ms",
        "uniform:40ms:80ms",
        "normal:60ms:10ms",
        "lognormal:60ms:0.3",
        "lognormal:1.5s:0.25;tail=0.02:2s",
        "constant:250us",
        "constant:0ns",
    ],
)
def test_text_form_reads_back_equal(text: str) -> None:
    assert str(parse_delay(text)) == text
    assert parse_delay(str(parse_delay(text))) == parse_delay(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60ms",
        "constant",
        "constant:60",
        "constant:-5ms",
        "uniform:80ms:40ms",
        "lognormal:60ms:x",
        "lognormal:60ms:nan",
        "normal:60ms",
        "constant:60ms;tail=2:1s",
        "constant:60ms;tail",
        "constant:60ms;slow=0.1:1s",
        "gamma:1ms:2",
    ],
)
def test_unreadable_forms_get_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"distribution|tail"):
        parse_delay(text)


def test_draws_follow_the_declaration() -> None:
    source = random_source(1, "test")
    assert {parse_delay("constant:60ms").draw_ns(source) for _ in range(5)} == {60 * MS}
    uniform = [parse_delay("uniform:40ms:80ms").draw_ns(source) for _ in range(2000)]
    assert min(uniform) >= 40 * MS
    assert max(uniform) <= 80 * MS
    assert statistics.mean(uniform) == pytest.approx(60 * MS, rel=0.03)
    lognormal = [parse_delay("lognormal:60ms:0.3").draw_ns(source) for _ in range(4000)]
    assert statistics.median(lognormal) == pytest.approx(60 * MS, rel=0.03)
    normal = [parse_delay("normal:60ms:10ms").draw_ns(source) for _ in range(4000)]
    assert statistics.stdev(normal) == pytest.approx(10 * MS, rel=0.06)


def test_slow_tail_hits_its_share() -> None:
    source = random_source(2, "tail")
    drawn = [parse_delay("constant:10ms;tail=0.1:2s").draw_ns(source) for _ in range(5000)]
    assert set(drawn) == {10 * MS, 2010 * MS}
    assert sum(delay > 1000 * MS for delay in drawn) / len(drawn) == pytest.approx(0.1, abs=0.015)


def test_same_scope_same_draws_other_scope_others() -> None:
    delay = parse_delay("lognormal:60ms:0.3")
    draws = [delay.draw_ns(random_source(7, "call", 3, "asr")) for _ in range(3)]
    assert len(set(draws)) == 1
    assert delay.draw_ns(random_source(7, "call", 4, "asr")) != draws[0]
    assert delay.draw_ns(random_source(8, "call", 3, "asr")) != draws[0]


@given(st.integers(0, 2**32), st.floats(0, 1e9), st.floats(0, 1e9))
def test_no_draw_is_negative(seed: int, mean: float, sigma: float) -> None:
    assert Delay("normal", mean, sigma).draw_ns(random.Random(seed)) >= 0
