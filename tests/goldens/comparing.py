"""What counts as equal: whole numbers, texts and orders exactly, other numbers to nine digits (a sum of fractions has
no order of its own), and every difference by its place."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

# Stands for what an answer holds that may differ.
NOT_COMPARED: Final = "a sample, which is not compared"
_RELATIVE: Final = 1e-9
_ABSOLUTE: Final = 1e-12
_CALL: Final = "call"


def written(answers: Mapping[str, object]) -> str:
    """Answers as JSON, a question a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(answers[key], sort_keys=True)}" for key in sorted(answers)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(path: Path) -> dict[str, Any]:
    """The answers of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def spelled_out(answers: Mapping[str, object]) -> dict[str, Any]:
    """Answers with what stood in an answer before in each place where it is repeated. Marks that a figure is not
    approximate are left out: nothing is, of so few turns."""
    places: dict[str, Any] = {}

    def note(value: Any, place: str) -> None:
        places[place] = value
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(each, dict | list):
                note(each, f"{place}/{key}")

    def spelled(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"as in"}:
                return spelled(places[value["as in"]])
            found = {key: spelled(each) for key, each in value.items() if (key, each) != ("approximate", False)}
            return _in_one_order(found) if found.keys() >= {"numbers", "codes"} else found
        return [spelled(each) for each in value] if isinstance(value, list) else value

    for key, answer in answers.items():
        if isinstance(answer, dict | list):
            note(answer, key)
    return {key: spelled(answer) for key, answer in answers.items()}


def _in_one_order(cohort: dict[str, Any]) -> dict[str, Any]:
    """The columns of a cohort's turns in the order of their values: an answer has its turns in no order of its own."""
    columns = {**cohort["numbers"], **{name: each for name, each in cohort["codes"].items() if name != _CALL}}
    turns = zip(*(columns[name] for name in sorted(columns)), strict=True)
    order = [place for place, _ in sorted(enumerate(turns), key=lambda turn: json.dumps(turn[1]))]
    numbers = {name: [each[place] for place in order] for name, each in cohort["numbers"].items()}
    codes = {name: [each[place] for place in order] for name, each in cohort["codes"].items()}
    if _CALL in codes:
        first = {call: place for place, call in enumerate(dict.fromkeys(codes[_CALL]))}
        codes[_CALL] = [first[call] for call in codes[_CALL]]
    return {**cohort, "numbers": numbers, "codes": codes}


def differences(golden: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Where answers are not what they were, a line each."""
    return [*_different("", *(spelled_out(json.loads(json.dumps(each))) for each in (golden, now)))]


def _different(place: str, golden: Any, now: Any) -> Iterator[str]:
    if isinstance(golden, dict) and NOT_COMPARED in golden.values():
        return
    if isinstance(golden, dict) and isinstance(now, dict):
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
