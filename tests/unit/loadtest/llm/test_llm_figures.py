"""Figures of a bench, the voice turn around a model, and files of prompts with every fault at once."""

from math import comb
from pathlib import Path

import pytest

from loadtest.llm.answers import LlmUsage
from loadtest.llm.figures import (
    MIN_COUNT_FOR,
    Rate,
    figure,
    needed_for_bounds,
    rate_in_steady_state,
    saturation,
    steady_rate,
)
from loadtest.llm.prices import load_prices
from loadtest.llm.prompts import Expectation, checkable, load_prompts
from loadtest.llm.rows import BenchRows, Stall
from loadtest.llm.voice import OtherStages, predict, stall_sentence, verdict
from telemetry.model.errors import ConfigError


def chance_below(count: int, n: int, fraction: float) -> float:
    """Return the chance that fewer than `count` of n values lie below a quantile."""
    return sum(comb(n, k) * fraction**k * (1 - fraction) ** (n - k) for k in range(count))


@pytest.mark.parametrize("n", [6, 15, 36, 75, 105, 400])
@pytest.mark.parametrize("name", MIN_COUNT_FOR)
def test_interval_of_percentile_is_wrong_in_at_most_five_percent(n: int, name: str) -> None:
    estimate = figure(range(1, n + 1)).at(name)
    if n < MIN_COUNT_FOR[name]:
        assert estimate is None
        return
    assert estimate is not None
    fraction = int(name[1:]) / 100
    lower, upper = int(estimate.lower or 0), int(n + 1 if estimate.upper is None else estimate.upper)
    # The quantile lies below the value of rank r where fewer than r values lie below it.
    assert chance_below(lower, n, fraction) <= 0.025 < chance_below(lower + 1, n, fraction)
    assert 1 - chance_below(upper, n, fraction) <= 0.025 if estimate.upper is not None else True
    assert 1 - chance_below(min(upper, n + 1) - 1, n, fraction) > 0.025


def test_a_percentile_is_a_figure_from_so_many_values_on() -> None:
    for n, known in (
        (1, ["p50"]),
        (9, ["p50"]),
        (10, ["p50", "p90"]),
        (19, ["p50", "p90"]),
        (20, 3),
        (99, 3),
        (100, 4),
    ):
        names = list(figure(range(n)).percentiles)
        assert names == known if isinstance(known, list) else len(names) == known
    assert figure([None, None]).n == 0
    assert figure([]).as_object()["p50"] is None


@pytest.mark.parametrize(("fraction", "needed"), [(0.9, 36), (0.95, 72), (0.99, 368)])
def test_an_upper_bound_needs_as_many_values_as_help_says(fraction: float, needed: int) -> None:
    name = f"p{round(fraction * 100)}"
    assert needed_for_bounds(fraction) == needed
    assert figure(range(needed)).percentiles[name].upper is not None
    assert figure(range(max(needed - 1, MIN_COUNT_FOR[name]))).percentiles[name].upper is None


def evenly(begin: float, end: float, per_s: float) -> list[float]:
    return [begin + (place + 0.5) / per_s for place in range(round((end - begin) * per_s))]


def test_the_beginning_is_left_out_of_a_steady_rate() -> None:
    rate = steady_rate([*evenly(0, 2, 1), *evenly(2, 10, 10)], 10)
    assert rate is not None
    assert (rate.value, rate.lower, rate.upper) == (10, 10, 10)
    assert (rate.left_out_s, rate.is_steady) == (2, True)


def test_a_rate_that_grows_to_the_end_is_not_steady() -> None:
    rate = steady_rate([moment for at in range(10) for moment in evenly(at, at + 1, 5 + 3 * at)], 10)
    assert rate is not None
    assert not rate.is_steady


def test_interval_of_rate_is_students_t_of_its_batches() -> None:
    # Ten batches of 9 and 11 in turn: mean 10, standard deviation sqrt(10/9), t(0.975; 9) = 2.262.
    rate = steady_rate([moment for at in range(10) for moment in evenly(at, at + 1, 9 + 2 * (at % 2))], 10)
    assert rate is not None
    assert rate.left_out_s == 0
    assert rate.upper - rate.value == pytest.approx(2.262157 * (10 / 9) ** 0.5 / 10**0.5, rel=1e-6)


def test_no_good_answer_is_zero_goodput_and_few_give_no_rate() -> None:
    steady = steady_rate(evenly(0, 10, 10), 10)
    assert steady is not None
    assert rate_in_steady_state(steady, [], 10).value == 0
    assert steady_rate([1.0] * 9, 10) is None


def level(value: float) -> Rate:
    return Rate(value, value, value, 0.0, True, (value * 0.99, value * 1.01) * 5)


def test_saturation_is_least_level_with_90_percent_of_top_rate() -> None:
    point = saturation({1: level(10), 2: level(19), 4: level(37), 8: level(40), 16: level(39)}, seed=1)
    assert point is not None
    assert (point.level, point.lower, point.upper, point.is_reached) == (4, 4, 4, True)


def test_growing_rate_or_only_two_levels_give_no_saturation() -> None:
    point = saturation({1: level(10), 2: level(20), 4: level(40)}, seed=1)
    assert point is not None
    assert not point.is_reached
    assert saturation({1: level(10), 2: level(20)}, seed=1) is None


def test_uncertain_saturation_has_interval_over_levels() -> None:
    noisy = Rate(36.0, 30.0, 42.0, 0.0, True, (30.0, 42.0) * 5)
    point = saturation({1: level(10), 2: noisy, 4: level(40), 8: level(40)}, seed=1)
    assert point is not None
    assert (point.lower, point.upper) == (2, 4)


OTHERS = OtherStages((0.55,), "endpointing 200 ms, ASR 150 ms, TTS 200 ms")


def stall(name: str, *values: float) -> Stall:
    return Stall(name, "answers of up to 200 tokens", figure(values), values)


def test_the_other_stages_are_added_to_each_first_sentence() -> None:
    # 0.55 + 0.1 is within 800 ms, + 0.3 is not, + 0.4 is above 900 ms.
    row = predict(stall("a", *[0.1] * 30, *[0.3] * 6, *[0.4] * 4), OTHERS, seed=1)
    assert row.voice_to_voice_s.value("p50") == pytest.approx(0.65)
    assert row.voice_to_voice_s.n == 40
    assert [(within.budget_s, within.share.good) for within in row.within] == [(0.3, 0), (0.5, 0), (0.8, 30)]
    assert (row.above_900_ms.good, row.above_900_ms.total) == (4, 40)


def test_turns_of_run_are_paired_with_every_answer() -> None:
    # Sums: 0.5 and 1.0 in equal shares, whatever the pairing.
    row = predict(stall("a", *[0.1] * 50), OtherStages((0.4, 0.9) * 10, "a run"), seed=1)
    assert row.voice_to_voice_s.n == 20
    assert row.voice_to_voice_s.value("p90") == pytest.approx(1.0)
    assert (row.above_900_ms.good, row.above_900_ms.total) == (10, 20)
    bounds = row.voice_to_voice_s.percentiles["p90"]
    assert (bounds.lower, bounds.upper) == (pytest.approx(1.0), pytest.approx(1.0))


def test_the_first_line_is_what_one_call_in_ten_waits() -> None:
    values = [0.2] * 35 + [4.0] * 5  # p90 of 40 is between the 36th and the 37th: both 4 s
    assert stall_sentence(stall("a", *values)).startswith("a: one call in ten stalls for 4,000 ms or longer")
    assert "p90 needs 10 answers, there are 3" in stall_sentence(stall("a", 1, 2, 3))


def test_verdict_uses_whole_intervals_and_names_what_is_missing() -> None:
    stalls = [stall("fast", *[0.1] * 40), stall("slow", *[0.5] * 40), stall("brief", *[0.2] * 12)]
    rows = BenchRows(targets=["fast", "slow", "brief"], stalls=stalls)
    text = verdict(rows, [predict(stall, OTHERS, 1) for stall in stalls])
    assert "within 800 ms in nine turns of ten, fast enough: fast; too slow: slow" in text
    assert "undecided: brief (12 answers; 36 bound it)" in text
    assert text.endswith("fast says its first sentence soonest, 100 ms in the median")


def test_no_target_is_called_the_fastest_while_intervals_overlap() -> None:
    stalls = [stall("a", *[0.1, 0.3] * 20), stall("b", *[0.11, 0.31] * 20)]
    assert "cannot be said" in verdict(BenchRows(targets=["a", "b"], stalls=stalls), [])


def test_cached_and_audio_tokens_have_their_own_price(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('[[price]]\nmodel = "m"\ninput = 2\ncached = 0.5\noutput = 8\naudio = 40\n')
    (price,) = load_prices(file).price
    usage = LlmUsage(prompt=1000, cached=600, completion=100, audio=50)
    # 350 × 2 + 600 × 0.5 + 50 × 40 + 100 × 8 = 3,800 millionths; without the cache 600 × 1.5 more.
    assert price.of(usage) == pytest.approx(0.0038)
    assert price.saved(usage) == pytest.approx(0.0009)
    assert price.of(LlmUsage(prompt=10)) is None
    assert price.saved(LlmUsage(prompt=10, completion=1)) is None


def test_every_fault_of_a_price_file_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        'money = "EUR"\n[[price]]\nmodel = "m"\ninput = -1\noutput = nan\n'
        "[[price]]\ninput = 1\noutput = true\ncashed = 1\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_prices(file)
    text = str(caught.value)
    for words in (
        "line 1, money: is not a known key",
        "line 4, price[1].input: is -1; the price of a million tokens, 0 or more",
        "line 5, price[1].output: is nan",
        "price[2].model: is missing",
        "price[2].output: is true",
        "did you mean cached",
    ):
        assert words in text


PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("expect", "right", "wrong"),
    [
        (Expectation(intent="lights_on", among=["lights_on", "lights_off"]), "Lights_On.", "lights_on or lights_off"),
        (Expectation(intent="on"), "on", "once"),
        (
            Expectation(slots={"room": "kitchen", "minutes": 5}),
            '```json\n{"room": "Kitchen", "minutes": "5"}\n```',
            "{}",
        ),
        (Expectation(slots={"open": True}), 'Sure: {"open": true}', '{"open": 1}'),
        (Expectation(number=22), "7 and 15 make 22.", "22 is 7 more than 15"),
        (Expectation(number=-1204.5), "It is −1,204.5", "1,204.5"),
        (Expectation(number=6.5, tolerance=0.1), "$6.55", "6.7"),
        (Expectation(schema=PERSON), '{"age": 36}', '{"age": "36"}'),
        (Expectation(schema=PERSON), 'It is {"age": 3} then', "no JSON {here"),
        (Expectation(contains=["paris", "Seine"]), "PARIS on the Seine", "Paris"),
    ],
)
def test_an_answer_is_right_by_its_kind(expect: Expectation, right: str, wrong: str) -> None:
    assert expect.is_met(right)
    assert not expect.is_met(wrong)
    assert not expect.is_met("")
    assert not expect.is_met("[" * 100_000)


def test_the_default_prompts_have_talk_and_every_kind_of_check() -> None:
    prompts = load_prompts(None)
    kinds = {prompt.expect.kind for prompt in checkable(prompts) if prompt.expect is not None}
    assert kinds == {"intent", "slots", "number", "schema", "contains"}
    assert len(prompts) - len(checkable(prompts)) >= 3


def test_toml_and_json_lines_say_the_same(tmp_path: Path) -> None:
    toml, lines = tmp_path / "prompts.toml", tmp_path / "prompts.jsonl"
    toml.write_text('[[prompt]]\nid = "a"\nuser = "How many?"\nexpect = {number = 3}\n')
    lines.write_text('{"id": "a", "user": "How many?", "expect": {"number": 3}}\n\n')
    assert load_prompts(toml) == load_prompts(lines)


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    entries = (
        '{"id": "a", "user": ""}',
        '{"id": "b", "user": "x", "systems": "y"}',
        '{"id": "c", "user": "x", "expect": {"number": NaN}}',
        '{"id": "d", "user": "x", "expect": {"number": 1, "contains": ["y"]}}',
        '{"id": "e", "user": "x", "expect": {"schema": {"type": "thing"}}}',
        '{"id": "f", "user": "x", "expect": {"intent": "on", "amonk": ["off"]}}',
        '{"id": "g", "user": "x"}',
        '{"id": "g", "user": "y"}',
        "[1]",
    )
    file.write_text("\n".join(entries))
    with pytest.raises(ConfigError) as caught:
        load_prompts(file)
    faults = caught.value.faults
    assert len(faults) == 8
    for words in (
        "line 1 user is ''",
        "did you mean system",
        "line 3 expect.number is nan; a finite number is expected",
        "give one of",
        "line 5 expect.schema is no JSON schema",
        "line 6 expect.amonk",
        "line 8 has the id of an earlier one, 'g'",
        "line 9 is [1]; a table",
    ):
        assert sum(words in fault for fault in faults) == 1, (words, faults)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"[[prompt]\n", "not valid TOML"),
        ("a.toml", b"x = 1\n", "x: is not a known key"),
        ("a.toml", b"prompt = 3\n", "prompt: is 3"),
        ("a.toml", b"", "prompt: is missing"),
        ("a.jsonl", b'{"id"\n', "line 1"),
        ("a.toml", b"\xff", "UTF-8"),
        ("a.toml", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_has_its_reason(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_prompts(tmp_path / name)
