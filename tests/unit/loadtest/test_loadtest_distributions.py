"""Declared distributions, the file of flags, and the kernel's timer."""

import json
import random
import select
import statistics
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext

from loadtest.distributions import Delay, parse_delay, random_source
from loadtest.errors import UsageError
from loadtest.flag_file import Split, encode_flags, flag_of, read_flags, share_of, unknown_variants, with_split
from loadtest.timerfd import TimerFd
from telemetry.model.errors import ConfigError

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


def document(targeting: object = None, **flag: Any) -> dict[str, Any]:
    voice = {"state": "ENABLED", "variants": {"stable": "s", "streaming": "t"}, "defaultVariant": "stable", **flag}
    if targeting is not None:
        voice["targeting"] = targeting
    return {"$schema": "https://flagd.dev/schema/v0/flags.json", "flags": {"voice": voice, "other": {"kept": [1]}}}


def split(share: float, control_share: float | None = None) -> Split:
    return Split("stable", "streaming", 1 - share if control_share is None else control_share, share)


def assigned(flags: dict[str, Any], callers: int = 2000) -> list[str | None]:
    """Return each caller's variant, by the evaluator that flagd's provider uses."""
    core = FlagdCore()
    core.set_flags(encode_flags({**flags, "flags": {"voice": flags["flags"]["voice"]}}).decode())
    return [
        core.resolve_string_value("voice", "", EvaluationContext(targeting_key=f"caller-{number}")).variant
        for number in range(callers)
    ]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 1.0])
def test_the_evaluator_gives_the_share_that_was_written(share: float) -> None:
    changed = with_split(document(), "voice", split(share), "flags.json")
    assert share_of(flag_of(changed, "voice", "flags.json"), "streaming") == pytest.approx(share)
    assert assigned(changed).count("streaming") / 2000 == pytest.approx(share, abs=0.02)


@pytest.mark.slow
@given(st.floats(0, 1), st.floats(0, 1))
def test_caller_with_candidate_keeps_it_while_share_grows(one: float, other: float) -> None:
    low, high = sorted((one, other))
    before = assigned(with_split(document(), "voice", split(low), "f"), 200)
    after = assigned(with_split(document(), "voice", split(high), "f"), 200)
    assert all(later == "streaming" for first, later in zip(before, after, strict=True) if first == "streaming")


def test_everything_else_stays_as_it_is() -> None:
    targeting = {
        "if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "streaming", {"fractional": [["stable", 1]]}]
    }
    before = document(targeting, metadata={"team": "voice"})
    kept = json.dumps(before)
    after = with_split(before, "voice", split(0.05), "flags.json")
    assert json.dumps(before) == kept  # the given document is not changed
    rule = after["flags"]["voice"]["targeting"]["if"]
    assert rule[2] == {"fractional": [["stable", 95], ["streaming", 5]]}
    rule[2] = {"fractional": [["stable", 1]]}
    assert after == before


def test_other_variants_keep_their_proportion_and_their_callers() -> None:
    variants = {"stable": "s", "streaming": "t", "local": "l"}
    rule = {"fractional": [{"var": "user"}, ["stable", 90], ["streaming", 2], ["local", 8]]}
    before = document(rule, variants=variants)
    after = with_split(before, "voice", split(0.05, 0.87), "flags.json")
    assert after["flags"]["voice"]["targeting"]["fractional"] == [
        {"var": "user"},
        ["stable", 87],
        ["streaming", 5],
        ["local", 8],
    ]
    del before["flags"]["voice"]["targeting"]["fractional"][0], after["flags"]["voice"]["targeting"]["fractional"][0]
    kept = [(one, other) for one, other in zip(assigned(before), assigned(after), strict=True) if one == "local"]
    assert kept
    assert all(other == "local" for _, other in kept)


def test_new_variant_is_added_next_to_control() -> None:
    rule = {"fractional": [["stable", 90], ["local", 10]]}
    changed = with_split(
        document(rule, variants={"stable": "s", "streaming": "t", "local": "l"}), "voice", split(0.05, 0.85), "f"
    )
    names = [name for name, _ in changed["flags"]["voice"]["targeting"]["fractional"]]
    assert names == ["stable", "streaming", "local"]


def test_a_share_of_a_tenth_of_a_percent_is_exact() -> None:
    changed = with_split(document(), "voice", split(0.001), "f")
    assert changed["flags"]["voice"]["targeting"]["fractional"] == [["stable", 999], ["streaming", 1]]


@pytest.mark.parametrize(
    ("unsuitable", "sentence"),
    [
        (document(state="DISABLED"), "state is DISABLED"),
        (document({"if": [True, "stable"]}), "has no fractional"),
        (
            document({"if": [{"fractional": [["stable", 1]]}, {"fractional": [["stable", 1]]}]}),
            "has several fractional",
        ),
        (document(variants={"stable": "s", "streamed": "t"}), "did you mean streamed?"),
    ],
)
def test_flag_that_cannot_take_a_share_is_refused(unsuitable: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        with_split(unsuitable, "voice", split(0.05), "flags.json")


def test_plan_that_leaves_callers_without_variant_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leaves 0\.1 of the callers to other variants, and it has none"):
        with_split(document(), "voice", split(0.05, 0.85), "flags.json")


@pytest.mark.parametrize("content", [b"", b'{"flags": {"voi', b"[]", b"\xff\xfe", b'{"flags": 7}'])
def test_invalid_flag_file_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="flagd's"):
        read_flags(content, "flags.json")


def test_a_flag_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="has no flag 'voices'; did you mean voice"):
        flag_of(document(), "voices", "flags.json")
    with pytest.raises(ConfigError, match=r"variants is missing"):
        flag_of({"flags": {"voice": {"state": "ENABLED"}}}, "voice", "flags.json")


def test_variants_without_settings_are_named() -> None:
    assert unknown_variants(document()["flags"]["voice"], "voice", {"stable"}) == [
        "flags.voice.variants has 'streaming', which has no settings; known are stable"
    ]


@pytest.fixture
def timer() -> TimerFd:
    timer_fd = TimerFd.open()
    if timer_fd is None:
        pytest.skip("this system has no timer descriptors")
    return timer_fd


def wait(timer: TimerFd) -> bool:
    """Wait for it as the endpoint does; the limit is there for a timer that never fires."""
    return bool(select.select([timer.fd], [], [], 30.0)[0])


def test_a_moment_that_has_passed_fires_at_once_and_only_once(timer: TimerFd) -> None:
    assert not timer.fired()
    assert timer.arm(0)
    assert wait(timer)
    assert timer.fired()
    assert not timer.fired()
    timer.close()


def test_timer_never_fires_early(timer: TimerFd) -> None:
    due = time.perf_counter_ns() + 3_000_000
    assert timer.arm(due)
    assert wait(timer)
    assert time.perf_counter_ns() >= due
    timer.close()


def test_an_interval_goes_on(timer: TimerFd) -> None:
    assert timer.arm(time.perf_counter_ns(), 1_000_000)
    for _ in range(3):
        assert wait(timer)
        assert timer.fired()
    timer.close()
