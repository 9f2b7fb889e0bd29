"""Benches of scripted models in virtual time, from the plan to the findings: each figure is as it was scripted."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from loadtest.llm.answers import CacheCounters, LlmAnswer, LlmChunk, LlmFault, LlmUsage
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import cache_counters_of
from loadtest.llm.plan import Plan, is_in_row, schedule, system_prompt
from loadtest.llm.prompts import Expectation, Prompt
from loadtest.llm.rows import BenchRows, FaultCount, rows_of
from loadtest.llm.running import AskedSample, LlmBench, Results
from tests.unit.loadtest.llm.scripted_llm import Script, ScriptedClient, VirtualLoop, run_virtually

TALK = [Prompt(id="one", user="Tell me of one."), Prompt(id="two", user="Tell me of two.", system="Be brief.")]


def bench(plan: Plan, **scripts: Script) -> tuple[Results, BenchRows, ScriptedClient]:
    async def main(loop: VirtualLoop) -> tuple[Results, ScriptedClient]:
        client = ScriptedClient(loop, scripts)
        targets = [LlmTarget("http://127.0.0.1:1/v1", name=name, key=None) for name in scripts]
        return await LlmBench(plan, targets, client, client.now_ns, asyncio.sleep).run(), client

    results, client = run_virtually(main)
    return results, rows_of(results, plan, list(scripts)), client


def plan(*experiments: Any, **options: Any) -> Plan:
    return Plan(prompts=options.pop("prompts", TALK), experiments=experiments, **options)


def test_each_block_asks_each_target_once_in_varied_order() -> None:
    units = schedule(plan("lengths", "network", lengths=(20, 50), samples=15, seed=3), 3)
    assert Counter((unit.cell, unit.target, unit.block) for unit in units) == Counter(
        {(cell, target, block): 1 for cell in ("20", "50", "path") for target in range(3) for block in range(15)}
    )
    assert [unit.block for unit in units] == sorted(unit.block for unit in units)
    for at in range(0, len(units), 3):
        assert len({(unit.cell, unit.block) for unit in units[at : at + 3]}) == 1
    orders = {tuple(unit.target for unit in units[at : at + 3]) for at in range(0, len(units), 3)}
    assert len(orders) == 6  # every order of three targets
    assert units == schedule(plan("lengths", "network", lengths=(20, 50), samples=15, seed=3), 3)
    assert units != schedule(plan("lengths", "network", lengths=(20, 50), samples=15, seed=4), 3)


def test_the_default_bench_of_one_endpoint_asks_105_times() -> None:
    assert len([unit for unit in schedule(plan("lengths", "network"), 1) if unit.experiment == "lengths"]) == 105


@pytest.mark.parametrize(("tokens", "is_in"), [(90, True), (110, True), (89, False), (111, False), (None, False)])
def test_a_row_holds_answers_within_ten_percent(tokens: int | None, is_in: bool) -> None:
    assert is_in_row(tokens, 100) is is_in


def test_system_prompts_have_their_size_and_no_common_beginning() -> None:
    prompts = [system_prompt(1000, str(seed)) for seed in range(20)]
    assert len({prompt[:8] for prompt in prompts}) == 20
    assert all(900 <= len(prompt.replace(".", " .").split()) <= 1100 for prompt in prompts)


def test_lengths_reproduce_script_and_count_other_lengths() -> None:
    short = {5: 12, 9: 40}  # tokens of two answers of 20

    def tokens_of(request: Any) -> int:
        return short.get(len(fast.asked), request.max_tokens)

    fast = Script(first_s=0.1, per_token_s=0.01, tokens_of=tokens_of)
    slow = Script(first_s=0.4, per_token_s=0.05, fault_of=lambda n: LlmFault("cut_off", "cut") if n == 3 else None)
    _, rows, _ = bench(plan("lengths", lengths=(20,), samples=12), fast=fast, slow=slow)
    row, other = rows.lengths
    assert (row.n, dict(row.others)) == (10, {"shorter": 1, "longer": 1})
    assert row.figures["first_token_s"].value("p50") == pytest.approx(0.1)
    assert row.figures["first_byte_s"].value("p90") == pytest.approx(0.001)
    assert row.figures["tokens_per_s"].value("p50") == pytest.approx(100)  # 19 in 0.19 s
    assert row.figures["tokens_per_s_wall"].value("p50") == pytest.approx(20 / 0.29)
    assert row.figures["gap_s"].value("p99") == pytest.approx(0.01)
    assert row.figures["gap_s"].n == 190
    assert row.figures["first_token_s"].at("p95") is None  # of ten
    # The sentence "It is so." is known to be over with the space behind it: the tenth letter, each a token.
    assert row.figures["first_sentence_s"].value("p50") == pytest.approx(0.19)
    assert (other.n, dict(other.others)) == (11, {"cut_off": 1})
    assert rows.faults["slow"] == {"cut_off": FaultCount(1, "cut")}
    assert rows.counted_by["fast"] == ("server",)


def test_keep_alives_and_low_token_counts_are_only_oddities() -> None:
    pieces = tuple(LlmChunk(at, at, "a", events=2) for at in (2, 4, 6))
    answers = [
        LlmAnswer(target="it", started_ns=0, asked_ns=1, finished_ns=9, chunks=pieces, keep_alives=7, usage=usage)
        for usage in (LlmUsage(completion=5), LlmUsage(completion=6), None)
    ]
    results = Results(samples=[AskedSample("lengths", "20", 0, at, answer) for at, answer in enumerate(answers)])
    rows = rows_of(results, plan("lengths"), ["it"])
    assert (rows.faults["it"], sorted(rows.oddities["it"].values())) == ({}, [1, 21])


def test_cache_state_is_proved_only_by_count_of_server() -> None:
    counting, silent = Script(), Script(cache_counts=False)
    forgetful = Script()
    forgetful.seen = type("Nothing", (set,), {"add": lambda *_: None})()
    _, rows, _ = bench(plan("cache", samples=2), counting=counting, silent=silent, forgetful=forgetful)
    by = {(row.target, row.system_tokens, row.state): row for row in rows.cache}
    warm = by["counting", 1000, "warm"]
    assert warm.first_token_s.value("p50") == pytest.approx(0.01)
    assert (warm.as_stated, warm.contrary, warm.unproved) == (2, 0, 0)
    assert by["counting", 1000, "cold"].first_token_s.value("p50") == pytest.approx(0.1)
    assert by["counting", 500, "second turn"].as_stated == 2
    unknown = by["silent", 1000, "warm"]
    assert (unknown.as_stated, unknown.contrary, unknown.unproved, unknown.cached_tokens) == (0, 0, 2, None)
    contrary = by["forgetful", 1000, "warm"]
    assert (contrary.first_token_s.n, contrary.contrary) == (0, 2)  # said to be warm, and was not


def test_cached_tokens_come_from_metrics_if_answers_lack_them() -> None:
    quiet = Script(cache_counts=False, counters=CacheCounters(700, 300))
    shared = Script(cache_counts=False, counters=CacheCounters(0, 0), of_others=1)
    counting = Script(counters=CacheCounters(0, 0))
    silent = Script(cache_counts=False)
    _, rows, _ = bench(plan("cache", samples=2), quiet=quiet, shared=shared, counting=counting, silent=silent)
    by = {(row.target, row.state): row for row in rows.cache if row.system_tokens == 1000}
    for state in ("cold", "warm", "second turn"):
        row = by["quiet", state]
        assert (row.as_stated, row.contrary, row.unproved, row.counted_by) == (2, 0, 0, ("metrics",))
        # Of others' requests, whose tokens the counters hold too, nothing is known.
        assert by["shared", state].unproved == 2
        assert (by["counting", state].as_stated, by["counting", state].counted_by) == (2, ("answer",))
    assert by["quiet", "warm"].cached_tokens == (by["quiet", "warm"].prompt_tokens or 0) - 5
    # A page is read no more once it is known that there is none, or no need of one.
    assert (counting.pages, silent.pages) == (1, 1)


PAGE = """
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="small"} 1024.0
vllm:prefix_cache_queries_total{engine="1",model_name="small"} 100.0
vllm:prefix_cache_queries_total{engine="0",model_name="large"} 9.0
# HELP vllm:prefix_cache_queries_created Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="small"} 1.79e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="small"} 512.0
vllm:prefix_cache_hits_total{engine="1",model_name="small"} 64.0
"""


def test_the_counters_of_a_model_are_read_off_its_page() -> None:
    assert cache_counters_of(PAGE, "small") == CacheCounters(1124, 576)
    assert cache_counters_of(PAGE.replace("prefix", "gpu_prefix"), "small") == CacheCounters(1124, 576)
    for page in ("", "<html>no such page</html>", PAGE.replace("1024.0", "NaN"), PAGE.replace("_hits", "_misses")):
        assert cache_counters_of(page, "small") is None
    assert cache_counters_of(PAGE, "other") is None


def test_structured_answers_are_valid_by_their_schema_alone() -> None:
    good, bad = Script(), Script(tool='{"room": "kitchen", "minutes": "twelve"}')
    _, rows, _ = bench(plan("structured", samples=4), good=good, bad=bad)
    valid = {(row.target, row.asked_as): row.valid.good for row in rows.structured}
    assert valid == {("good", "schema"): 4, ("good", "tool"): 4, ("bad", "schema"): 4, ("bad", "tool"): 0}


def test_loops_sum_their_calls_or_rounds_and_carry_answers() -> None:
    script = Script(first_s=0.1, per_token_s=0.0)
    results, rows, _ = bench(plan("agent", loops=(3, 10)), it=script)
    totals = {(row.order, row.calls): row.total_s.value("p50") for row in rows.agent}
    assert totals == {
        ("sequential", 3): pytest.approx(0.3),
        ("sequential", 10): pytest.approx(1.0),
        ("parallel", 3): pytest.approx(0.2),
        ("parallel", 10): pytest.approx(0.2),
    }
    assert len(results.samples) == 3 * (3 + 10 + 4 + 11)
    longest = max(script.asked, key=lambda request: len(request.messages))
    assert len(longest.messages) == 19  # nine questions with their answers, and the tenth
    assert longest.messages[1].role == "assistant"


def test_a_failed_call_fails_its_loop() -> None:
    script = Script(fault_of=lambda n: LlmFault("http_status", "HTTP 500", 500) if n == 2 else None)
    _, rows, _ = bench(plan("agent", loops=(3,)), it=script)
    assert sum(row.failed for row in rows.agent) == 1
    assert sum(row.total_s.n for row in rows.agent) == 5


def test_closed_load_gives_rate_of_servers_and_their_saturation() -> None:
    # An answer of 50 tokens takes 0.1 + 49 * 0.01 = 0.59 s; four are written at the same time.
    script = Script(servers=4)
    _, rows, _ = bench(plan("concurrency", levels=(1, 2, 4, 8), level_s=118.0, within_s=0.5), it=script)
    rates = {row.level: row for row in rows.load}
    assert [rates[level].rate.value for level in (1, 2, 4, 8)] == pytest.approx(  # type: ignore[union-attr]
        [1 / 0.59, 2 / 0.59, 4 / 0.59, 4 / 0.59], rel=0.01
    )
    assert rates[4].goodput.value == pytest.approx(4 / 0.59, rel=0.01)  # type: ignore[union-attr]
    assert rates[8].goodput.value < 0.1  # type: ignore[union-attr] # all but the first four wait 0.59 s for their turn
    assert rates[8].first_token_s.value("p50") == pytest.approx(0.69)
    (row,) = rows.saturation
    assert row.saturation is not None
    assert (row.saturation.level, row.saturation.is_reached) == (4, True)


@pytest.mark.slow
def test_open_arrivals_are_timed_from_due_time_with_actual_rate() -> None:
    results, rows, _ = bench(plan("concurrency", levels=(), rates=(5.0,), level_s=200.0), it=Script())
    (row,) = rows.load
    assert (row.kind, row.dropped) == ("open", 0)
    assert row.sent_per_s == len(results.loads[0].samples) / 200
    assert row.sent_per_s == pytest.approx(5, rel=0.1)  # a Poisson process: 1000 ± 32 arrivals
    assert row.first_token_s.value("p99") == pytest.approx(0.1)
    begun = sorted(sample.answer.started_ns for sample in results.loads[0].samples)
    gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(begun)]
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.05)  # e to the -1


def test_quality_counts_a_fault_as_not_right() -> None:
    prompts = [
        Prompt(id="a", user="?", expect=Expectation(contains=["so"])),
        Prompt(id="b", user="?", expect=Expectation(contains=["so"])),
        Prompt(id="c", user="?", expect=Expectation(number=3)),
        *TALK,
    ]
    broken = Script(fault_of=lambda n: LlmFault("empty_answer", "nothing") if n == 1 else None)
    _, rows, _ = bench(plan("quality", prompts=prompts), good=Script(), broken=broken)
    good, other = rows.quality
    assert (good.accuracy.good, good.accuracy.total) == (2, 3)
    assert {kind: tally.good for kind, tally in good.by_kind.items()} == {"contains": 2, "number": 0}
    assert (other.accuracy.total, other.faults) == (3, 1)
    assert other.accuracy.good < 2 or other.by_kind["number"].good == 0


def test_network_has_own_figure_and_share_of_first_token() -> None:
    _, rows, _ = bench(plan("lengths", "network", lengths=(20,), samples=10), near=Script(first_s=0.1))
    (row,) = rows.network
    assert row.round_trip_s.value("p90") == pytest.approx(0.01)
    assert row.of_first_token == pytest.approx(0.1)
    assert row.tls_s.n == 0


def test_unreachable_target_is_left_out_and_dying_one_given_up() -> None:
    refused = LlmFault("connection", "refused")
    absent = Script(fault_of=lambda _: refused)
    dying = Script(fault_of=lambda n: refused if n > 4 else None)
    results, rows, _ = bench(plan("lengths", lengths=(20,), samples=50), absent=absent, dying=dying)
    assert (len(absent.asked), len(dying.asked)) == (0, 9)
    assert set(rows.given_up) == {"absent", "dying"}
    assert results.given_up[1].sentence == "refused"


def test_a_wait_that_the_service_asks_for_is_kept() -> None:
    limited = LlmFault("rate_limited", "HTTP 429", 429, retry_after_ns=2_000_000_000)
    script = Script(fault_of=lambda n: limited if n == 1 else None)
    results, _, _ = bench(plan("lengths", lengths=(20,), samples=2), it=script)
    first, second = (sample.answer.started_ns for sample in results.samples)
    assert second - first == 2_000_000_000
