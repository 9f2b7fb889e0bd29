"""A method that is counted: which of a reader's questions a page asked."""

from typing import Any


def counted(name: str, method: Any, asked: list[str]) -> Any:
    """The method, which adds its name to `asked` each time."""

    def asking(*given: Any, **named: Any) -> Any:
        asked.append(name)
        return method(*given, **named)

    return asking
