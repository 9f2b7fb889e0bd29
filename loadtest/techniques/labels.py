"""Techniques judged by labeled lists: wrong answers of a similarity cache, wrong routes, private items sent to a cloud.

The lists are in `labeled.toml`; the code that is judged is the assistant's own, with its real model of embeddings.
"""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from loadtest.pairing.job import PairedRun
from loadtest.targets.assistant.engines import embedding_model, stays_here
from loadtest.targets.assistant.interfaces import Embedder
from loadtest.targets.assistant.questions import SimilarQuestions
from loadtest.targets.assistant.real import environment
from loadtest.toml_text import parse_toml

_FILE: Final = Path(__file__).with_name("labeled.toml")
Labels = dict[str, Any]


def labeled_lists() -> Labels:
    """The lists by name."""
    return dict(parse_toml(_FILE.read_text(encoding="utf-8"), _FILE.name).table)


def judged(flags: dict[str, str]) -> Labels | None:
    """Return what the lists say of an option of the assistant, given as its flags; None where no list is about it."""
    if "cache-similarity" in flags:
        threshold, compare_slots = float(flags["cache-similarity"]), flags.get("cache-slots", "true") == "true"
        return _with_model(lambda model: similarity(model, threshold, compare_slots=compare_slots))
    if flags.get("llm") != "routed":
        return None
    by, threshold = flags.get("route-by", "similarity"), float(flags.get("route-threshold", "0.9"))
    if by == "privacy":
        return asyncio.run(privacy(stays_here(by, threshold, None)))
    return _with_model(lambda model: routing(stays_here(by, threshold, model)))


async def similarity(model: Embedder, threshold: float, *, compare_slots: bool) -> Labels:
    """Count the pairs of questions of which the second gets the first one's answer, rightly and wrongly."""

    async def hits(pairs: list[list[str]]) -> int:
        hits = 0
        for kept, asked in pairs:
            questions = SimilarQuestions(model, threshold, compare_slots=compare_slots)
            await questions.add(kept, kept)
            hits += await questions.find(asked) is not None
        return hits

    lists = labeled_lists()
    same, different = lists["same"], lists["different"]
    right, wrong = await hits(same), await hits(different)
    return {
        "sentence": f"{wrong} of {len(different)} near misses got a wrong answer, {right} of {len(same)} paraphrases "
        "the right one",
        "false_hits": wrong,
        "near_misses": len(different),
        "false_hit_rate": wrong / len(different),
        "true_hits": right,
        "paraphrases": len(same),
    }


async def routing(stays: Callable[[str], Awaitable[bool]]) -> Labels:
    """Return how many questions go where the list says, and how many stay here."""
    lists = labeled_lists()
    local = [await stays(text) for text in lists["local"]]
    cloud = [await stays(text) for text in lists["cloud"]]
    right, asked = sum(local) + len(cloud) - sum(cloud), len(local) + len(cloud)
    return {
        "sentence": f"{right} of {asked} labeled questions routed rightly, {sum(cloud)} hard ones kept here",
        "routed_rightly": right,
        "questions": asked,
        "accuracy": right / asked,
        "local_share": (sum(local) + sum(cloud)) / asked,
    }


async def privacy(stays: Callable[[str], Awaitable[bool]]) -> Labels:
    """Return what of the marked items the cloud's route receives, and how many sentences stay here without need."""
    sentences = labeled_lists()["private"]
    sent = [entry for entry in sentences if not await stays(entry["text"])]
    leaked = [item for entry in sent for item in entry["marked"]]
    plain = sum(not entry["marked"] for entry in sentences)
    marked = sum(len(entry["marked"]) for entry in sentences)
    kept = plain - sum(not entry["marked"] for entry in sent)
    return {
        "sentence": f"the cloud received {len(leaked)} of {marked} marked items; {kept} of {plain} plain sentences "
        "stayed here without need",
        "received_by_cloud": len(leaked),
        "marked_items": marked,
        "kept_without_need": kept,
        "plain_sentences": plain,
    }


def stale_answers(run: PairedRun, place: int) -> tuple[int, int]:
    """Count the cache's answers that were older than their utterance allows, and all of its answers."""
    lifetimes_s = labeled_lists()["lifetimes_s"]
    ages = [
        (pair.utterance, age_s)
        for pair in run.pairs
        if (turn := pair.turns[place]) is not None and (age_s := turn["work"].get("cache_age_s")) is not None
    ]
    return sum(age_s > lifetimes_s.get(utterance, math.inf) for utterance, age_s in ages), len(ages)


def _with_model(judge: Callable[[Embedder], Awaitable[Labels]]) -> Labels:
    async def work() -> Labels:
        model = embedding_model()
        await model.start()
        try:
            return await judge(model)
        finally:
            await model.stop()

    return asyncio.run(work())


def main() -> None:
    """Print what the lists say of each option that they are about."""
    options: list[Labels] = [
        {"cache-similarity": threshold, "cache-slots": slots}
        for slots in ("false", "true")
        for threshold in ("0.8", "0.9", "0.95")
    ]
    routes = (("similarity", "0.9"), ("confidence", "0.8"), ("privacy", "0.9"))
    options += [{"llm": "routed", "route-by": by, "route-threshold": threshold} for by, threshold in routes]
    environment.prepare(sys.stderr.write)
    for flags in options:
        judgment = judged(flags)
        named = " ".join(f"--{name} {value}" for name, value in flags.items())
        sys.stdout.write(f"{named}: {judgment['sentence'] if judgment else 'no list'}\n")


if __name__ == "__main__":
    main()
