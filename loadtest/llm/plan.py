"""The requests of a bench in their order of randomized blocks. Pure.

Each block holds every experiment's cells once, in an order drawn from the seed; a cell is asked of all targets one
after the other, in an order drawn likewise. Drift of the machine, the network or the hour then hits all of them alike.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadtest.llm.answers import LlmRequest, Message
from loadtest.llm.prompts import Prompt, checkable

Experiment = str  # one of EXPERIMENTS
EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    "lengths",
    "network",
    "cache",
    "structured",
    "agent",
    "quality",
    "concurrency",
)
QUICK: Final[tuple[Experiment, ...]] = ("lengths", "network")
LENGTHS: Final = (20, 50, 100, 200, 400, 800, 1500)
# Answers as long as what a voice says in a turn; those of the table beyond are for reading.
SPOKEN_TOKENS: Final = 200
LOOPS: Final = (3, 10, 25, 50)
LOOP_REPEATS: Final = 3
LEVELS: Final = (1, 2, 4, 8)
SYSTEM_TOKENS: Final = (500, 1000, 2000)
# The states of a prefix cache, each with its question.
CACHE_TURNS: Final = {
    "cold": "How long does it take?",
    "warm": "Can I change my order?",
    "second turn": "And what does it cost?",
    "third turn": "Is that with the delivery?",
}
SHORT_ANSWER: Final = 16  # tokens, where only the beginning of an answer is measured
LOAD_ANSWER: Final = 50
_WORDS: Final = (
    "the caller wants to know when her order will come and the agent should answer with one short clear line of plain "
    "words that a person can hear on a phone without any list or table and it must never say more than it was asked for"
)
_WORDS_A_TOKEN: Final = 0.9
RESERVATION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "people": {"type": "integer"},
        "day": {
            "type": "string",
            "enum": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
        },
    },
    "required": ["name", "people", "day"],
    "additionalProperties": False,
}
TIMER: Final[dict[str, Any]] = {
    "name": "set_timer",
    "description": "Set a kitchen timer.",
    "parameters": {
        "type": "object",
        "properties": {"room": {"type": "string"}, "minutes": {"type": "integer"}},
        "required": ["room", "minutes"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The experiments to make. `samples` are blocks of lengths, cache and structured output; `within_s` is by when an
    answer's first token makes it a good one; `rates` are open arrivals a second, `levels` callers at the same time."""

    prompts: Sequence[Prompt]
    experiments: tuple[Experiment, ...] = QUICK
    lengths: tuple[int, ...] = LENGTHS
    samples: int = 15
    loops: tuple[int, ...] = LOOPS
    levels: tuple[int, ...] = LEVELS
    rates: tuple[float, ...] = ()
    level_s: float = 20.0
    within_s: float = 0.5
    seed: int = 1

    @property
    def talk(self) -> Sequence[Prompt]:
        """The prompts whose answers may have any length: those that nothing checks, else all."""
        return [prompt for prompt in self.prompts if prompt.expect is None] or self.prompts


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing to do to one target: a sample of a cell. `cell` is e.g. `100`, `500`, `schema`, `sequential 10`."""

    experiment: Experiment
    cell: str
    target: int
    block: int

    @property
    def calls(self) -> int:
        """Number of requests, for the progress display."""
        if self.experiment == "agent":
            order, calls = loop_of(self.cell)
            return calls + (order == "parallel")
        return len(CACHE_TURNS) if self.experiment == "cache" else 1


def schedule(plan: Plan, targets: int) -> list[Unit]:
    """Everything but the load levels, which follow it."""
    rng = random.Random(plan.seed)  # noqa: S311 - an order, not a secret
    cells = _cells(plan)
    units: list[Unit] = []
    for block in range(max((blocks for _, _, blocks in cells), default=0)):
        here = [(experiment, cell) for experiment, cell, blocks in cells if block < blocks]
        for experiment, cell in rng.sample(here, len(here)):
            units += [Unit(experiment, cell, target, block) for target in rng.sample(range(targets), targets)]
    return units


def _cells(plan: Plan) -> list[tuple[Experiment, str, int]]:
    """Each cell of the plan, with how often it is sampled."""
    planned: list[tuple[Experiment, str, int]] = []
    for experiment in plan.experiments:
        match experiment:
            case "lengths":
                planned += [(experiment, str(length), plan.samples) for length in plan.lengths]
            case "network":
                planned.append((experiment, "path", plan.samples))
            case "cache":
                planned += [(experiment, str(size), plan.samples) for size in SYSTEM_TOKENS]
            case "structured":
                planned += [(experiment, cell, plan.samples) for cell in ("schema", "tool")]
            case "agent":
                orders = ("sequential", "parallel")
                planned += [(experiment, f"{order} {n}", LOOP_REPEATS) for order in orders for n in plan.loops]
            case "quality":
                planned += [(experiment, prompt.name, 1) for prompt in checkable(plan.prompts)]
            case _:
                pass
    return planned


def loop_of(cell: str) -> tuple[str, int]:
    """The order and the number of calls of an agent's loop."""
    order, _, calls = cell.partition(" ")
    return order, int(calls)


def load_cells(plan: Plan) -> list[tuple[str, float]]:
    """The load levels, the lightest first: `closed` with callers at the same time, `open` with arrivals a second."""
    closed = [("closed", float(level)) for level in sorted(set(plan.levels))]
    return closed + [("open", rate) for rate in sorted(set(plan.rates))]


def is_in_row(tokens: int | None, length: int) -> bool:
    """Return whether an answer of so many tokens is of a length, within 10 %."""
    return tokens is not None and abs(tokens - length) <= length / 10


def length_request(plan: Plan, length: int, block: int, nonce: str) -> tuple[str, LlmRequest]:
    """An answer of so many tokens, and the name of its prompt. The length is asked for by the limit and, where the
    server accepts it, as the least; and by the prompt, for servers that do not. The question begins with the `nonce`:
    a caller says something new, and no prefix cache has more of it than its system prompt."""
    prompt = plan.talk[block % len(plan.talk)]
    ask = f"Call {nonce}. {prompt.user}\nAnswer in at least {length} words."
    return prompt.name, _request(ask, prompt.system, length)


def load_request(plan: Plan, number: int, nonce: str) -> LlmRequest:
    """A short spoken answer, to a question that is new likewise."""
    prompt = plan.talk[number % len(plan.talk)]
    return _request(f"Call {nonce}. {prompt.user}", prompt.system, LOAD_ANSWER)


def check_request(prompt: Prompt) -> LlmRequest:
    """A question with an answer that can be checked, without chance as far as the server permits."""
    messages = (Message("user", prompt.user),)
    return LlmRequest(messages=messages, system=prompt.system, max_tokens=LENGTHS[3], temperature=0.0)


def structured_request(cell: str) -> LlmRequest:
    """An answer that a program reads: by a JSON schema, or as the call of a tool."""
    if cell == "schema":
        ask = "Hello, this is Ada. I need a table for four on Friday evening. Give the reservation as JSON."
        return LlmRequest(messages=(Message("user", ask),), max_tokens=128, json_schema=RESERVATION)
    ask = "Set a timer for twelve minutes in the kitchen. Use the tool."
    return LlmRequest(messages=(Message("user", ask),), max_tokens=128, tools=(TIMER,))


def system_prompt(tokens: int, seed: str) -> str:
    """About so many tokens of plain words that no other seed begins with: a prefix that no cache has seen."""
    rng = random.Random(seed)  # noqa: S311 - words, not a secret
    words = _WORDS.split()
    chosen = [rng.choice(words) for _ in range(max(1, round(tokens * _WORDS_A_TOKEN)))]
    sentences = [" ".join(chosen[at : at + 9]) for at in range(0, len(chosen), 9)]
    return f"{rng.getrandbits(48):012x} " + ". ".join(sentences) + "."


def _request(ask: str, system: str | None, tokens: int) -> LlmRequest:
    return LlmRequest(messages=(Message("user", ask),), system=system, max_tokens=tokens, exact_length=True)
