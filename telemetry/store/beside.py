"""What a wire brings beside the conversations: counted, so that nobody has to look for it."""

from dataclasses import dataclass
from typing import Final

from telemetry.model.formatting import count, number, turns
from telemetry.model.metrics import DEFINITIONS
from telemetry.model.semconv import CONTRADICTION_LABELS, Source


@dataclass(frozen=True, slots=True)
class Beside:
    """What arrived beside the conversations of the client turns: events of types that the protocol does not know (the
    names of the first few), events that the endpoint sent twice, and turns on which the service stated latencies of its
    own."""

    unknown: int = 0
    duplicates: int = 0
    turns_with_service_latency: int = 0
    unknown_names: tuple[str, ...] = ()


NOTHING_BESIDE: Final = Beside()


@dataclass(frozen=True, slots=True)
class ContradictedValue:
    """On how many turns of a source a metric was withheld because its value cannot be, and the cause."""

    source: Source
    metric: str
    cause: str
    turns: int

    @property
    def text(self) -> str:
        """The same for people."""
        metric = DEFINITIONS[self.metric].phrase if self.metric in DEFINITIONS else self.metric
        cause = CONTRADICTION_LABELS.get(self.cause, self.cause.replace("_", " "))
        whose = "heard" if self.source == "client" else "reported"
        return f"{number(self.turns)} × {metric}, {whose}: {cause}"


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Values that cannot be in the turns of a filter and in what services report of them, the commonest first; and the
    service's turns that late spans changed, with how many spans those were."""

    values: tuple[ContradictedValue, ...] = ()
    late_spans: int = 0
    revised_turns: int = 0

    @property
    def texts(self) -> dict[str, str]:
        """What there is of both in words, by a short name: the same in every report and on the page."""
        found: dict[str, str] = {}
        if total := sum(value.turns for value in self.values):
            causes = "; ".join(value.text for value in self.values)
            found["withheld"] = f"{count(total, 'impossible value')} ({causes})"
        if self.late_spans:
            revised = turns(self.revised_turns)
            found["late"] = f"{count(self.late_spans, 'span')} of services came late: {revised} judged anew"
        return found


NO_CONTRADICTIONS: Final = Contradictions()
