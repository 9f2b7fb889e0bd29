"""Mixes: the shares of the utterances by length class, domain and speaker.

`short=60 medium=30 long=10` weights length classes; `domain.NAME=` and `speaker.NAME=` weight domains and speakers. In
a weighted kind, a value without a weight is not used. The shares are as exact as whole utterances allow: the largest
remainder method determines the counts of each kind, and all kinds hold at once.
"""

import difflib
import importlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import LengthClass, Utterance
from corpora.rendering.noise import derive_seed

KINDS: Final = ("length", "domain", "speaker")
_LENGTHS: Final = get_args(LengthClass)
_TIE_BREAKING: Final = 1e-3

Cell = tuple[str | None, ...]  # length, domain and speaker of an utterance; None for a kind without weights


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights by kind and value; a kind that is missing has no weights."""

    weights: Mapping[str, Mapping[str, float]]

    def cell(self, utterance: Utterance) -> Cell:
        """The cell that an utterance belongs to."""
        return tuple(str(getattr(utterance, kind)) if kind in self.weights else None for kind in KINDS)


def mix_from_text(text: str) -> Mix:
    """Parse a mix. Raises CorpusError with one line per fault."""
    weights: dict[str, dict[str, float]] = {}
    faults: list[str] = []
    for word in text.replace(",", " ").split():
        name, equals, value = word.rpartition("=")
        kind, dot, value_name = name.partition(".")
        kind, value_name = (kind, value_name) if dot else ("length", name)
        if not equals or not value_name or kind not in KINDS:
            faults.append(
                f"{word!r} is not part of a mix; write {', '.join(f'{length}=WEIGHT' for length in _LENGTHS)}, "
                "domain.NAME=WEIGHT or speaker.NAME=WEIGHT."
            )
        elif kind == "length" and value_name not in _LENGTHS:
            near = difflib.get_close_matches(value_name, _LENGTHS, 1)
            hint = f"did you mean {near[0]}?" if near else f"use {', '.join(_LENGTHS)}."
            faults.append(f"The length {value_name!r} is unknown; {hint}")
        elif value_name in weights.get(kind, {}):
            faults.append(f"{name}: has two weights; give one.")
        elif (weight := _weight(value)) is None:
            faults.append(f"{name}: {value!r} is not a weight; give a number, 0 or more.")
        else:
            weights.setdefault(kind, {})[value_name] = weight
    all_zero = [kind for kind, shares in weights.items() if not any(shares.values())]
    faults += [f"All weights of {kind} are 0; give one above 0." for kind in all_zero]
    if faults:
        raise CorpusError("\n".join(faults))
    return Mix(weights)


def deal(utterances: Sequence[Utterance], mix: Mix, count: int, seed: int) -> tuple[Utterance, ...]:
    """Select `count` utterances in the shares of a mix, in an order drawn from the seed.

    An utterance is repeated only after all others of its cell have been used. Raises CorpusError if a value with a
    weight has no utterance, or if no selection has the shares of all kinds at once.
    """
    cells: dict[Cell, list[Utterance]] = {}
    for utterance in sorted(utterances, key=lambda utterance: derive_seed(seed, "mix", utterance.id)):
        cells.setdefault(mix.cell(utterance), []).append(utterance)
    _check(mix, cells)
    quotas = {kind: largest_remainder(weights, count) for kind, weights in mix.weights.items()}
    target_shares = {cell: math.prod(_share(mix, cell)) for cell in cells}
    counts = _cell_counts(cells, target_shares, quotas, count, seed)
    selected = [cells[cell][number % len(cells[cell])] for cell, many in counts.items() for number in range(many)]
    random.Random(f"{seed}/mix").shuffle(selected)  # noqa: S311 - an order, not a secret
    return tuple(selected)


def _weight(text: str) -> float | None:
    try:
        weight = float(text.removesuffix("%"))
    except ValueError:
        return None
    return weight if math.isfinite(weight) and weight >= 0.0 else None


def _share(mix: Mix, cell: Cell) -> list[float]:
    """The share of each of a cell's values in its kind."""
    return [
        mix.weights[kind].get(value, 0.0) / sum(mix.weights[kind].values())
        for kind, value in zip(KINDS, cell, strict=True)
        if value is not None
    ]


def _check(mix: Mix, cells: Mapping[Cell, Sequence[Utterance]]) -> None:
    faults: list[str] = []
    for kind, weights in mix.weights.items():
        available = {cell[KINDS.index(kind)] for cell in cells}
        for value, weight in weights.items():
            if weight > 0.0 and value not in available:
                known = ", ".join(sorted(str(value) for value in available)[:20])
                faults.append(f"The mix contains {kind} {value}, but no utterance has it; use any of {known}.")
    if faults:
        raise CorpusError("\n".join(faults))


def largest_remainder(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Divide `count` into whole numbers in proportion to weights: all rounded down, the rest by largest remainder.

    Equal remainders go to the value that comes first.
    """
    total = math.fsum(weights.values())
    exact = {value: weight / total * count for value, weight in weights.items()}
    whole = {value: math.floor(number + 1e-9) for value, number in exact.items()}
    order = sorted(exact, key=lambda value: whole[value] - exact[value])
    for value in order[: count - sum(whole.values())]:
        whole[value] += 1
    return whole


def _cell_counts(
    cells: Mapping[Cell, Sequence[Utterance]],
    target_shares: Mapping[Cell, float],
    quotas: Mapping[str, Mapping[str, int]],
    count: int,
    seed: int,
) -> dict[Cell, int]:
    """The count of each cell: the quotas of every kind are met exactly, and the kinds are as independent as possible.

    Solves a small integer program. Each cell has a tiny cost of its own, so that the optimum is unique and does not
    depend on the solver.
    """
    names = sorted(cells, key=str)
    if not quotas:
        return dict.fromkeys(names, count)  # without weights, all utterances are in one cell
    if len(quotas) == 1:
        kind, numbers = next(iter(quotas.items()))
        return {cell: numbers.get(str(cell[KINDS.index(kind)]), 0) for cell in names}
    # Takes half a second to import and is rarely needed. pyright would take five seconds to derive its types.
    optimize: Any = importlib.import_module("scipy.optimize")
    # Variables: the count of each cell, then its distance from the target count.
    size = len(names)
    identity = np.eye(size)
    rows = [np.hstack((identity, -identity)), np.hstack((-identity, -identity))]
    target_counts = np.array([target_shares[cell] * count for cell in names])
    low, high = [np.full(2 * size, -np.inf)], [target_counts, -target_counts]
    for kind, numbers in quotas.items():
        for value, number in numbers.items():
            row = [float(cell[KINDS.index(kind)] == value) for cell in names]
            rows.append(np.array([row + [0.0] * size]))
            low.append(np.array([float(number)]))
            high.append(np.array([float(number)]))
    tie = [_TIE_BREAKING * (derive_seed(seed, "tie", cell) % 997) / 997 for cell in names]
    limits = optimize.LinearConstraint(np.vstack(rows), *(np.concatenate(arrays) for arrays in (low, high)))
    solution = optimize.milp(
        np.array(tie + [1.0] * size),
        integrality=np.array([1] * size + [0] * size),
        bounds=optimize.Bounds(0, np.inf),
        constraints=limits,
    )
    if solution.x is None:
        raise CorpusError(
            f"The mix is impossible: no {count} utterances of the corpus have these shares of "
            f"{' and '.join(quotas)} at once; weight fewer kinds, or add utterances."
        )
    return {cell: round(solution.x[number]) for number, cell in enumerate(names)}
