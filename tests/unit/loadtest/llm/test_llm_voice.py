"""The voice turn around a model: predictions, shares, the first line and the verdict; and what answers cost."""

from pathlib import Path

import pytest

from loadtest.llm.answers import LlmUsage
from loadtest.llm.figures import figure
from loadtest.llm.prices import load_prices
from loadtest.llm.rows import BenchRows, Stall
from loadtest.llm.voice import OtherStages, predict, stall_sentence, verdict
from telemetry.model.errors import ConfigError

OTHERS = OtherStages((0.55,), "endpointing 200 ms, ASR 150 ms, TTS 200 ms")


def stall(name: str, *values: float) -> Stall:
    return Stall(name, "answers of up to 200 tokens", figure(values), values)


def test_the_other_stages_are_added_to_each_first_sentence() -> None:
    # 0.55 + 0.1 is within 800 ms, + 0.3 is not, + 0.4 is above 900 ms.
    row = predict(stall("a", *[0.1] * 30, *[0.3] * 6, *[0.4] * 4), OTHERS, seed=1)
    assert row.voice_to_voice_s.value("p50") == pytest.approx(0.65)
    assert row.voice_to_voice_s.n == 40
    assert [(each.budget_s, each.share.good) for each in row.within] == [(0.3, 0), (0.5, 0), (0.8, 30)]
    assert (row.above_900_ms.good, row.above_900_ms.total) == (4, 40)


def test_turns_of_a_run_are_paired_with_every_answer_and_their_number_is_that_of_the_fewer() -> None:
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


def test_the_verdict_is_by_whole_intervals_and_says_what_would_decide_it() -> None:
    stalls = [stall("fast", *[0.1] * 40), stall("slow", *[0.5] * 40), stall("brief", *[0.2] * 12)]
    found = BenchRows(targets=["fast", "slow", "brief"], stalls=stalls)
    text = verdict(found, [predict(each, OTHERS, 1) for each in stalls])
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
