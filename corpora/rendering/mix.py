"""Mixes: how much of what is said is short or long, of which domain, by which speaker.

`short=60 medium=30 long=10` weighs length classes; `domain.NAME=` and `speaker.NAME=` weigh domains and speakers. What
is not named in a kind that is weighed does not come. The shares of a deck are as exact as whole utterances allow: by
largest remainder in each kind, and in all kinds at once.
"""

import difflib
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

Cell = tuple[str | None, ...]  # length, domain and speaker of an utterance; None in a kind that is not weighed


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights by kind and value; a kind that is not there is not weighed."""

    weights: Mapping[str, Mapping[str, float]]

    def cell(self, utterance: Utterance) -> Cell:
        """Where an utterance belongs."""
        return tuple(str(getattr(utterance, kind)) if kind in self.weights else None for kind in KINDS)


def mix_from_text(text: str) -> Mix:
    """The mix that a text describes. Raises CorpusError with a line for each fault."""
    weights: dict[str, dict[str, float]] = {}
    faults: list[str] = []
    for word in text.replace(",", " ").split():
        name, equals, value = word.rpartition("=")
        kind, dot, what = name.partition(".")
        kind, what = (kind, what) if dot else ("length", name)
        if not equals or not what or kind not in KINDS:
            faults.append(
                f"{word!r} is no part of a mix; write {', '.join(f'{each}=WEIGHT' for each in _LENGTHS)}, "
                "domain.NAME=WEIGHT or speaker.NAME=WEIGHT."
            )
        elif kind == "length" and what not in _LENGTHS:
            near = difflib.get_close_matches(what, _LENGTHS, 1)
            hint = f"did you mean {near[0]}?" if near else f"use {', '.join(_LENGTHS)}."
            faults.append(f"The length {what!r} is unknown; {hint}")
        elif what in weights.get(kind, {}):
            faults.append(f"{name}: is weighed twice; give it once.")
        elif (weight := _weight(value)) is None:
            faults.append(f"{name}: {value!r} is no weight; give a number, 0 or more.")
        else:
            weights.setdefault(kind, {})[what] = weight
    nothing = [kind for kind, each in weights.items() if not any(each.values())]
    faults += [f"All weights of {kind} are 0; give one above 0." for kind in nothing]
    if faults:
        raise CorpusError("\n".join(faults))
    return Mix(weights)


def deal(utterances: Sequence[Utterance], mix: Mix, count: int, seed: int) -> tuple[Utterance, ...]:
    """`count` utterances in the shares of a mix, in an order drawn from the seed. One comes again only when all others
    like it have come. Raises CorpusError when a class that is asked for has no utterance, or the kinds cannot be had
    together.
    """
    cells: dict[Cell, list[Utterance]] = {}
    for utterance in sorted(utterances, key=lambda each: derive_seed(seed, "mix", each.id)):
        cells.setdefault(mix.cell(utterance), []).append(utterance)
    _check(mix, cells)
    quotas = {kind: largest_remainder(weights, count) for kind, weights in mix.weights.items()}
    wanted = {cell: math.prod(_share(mix, cell)) for cell in cells}
    counts = _fitted(cells, wanted, quotas, count, seed)
    dealt = [cells[cell][number % len(cells[cell])] for cell, many in counts.items() for number in range(many)]
    random.Random(f"{seed}/mix").shuffle(dealt)  # noqa: S311 - an order, not a secret
    return tuple(dealt)


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
        there = {cell[KINDS.index(kind)] for cell in cells}
        for value, weight in weights.items():
            if weight > 0.0 and value not in there:
                known = ", ".join(sorted(str(each) for each in there)[:20])
                faults.append(f"The mix asks for {kind} {value}, of which there is no utterance; there is {known}.")
    if faults:
        raise CorpusError("\n".join(faults))


def largest_remainder(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Whole numbers in the proportion of weights that add up to `count`: each rounded down, the rest to the largest
    remainders, the first named first."""
    total = math.fsum(weights.values())
    exact = {value: weight / total * count for value, weight in weights.items()}
    whole = {value: math.floor(number + 1e-9) for value, number in exact.items()}
    order = sorted(exact, key=lambda value: whole[value] - exact[value])
    for value in order[: count - sum(whole.values())]:
        whole[value] += 1
    return whole


def _fitted(
    cells: Mapping[Cell, Sequence[Utterance]],
    wanted: Mapping[Cell, float],
    quotas: Mapping[str, Mapping[str, int]],
    count: int,
    seed: int,
) -> dict[Cell, int]:
    """How many of each cell: every kind's quotas met exactly, and as near as can be to independent kinds.

    A small whole-number program. Cells differ by a tiny cost of their own, so that there is one best answer,
    whichever way a solver takes.
    """
    from scipy import optimize  # a second to import, and seldom needed

    names = sorted(cells, key=str)
    if not quotas:
        return dict.fromkeys(names, count)  # nothing is weighed: all are in one cell
    if len(quotas) == 1:
        kind, numbers = next(iter(quotas.items()))
        return {cell: numbers.get(str(cell[KINDS.index(kind)]), 0) for cell in names}
    # Variables: the count of each cell, then how far it is from what is wanted.
    size = len(names)
    there = np.eye(size)
    rows = [np.hstack((there, -there)), np.hstack((-there, -there))]
    wanted_counts = np.array([wanted[cell] * count for cell in names])
    low, high = [np.full(2 * size, -np.inf)], [wanted_counts, -wanted_counts]
    for kind, numbers in quotas.items():
        for value, number in numbers.items():
            row = [float(cell[KINDS.index(kind)] == value) for cell in names]
            rows.append(np.array([row + [0.0] * size]))
            low.append(np.array([float(number)]))
            high.append(np.array([float(number)]))
    tie = [_TIE_BREAKING * (derive_seed(seed, "tie", cell) % 997) / 997 for cell in names]
    limits: Any = optimize.LinearConstraint(np.vstack(rows), *(np.concatenate(each) for each in (low, high)))  # pyright: ignore[reportArgumentType] - arrays are taken
    found = optimize.milp(
        np.array(tie + [1.0] * size),
        integrality=np.array([1] * size + [0] * size),
        bounds=optimize.Bounds(0, np.inf),
        constraints=limits,
    )
    if found.x is None:
        raise CorpusError(
            f"The mix cannot be had: no {count} utterances of the corpus have these shares of "
            f"{' and '.join(quotas)} at once; weigh fewer kinds, or add utterances."
        )
    return {cell: round(found.x[number]) for number, cell in enumerate(names)}
