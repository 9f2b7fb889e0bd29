"""Prompts with answers that a program can check: the default set, and files in the same format. Pure but for the file.

A file is TOML (a `[[prompt]]` table each) or JSONL (an object a line), each with `id`, `user`, and optionally `system`
and `expect`, one of:

    {intent = "lights_on", among = ["lights_on", "lights_off"]}   names this intent, and none of the others
    {slots = {room = "kitchen", minutes = 5}}                     the JSON object in the answer has these values
    {number = 42, tolerance = 0.5}                                the last number in the answer
    {schema = {type = "object", ...}}                             the JSON value in the answer is valid by a JSON schema
    {contains = ["Paris"]}                                        every one of these texts, in any case
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import nearest

KINDS: Final = ("intent", "slots", "number", "schema", "contains")
_KEYS: Final = ("id", "user", "system", "expect")
_EXTRAS: Final = {"intent": "among", "number": "tolerance"}
_NUMBER: Final = re.compile(r"(?<![\w.])[-−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.])[-−]?\d+(?:\.\d+)?(?!\w)")
_MOST_FAULTS: Final = 20
_MOST_OPENINGS: Final = 20  # of which one may begin the JSON of an answer


@dataclass(frozen=True, slots=True)
class Expectation:
    """The content of a right answer; `extra` are the other intents, or the tolerance of a number."""

    kind: str
    value: Any
    extra: Any = None

    def is_met(self, answer: str) -> bool:
        """Whether an answer is right."""
        match self.kind:
            case "intent":
                return _names(answer, self.value) and not any(
                    _names(answer, other) for other in self.extra or () if other != self.value
                )
            case "slots":
                found = json_in(answer)
                return isinstance(found, dict) and all(
                    _is_same(wanted, cast("dict[str, Any]", found).get(name)) for name, wanted in self.value.items()
                )
            case "number":
                numbers = _NUMBER.findall(answer)
                return bool(numbers) and abs(_number(numbers[-1]) - self.value) <= (self.extra or 0)
            case "schema":
                return is_valid(json_in(answer), self.value)
            case _:
                return all(text.casefold() in answer.casefold() for text in self.value)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question, and what a right answer to it holds; None where nothing can be checked."""

    name: str
    user: str
    system: str | None = None
    expect: Expectation | None = None


class NoJson:
    """The value of a text that holds no JSON."""


def json_in(answer: str) -> Any:
    """The JSON value of an answer: the whole of it, without the fence of Markdown, or the first object or list in it;
    `NoJson` where there is none."""
    text = re.sub(r"\A```\w*\n|\n?```\Z", "", answer.strip())
    decoder = json.JSONDecoder()
    openings = [0, *(match.start() for match in islice(re.finditer(r"[{\[]", text), _MOST_OPENINGS))]
    for opening in openings if text else ():
        try:
            value, end = decoder.raw_decode(text, opening)
        except ValueError:
            continue
        except RecursionError:
            break
        if opening or end == len(text):
            return value
    return NoJson


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a JSON value is valid by a JSON schema; `NoJson` is not."""
    from jsonschema.validators import validator_for

    return value is not NoJson and bool(validator_for(schema)(schema).is_valid(value))


def default_prompts() -> list[Prompt]:
    """The prompts that are asked where no file is given."""
    source = files("loadtest.llm") / "data" / "prompts.toml"
    return _read(tomllib.loads(source.read_text(encoding="utf-8")).get("prompt", []), "default prompts")


def load_prompts(file: Path | None) -> list[Prompt]:
    """The prompts of a file, or the default ones. Raises ConfigError with every fault."""
    if file is None:
        return default_prompts()
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(str(file), ["is no UTF-8 text; save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None
    if file.suffix == ".jsonl":
        return _read(_lines(text, str(file)), str(file))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), [f"is no TOML ({error}); a file of JSON lines ends in .jsonl"]) from None
    unknown = [name for name in document if name != "prompt"]
    if unknown:
        raise ConfigError(str(file), [f"has the key {unknown[0]!r}: it holds [[prompt]] tables and nothing else"])
    return _read(document.get("prompt", []), str(file))


def _lines(text: str, where: str) -> list[Any]:
    found: list[Any] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number} is no JSON: {error}")
    if faults:
        raise ConfigError(where, faults[:_MOST_FAULTS])
    return found


def _read(entries: Any, where: str) -> list[Prompt]:
    faults: list[str] = []
    found: list[Prompt] = []
    if not isinstance(entries, list):
        raise ConfigError(where, ["'prompt' is not a list: write [[prompt]]"])
    for number, entry in enumerate(cast("list[Any]", entries), 1):
        own, prompt = _prompt(entry)
        faults += [f"prompt {number} {fault}" for fault in own]
        if prompt is not None and prompt.name in {each.name for each in found}:
            faults.append(f"prompt {number} has the id of an earlier one, {prompt.name!r}: give each its own")
        elif prompt is not None:
            found.append(prompt)
    if not found and not faults:
        faults.append("holds no prompt; add a [[prompt]] with id and user")
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more faults"] if faults[_MOST_FAULTS:] else []
        raise ConfigError(where, faults[:_MOST_FAULTS] + more)
    return found


def _prompt(entry: Any) -> tuple[list[str], Prompt | None]:
    """The faults of an entry, and the prompt where there is none."""
    if not isinstance(entry, dict):
        return [f"is {entry!r:.40}: write a table with id and user"], None
    of = cast("dict[str, Any]", entry)
    faults = [f"has the unknown key {name!r}{nearest(name, _KEYS)}" for name in of if name not in _KEYS]
    for name in ("id", "user", "system"):
        value = of.get(name)
        if (value is not None or name != "system") and not (isinstance(value, str) and value.strip()):
            faults.append(f"has no {name}: give it as text" if value is None else f"{name} is {value!r:.40}: give text")
    expect = None
    if "expect" in of:
        own, expect = _expectation(of["expect"])
        faults += own
    return (faults, None) if faults else ([], Prompt(of["id"], of["user"], of.get("system"), expect))


def _expectation(of: Any) -> tuple[list[str], Expectation | None]:
    if not isinstance(of, dict) or len(kinds := [kind for kind in KINDS if kind in of]) != 1:
        return [f"expect is {of!r:.60}: give one of {', '.join(KINDS)}"], None
    known, kind = cast("dict[str, Any]", of), kinds[0]
    allowed = (kind, _EXTRAS.get(kind))
    faults = [f"expect has the unknown key {name!r}: {kind} does not take it" for name in known if name not in allowed]
    value, extra = known[kind], known.get(_EXTRAS.get(kind, ""))
    fault = _fault_of(kind, value)
    faults += [f"expect.{kind} is {value!r:.40}: give {fault}"] if fault else []
    if kind == "intent" and extra is not None and not _is_texts(extra):
        faults.append("expect.among is not a list of texts")
    if kind == "number" and extra is not None and not (_is_number(extra) and extra >= 0):
        faults.append(f"expect.tolerance is {extra!r:.40}: give a number, 0 or more")
    return (faults, None) if faults else ([], Expectation(kind, value, extra))


def _fault_of(kind: str, value: Any) -> str | None:
    """Name what would be right where a value is not."""
    if kind == "intent":
        return None if isinstance(value, str) and value.strip() else "a name"
    if kind == "slots":
        return None if isinstance(value, dict) and value else "a table of names and values"
    if kind == "number":
        return None if _is_number(value) else "a finite number"
    if kind == "contains":
        return None if _is_texts(value) else "a list of texts"
    return schema_fault(value)


def schema_fault(value: Any) -> str | None:
    """Name what would be right where something is not a JSON schema."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(value, dict):
        return "a JSON schema"
    try:
        validator_for(value).check_schema(value)
    except SchemaError as error:
        return f"a JSON schema ({error.message[:80]})"
    return None


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _names(answer: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", answer.casefold()) is not None


def _is_same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(found, str) and wanted.strip().casefold() == found.strip().casefold()
    if _is_number(wanted) and isinstance(found, str) and _NUMBER.fullmatch(found.strip()):
        found = _number(found.strip())  # "5" for 5: the assistant's program reads both
    is_like = type(wanted) is type(found) or (_is_number(wanted) and _is_number(found))
    return is_like and wanted == found


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def checkable(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Those whose answers can be checked."""
    return [prompt for prompt in prompts if prompt.expect is not None]
