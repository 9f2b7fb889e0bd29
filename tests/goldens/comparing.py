"""Comparison of answers: whole numbers, texts and orders exactly, other numbers to nine digits (a sum of fractions has
no order of its own), of an estimate that its interval holds the exact one; and every difference by its place."""

import json
import math
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

# Stands for what an answer holds that may differ.
NOT_COMPARED: Final = "a sample, which is not compared"
_REPEATED: Final = "as in"
_REPEATED_CHARS: Final = 400
_RELATIVE: Final = 1e-9
_ABSOLUTE: Final = 1e-12
_CALL: Final = "call"


def written(answers: Mapping[str, object]) -> str:
    """Answers as JSON, a question a line. A long part that occurred before is only named: pages repeat what other
    questions answer."""
    short = _without_repetitions(json.loads(json.dumps(answers)))
    lines = [f"{json.dumps(key)}: {json.dumps(short[key], sort_keys=True)}" for key in sorted(short)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: Path) -> dict[str, Any]:
    """The answers of a file, whole."""
    return whole(json.loads(path.read_text(encoding="utf-8")))


def whole(short: dict[str, Any]) -> dict[str, Any]:
    """Answers with every part that is only named in its place."""

    def expanded(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {_REPEATED}:
            return expanded(reduce(getitem, value[_REPEATED], short))
        if isinstance(value, dict):
            return {key: expanded(member) for key, member in value.items()}
        return [expanded(element) for element in value] if isinstance(value, list) else value

    return expanded(short)


def _without_repetitions(answers: dict[str, Any]) -> dict[str, Any]:
    places: dict[str, list[str | int]] = {}

    def shortened(value: Any, place: list[str | int]) -> Any:
        if not isinstance(value, dict | list):
            return value
        text = json.dumps(value, sort_keys=True)
        if place and len(text) >= _REPEATED_CHARS and places.setdefault(text, place) != place:
            return {_REPEATED: places[text]}
        if isinstance(value, dict):
            return {key: shortened(value[key], [*place, key]) for key in sorted(value)}
        return [shortened(element, [*place, number]) for number, element in enumerate(value)]

    return shortened(answers, [])


def _comparable(value: Any) -> Any:
    """An answer without marks that a figure is not approximate (nothing is), and with a cohort's turns in one order."""
    if isinstance(value, dict):
        members = {key: _comparable(member) for key, member in value.items() if (key, member) != ("approximate", False)}
        return _in_one_order(members) if members.keys() >= {"numbers", "codes"} else members
    return [_comparable(element) for element in value] if isinstance(value, list) else value


def _in_one_order(cohort: dict[str, Any]) -> dict[str, Any]:
    """The columns of a cohort's turns in the order of their values: an answer has its turns in no order of its own.

    Equal turns of different calls are in the order of their calls' other turns, so that calls get the same numbers.
    """
    columns = {**cohort["numbers"], **{name: column for name, column in cohort["codes"].items() if name != _CALL}}
    turns = [json.dumps(turn) for turn in zip(*(columns[name] for name in sorted(columns)), strict=True)]
    calls = cohort["codes"].get(_CALL, [0] * len(turns))
    turns_of: dict[int, list[str]] = {}
    for call, turn in zip(calls, turns, strict=True):
        turns_of.setdefault(call, []).append(turn)
    of_call = {call: sorted(column) for call, column in turns_of.items()}
    keys = [(turn, of_call[call]) for call, turn in zip(calls, turns, strict=True)]
    order = sorted(range(len(turns)), key=keys.__getitem__)
    first = {call: place for place, call in enumerate(dict.fromkeys(calls[place] for place in order))}
    order.sort(key=lambda place: (keys[place], first[calls[place]]))
    numbers = {name: [column[place] for place in order] for name, column in cohort["numbers"].items()}
    codes = {name: [column[place] for place in order] for name, column in cohort["codes"].items()}
    if _CALL in codes:
        codes[_CALL] = [first[call] for call in codes[_CALL]]
    return {**cohort, "numbers": numbers, "codes": codes}


def differences(golden: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Where answers are not what they were, a line each."""
    return [*_different("", *(_comparable(json.loads(json.dumps(answers))) for answers in (golden, now)))]


def _different(place: str, golden: Any, now: Any) -> Iterator[str]:
    if isinstance(golden, dict) and NOT_COMPARED in golden.values():
        return
    if isinstance(golden, dict) and isinstance(now, dict):
        if now.get("approximate"):
            golden, now = (_without_estimates(answer) for answer in (golden, now))
        for key in sorted(golden.keys() | now.keys()):
            if key not in now:
                yield f"{place}/{key}: was {_short(golden[key])}, is missing"
            elif key not in golden:
                yield f"{place}/{key}: is new, {_short(now[key])}"
            else:
                yield from _different(f"{place}/{key}", golden[key], now[key])
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        for number, (before, after) in enumerate(zip(golden, now, strict=True)):
            yield from _different(f"{place}/{number}", before, after)
    elif not _equal(golden, now):
        yield f"{place}: was {_short(golden)}, is {_short(now)}"


def estimates(golden: Any, now: Any) -> dict[tuple[float, ...], bool]:
    """Every estimated percentile, and every one of measurement bounds, as the exact one and its interval: whether
    the interval holds it. What is in several answers is there once."""
    checks: dict[tuple[float, ...], bool] = {}
    if isinstance(golden, dict) and isinstance(now, dict):
        for name, (low, high) in (now.get("estimated_within") or {}).items():
            for key in (name, f"{name}_ns", f"difference_{name}_ns"):
                if (exact := golden.get(key)) is not None:
                    checks[exact, low, high] = low <= exact <= high
            exact, wider = ((metric.get("measured_within") or {}).get(name) for metric in (golden, now))
            if exact is not None and wider is not None:
                checks[(*exact, *wider)] = wider[0] <= exact[0] and exact[1] <= wider[1]
        parts = [(golden[key], now[key]) for key in golden.keys() & now.keys()]
    elif isinstance(golden, list) and isinstance(now, list):
        parts = [*zip(golden, now, strict=False)]
    else:
        return checks
    for pair in parts:
        checks |= estimates(*pair)
    return checks


def _without_estimates(metric: dict[str, Any]) -> dict[str, Any]:
    of_percentiles = {"approximate", "estimated_within"} | {key for key in metric if "p50" in key or "p9" in key}
    kept = {key: value for key, value in metric.items() if key not in of_percentiles}
    if isinstance(kept.get("measured_within"), dict):
        kept["measured_within"] = {key: value for key, value in kept["measured_within"].items() if key[0] != "p"}
    return kept


def _equal(golden: object, now: object) -> bool:
    numbers = (int, float)
    if isinstance(golden, bool) or isinstance(now, bool) or not isinstance(golden, numbers):
        return type(golden) is type(now) and golden == now
    if isinstance(golden, int) and isinstance(now, int):
        return golden == now
    return isinstance(now, numbers) and math.isclose(golden, now, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
