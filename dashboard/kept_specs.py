"""Specifications of charts, each made once: a refresh asks for those of the refresh before, and making one takes longer
than all else of its chart."""

import json
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, ParamSpec

# Of each function: a page of a run has fewer, and several people look at several runs.
_KEPT_SPECS: Final = 32

_Given = ParamSpec("_Given")


def kept_spec(make: Callable[_Given, dict[str, Any]]) -> Callable[_Given, dict[str, Any]]:
    """The function, which keeps what it made by what it was given (lists as tuples): each time the caller gets a copy
    to do with as it likes."""

    @lru_cache(maxsize=_KEPT_SPECS)
    def text_of(*given: Any, **named: Any) -> str:
        return json.dumps(make(*given, **named))

    @wraps(make)
    def spec(*given: _Given.args, **named: _Given.kwargs) -> dict[str, Any]:
        return json.loads(text_of(*map(_hashable, given), **{name: _hashable(each) for name, each in named.items()}))

    return spec


def _hashable(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
