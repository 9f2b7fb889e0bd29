"""A Hypothesis strategy over everything a `Turn` can be, derived from the struct itself."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from telemetry.model.turns import Turn
from telemetry.store.schema import INTEGER_LIMIT

# Text as OTLP can carry it: valid Unicode.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _hex(digits: int) -> st.SearchStrategy[str]:
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


def _of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    if isinstance(kind, msgspec.inspect.UnionType):
        return st.one_of([_of(part) for part in kind.types])
    if isinstance(kind, msgspec.inspect.NoneType):
        return st.none()
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return st.lists(_of(kind.item_type), max_size=3).map(tuple)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return st.sampled_from(kind.values)
    if isinstance(kind, msgspec.inspect.IntType):
        return st.integers(1 - INTEGER_LIMIT if kind.ge is None else kind.ge, INTEGER_LIMIT - 1)
    if isinstance(kind, msgspec.inspect.FloatType):
        return st.floats(allow_nan=False, allow_infinity=False)
    if isinstance(kind, msgspec.inspect.BoolType):
        return st.booleans()
    assert isinstance(kind, msgspec.inspect.StrType), f"no strategy for {kind}"
    return _TEXT


def turns() -> st.SearchStrategy[Turn]:
    """Turns with any field known or unknown, each with ids of its own."""
    info = msgspec.inspect.type_info(Turn)
    assert isinstance(info, msgspec.inspect.StructType)
    fields = {field.name: _of(field.type) for field in info.fields}
    fields |= {"trace_id": _hex(32), "span_id": _hex(16)}
    # A store keeps a user's pseudonym, and nothing else of a user.
    fields["user_id"] = st.none() | _hex(32).map("pseudonym-{}".format)
    return st.fixed_dictionaries(fields).map(lambda values: Turn(**values))
