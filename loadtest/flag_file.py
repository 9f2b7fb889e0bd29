"""The file in which flagd keeps feature flags, as far as a rollout needs it: is it sound, and who gets which variant.

A flag assigns callers by the operation `fractional` in its `targeting`: pairs of a variant and a whole-number weight,
chosen by a hash of the caller's key, so that a caller keeps its variant while the weights stay
(https://flagd.dev/reference/custom-operations/fractional-operation/). Pure: what a file holds is a parameter.
"""

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, cast

from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import nearest, shown

Document = dict[str, Any]
FRACTIONAL: Final = "fractional"
# Weights of this many parts hold every share that a plan may name; fewer are written where they suffice.
_LARGEST_SCALE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Split:
    """Shares of all callers, from 0 to 1, that two variants of a flag get."""

    control: str
    candidate: str
    control_share: float
    candidate_share: float


def read_flags(content: bytes, where: str) -> Document:
    """The document of a file. Raises ConfigError; `where` names the file."""
    try:
        document = json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(where, [f"is not JSON in UTF-8 ({error}); flagd's JSON format is expected"]) from None
    if not isinstance(document, dict) or not isinstance(cast("Document", document).get("flags"), dict):
        raise ConfigError(where, ["has no object `flags`; flagd's format is expected"])
    return cast("Document", document)


def flag_of(document: Document, key: str, where: str) -> Document:
    """One flag, enabled and with variants. Raises ConfigError."""
    flags = cast("Mapping[str, object]", document["flags"])
    flag = flags.get(key)
    if flag is None:
        raise ConfigError(where, [f"has no flag {shown(key)}{nearest(key, tuple(map(str, flags))) if flags else ''}"])
    faults: list[str] = []
    fields = cast("Document", flag) if isinstance(flag, dict) else {}
    if fields.get("state") not in ("ENABLED", "DISABLED"):
        faults.append(f"flags.{key}.state is {shown(fields.get('state'))}; write ENABLED or DISABLED")
    variants = fields.get("variants")
    if not isinstance(variants, dict) or not variants:
        faults.append(f"flags.{key}.variants is missing; give each variant a value")
    if faults:
        raise ConfigError(where, faults)
    return fields


def variants_of(flag: Document) -> tuple[str, ...]:
    """The names of a flag's variants."""
    return tuple(map(str, cast("Mapping[str, object]", flag["variants"])))


def unknown_variants(flag: Document, key: str, known: Collection[str]) -> list[str]:
    """A sentence for each variant that the flag has and its reader does not know."""
    return [
        f"flags.{key}.variants has {shown(name)}, which has no settings{nearest(name, known)}"
        for name in variants_of(flag)
        if name not in known
    ]


def share_of(flag: Document, variant: str) -> float | None:
    """The share of callers that a variant gets; None where no `fractional` says so."""
    arguments = next(_fractionals(flag.get("targeting")), None)
    if arguments is None:
        return None
    weights = _weights(arguments)
    total = sum(weight for _, weight in weights)
    if total <= 0:
        return None
    return sum(weight for name, weight in weights if name == variant) / total


def with_split(document: Document, key: str, split: Split, where: str) -> Document:
    """The document with other shares of one flag, and everything else as it is. The other variants keep their
    shares of what the two leave. Raises ConfigError where the flag cannot take the shares."""
    changed = copy.deepcopy(document)
    flag = flag_of(changed, key, where)
    known = variants_of(flag)
    faults = [
        f"flags.{key}.variants has no {shown(name)}{nearest(name, known)}"
        for name in (split.control, split.candidate)
        if name not in known
    ]
    if flag.get("state") != "ENABLED":
        faults.append(f"flags.{key}.state is DISABLED, so its targeting is not used; write ENABLED")
    fractionals = list(_fractionals(flag.get("targeting")))
    if flag.get("targeting") and not fractionals:
        faults.append(f"flags.{key}.targeting has no {FRACTIONAL}; write one there, or leave targeting out")
    if len(fractionals) > 1:
        faults.append(f"flags.{key}.targeting has several {FRACTIONAL}; which one is meant cannot be known")
    if faults:
        raise ConfigError(where, faults)
    arguments: list[Any] = fractionals[0] if fractionals else [[split.control, 1]]
    head = [argument for argument in arguments[:1] if not isinstance(argument, list)]
    shares = _shares(_weights(arguments), split, f"flags.{key}.targeting", where)
    arguments[:] = [*head, *([name, weight] for name, weight in _whole_weights(shares))]
    if not fractionals:
        flag["targeting"] = {FRACTIONAL: arguments}
    return changed


def encode_flags(document: Document) -> bytes:
    """The document as a file."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def _fractionals(rule: object) -> Iterator[list[Any]]:
    """The arguments of every `fractional` in a rule, wherever it is nested."""
    if isinstance(rule, dict):
        for name, value in cast("Document", rule).items():
            if name == FRACTIONAL and isinstance(value, list):
                yield cast("list[Any]", value)
            else:
                yield from _fractionals(value)
    elif isinstance(rule, list):
        for entry in cast("list[object]", rule):
            yield from _fractionals(entry)


def _weights(arguments: list[Any]) -> list[tuple[str, int]]:
    """Variants and their weights; a pair without a weight has 1, and one below 0 counts as 0, as flagd reads them."""
    weights: list[tuple[str, int]] = []
    for argument in arguments:
        if isinstance(argument, list) and argument:
            name, *weight = cast("list[Any]", argument)
            whole = weight[0] if weight and isinstance(weight[0], int) else 0 if weight else 1
            weights.append((str(name), max(0, whole)))
    return weights


def _shares(weights: list[tuple[str, int]], split: Split, place: str, where: str) -> list[tuple[str, float]]:
    """The new shares in the order of the old, with the candidate next to its control: only callers of these two
    change their variant."""
    both = {split.control: split.control_share, split.candidate: split.candidate_share}
    order = list(dict.fromkeys(name for name, _ in weights))
    if split.control not in order:
        order.insert(0, split.control)
    if split.candidate not in order:
        order.insert(order.index(split.control) + 1, split.candidate)
    others = {name: sum(w for variant, w in weights if variant == name) for name in order if name not in both}
    rest, given = 1 - split.control_share - split.candidate_share, sum(others.values())
    if rest > 1e-9 and not given:
        raise ConfigError(
            where,
            [f"{place}: the plan leaves {rest:.4g} of the callers to other variants, and it has none with a weight"],
        )
    return [(name, both[name] if name in both else rest * others[name] / given if given else 0.0) for name in order]


def _whole_weights(shares: list[tuple[str, float]]) -> list[tuple[str, int]]:
    """Whole numbers in the proportion of the shares, the smallest scale of ten that holds them exactly, else a
    million parts."""
    scale = 100
    exact = [Fraction(share).limit_denominator(_LARGEST_SCALE) for _, share in shares]
    while scale < _LARGEST_SCALE and any((part * scale).denominator != 1 for part in exact):
        scale *= 10
    return [(name, round(part * scale)) for (name, _), part in zip(shares, exact, strict=True)]
