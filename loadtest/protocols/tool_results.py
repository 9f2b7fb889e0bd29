"""The canned results of tools, by the settings of a wire: a tool's own, else that of any tool."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

ANY_TOOL: Final = "*"  # the result for every tool that has none of its own


def result_of(results: Mapping[str, Any], name: str) -> Any:
    """Return the result of a tool, None if there is none."""
    return results.get(name, results.get(ANY_TOOL))


def result_text(result: Any) -> str:
    """Return a result for a wire that takes text: text as it is, anything else as JSON."""
    return result if isinstance(result, str) else orjson.dumps(result).decode()
