"""Prices of models by a file, the cost of an answer, and how much of it a cache saves. Pure but for the file.

currency = "USD"
[[price]]              # for 1,000,000 tokens
model = "small-model"  # as it was asked for, as the endpoint names it, or the name of the target
input = 0.15
cached = 0.075         # of the prompt, from the cache (default: as input)
output = 0.60
audio = 10.0           # audio tokens, where the usage counts them (default: as input)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from loadtest.llm.answers import LlmAnswer, LlmUsage
from loadtest.llm.figures import mean
from loadtest.llm.prompts import table_of_file
from telemetry.model.validation import CheckedTable

_PER: Final = 1_000_000
_Amount = Annotated[float, Field(ge=0, description="the price of a million tokens, 0 or more, is expected")]
_Text = Annotated[str, Field(min_length=1, description="a text is expected")]


class Price(CheckedTable):
    """The prices of a million tokens."""

    kind_of_value = "table"

    model: _Text
    input: _Amount
    cached: _Amount | None = None
    output: _Amount
    audio: _Amount | None = None

    def of(self, usage: LlmUsage) -> float | None:
        """The price of one answer; None where its tokens are not known."""
        if usage.prompt is None or usage.completion is None:
            return None
        audio = usage.audio or 0
        spent = max(0, usage.prompt - (usage.cached or 0) - audio) * self.input + usage.completion * self.output
        spent += (usage.cached or 0) * self._cached_price + audio * (self.input if self.audio is None else self.audio)
        return spent / _PER

    def saved(self, usage: LlmUsage) -> float | None:
        """Return how much less it cost because of the cache; None where the server does not count what came from it."""
        return None if usage.cached is None else usage.cached * (self.input - self._cached_price) / _PER

    @property
    def _cached_price(self) -> float:
        return self.input if self.cached is None else self.cached


class Prices(CheckedTable):
    """A price file."""

    kind_of_value = "table"

    currency: _Text = "USD"
    price: Annotated[list[Price], Field(min_length=1, description="a [[price]] table for each model is expected")]

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """A model has one price."""
        names = [] if "price" in faulty else [entry.get("model") for entry in table.get("price", ())]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield ("price", place), f"is the second one of {name!r}"

    def cost(
        self, names: Sequence[str | None], target: str, experiment: str, answers: Iterable[LlmAnswer]
    ) -> "CostRow | None":
        """The cost of answers; `names` are those by which their model may be in the file. None where it is not."""
        of = {price.model: price for price in self.price}
        price = next((of[name] for name in names if name in of), None)
        if price is None:
            return None
        usages = [answer.usage for answer in answers if answer.fault is None and answer.usage is not None]
        costs, saved = mean(map(price.of, usages)), mean(map(price.saved, usages))
        return CostRow(target, experiment, len(usages), costs, saved, self.currency)


@dataclass(frozen=True, slots=True)
class CostRow:
    """The mean cost of an answer of a target, and how much of it the cache saved; None where tokens are not known."""

    target: str
    experiment: str
    answers: int
    cost: float | None
    saved: float | None
    currency: str


def load_prices(file: Path) -> Prices:
    """Read a price file. Raises ConfigError with every fault."""
    return table_of_file(Prices, file)
