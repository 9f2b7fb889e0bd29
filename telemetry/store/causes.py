"""Why turns failed and what endpoints asked for then: the shapes in which the store answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Eligible turns that did not end well for one cause; `kind` None where it was not recorded. `example` is what was
    recorded of the newest of them."""

    kind: str | None
    code: str | None
    turns: int
    example: str | None


@dataclass(frozen=True, slots=True)
class RemarkCount:
    """Eligible turns that ended well and of which the endpoint said something all the same."""

    remark: str
    turns: int


@dataclass(frozen=True, slots=True)
class Retries:
    """Waits before the next call: how often an endpoint asked for one, and how often a caller waited because of that
    and then called again."""

    asked: int = 0
    asked_worst_ns: int | None = None
    waits: int = 0
    waited_ns: int = 0
