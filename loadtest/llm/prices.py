"""Prices of models by a file, the cost of an answer, and how much of it a cache saves. Pure but for the file.

currency = "USD"
[[price]]              # for 1,000,000 tokens
model = "small-model"  # as it was asked for, as the endpoint names it, or the name of the target
input = 0.15
cached = 0.075         # of the prompt, from the cache (default: as input)
output = 0.60
audio = 10.0           # audio tokens, where the usage counts them (default: as input)
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from loadtest.llm.answers import LlmAnswer, LlmUsage
from loadtest.llm.figures import mean
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import nearest

_PER: Final = 1_000_000
_NUMBERS: Final = ("input", "cached", "output", "audio")
_KEYS: Final = ("model", *_NUMBERS)


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens."""

    input: float
    cached: float
    output: float
    audio: float

    def of(self, usage: LlmUsage) -> float | None:
        """The price of one answer; None where its tokens are not known."""
        if usage.prompt is None or usage.completion is None:
            return None
        cached, audio = usage.cached or 0, usage.audio or 0
        plain = max(0, usage.prompt - cached - audio)
        spent = plain * self.input + cached * self.cached + audio * self.audio + usage.completion * self.output
        return spent / _PER

    def saved(self, usage: LlmUsage) -> float | None:
        """How much less it cost because of the cache; None where the server does not count what came from it."""
        return None if usage.cached is None else usage.cached * (self.input - self.cached) / _PER


@dataclass(frozen=True, slots=True)
class Prices:
    """A price file."""

    currency: str
    by_model: Mapping[str, Price]


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
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(file), [f"is no TOML: {error}"]) from None
    faults = [f"has the unknown key {name!r}" for name in document if name not in ("currency", "price")]
    currency, entries = document.get("currency", "USD"), document.get("price")
    if not isinstance(currency, str) or not currency.strip():
        faults.append("currency is not a text")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(str(file), [*faults, "holds no [[price]] table"])
    found: dict[str, Price] = {}
    for number, entry in enumerate(cast("list[Any]", entries), 1):
        of = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        own = _faults(of)
        if not own and of["model"] in found:
            own = [f"is the second one of {of['model']!r}"]
        faults += [f"price {number} {fault}" for fault in own]
        if not own:
            plain = float(of["input"])
            found[of["model"]] = Price(plain, of.get("cached", plain), of["output"], of.get("audio", plain))
    if faults:
        raise ConfigError(str(file), faults)
    return Prices(currency, found)


def _faults(of: Mapping[str, Any]) -> list[str]:
    faults = [f"has the unknown key {name!r}{nearest(name, _KEYS)}" for name in of if name not in _KEYS]
    faults += [f"has no {name}" for name in ("model", "input", "output") if name not in of]
    if "model" in of and not (isinstance(of["model"], str) and of["model"]):
        faults.append(f"model is {of['model']!r:.40}: give its name")
    for name in _NUMBERS:
        value = of.get(name, 0)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0:
            faults.append(f"{name} is {value!r:.40}: give the price of a million tokens, 0 or more")
    return faults


def cost_row(
    prices: Prices, names: Sequence[str | None], target: str, experiment: str, answers: Iterable[LlmAnswer]
) -> CostRow | None:
    """The cost of answers; `names` are those by which their model may be in the file. None where it is not."""
    price = next((price for name in names if (price := prices.by_model.get(name or "")) is not None), None)
    if price is None:
        return None
    usages = [answer.usage for answer in answers if answer.fault is None and answer.usage is not None]
    return CostRow(
        target, experiment, len(usages), mean(map(price.of, usages)), mean(map(price.saved, usages)), prices.currency
    )
