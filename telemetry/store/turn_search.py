"""Which turns a search means: by id, utterance, outcome, model, latency, and words where they were kept."""

from dataclasses import dataclass
from pathlib import Path

from telemetry.store.queries import Condition
from telemetry.store.recordings.texts import calls_with_words

# Nobody types more, and a statement has room for it.
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class TurnSearch:
    """What is asked of turns beside a filter; latencies of the metric in ns and moments at which turns began, each from
    the first to below the second."""

    text: str = ""
    outcome: str | None = None
    model: str | None = None
    from_ns: int | None = None
    below_ns: int | None = None
    since_unix_ns: int | None = None
    until_unix_ns: int | None = None

    @property
    def is_any(self) -> bool:
        """Whether it leaves out no turn."""
        return self == TurnSearch()


@dataclass(frozen=True, slots=True)
class FoundWords:
    """In how many kept calls words were looked for, and whether there were more than could be."""

    calls: int = 0
    is_all: bool = True


def search_condition(
    search: TurnSearch, column: str, store: Path | None, run_id: str | None, now_unix_ns: int
) -> tuple[Condition, FoundWords]:
    """What a search asks of a turn. Words are looked for in the transcripts of the store and in the texts that were
    kept beside it."""
    where = Condition("TRUE")
    if search.since_unix_ns is not None:
        where &= Condition("started_unix_ns >= ?", (search.since_unix_ns,))
    if search.until_unix_ns is not None:
        where &= Condition("started_unix_ns < ?", (search.until_unix_ns,))
    if search.outcome is not None:
        where &= Condition("outcome = ?", (search.outcome,))
    if search.model is not None:
        where &= Condition("model = ?", (search.model,))
    if search.from_ns is not None:
        where &= Condition(f"{column} >= ?", (search.from_ns,))
    if search.below_ns is not None:
        where &= Condition(f"{column} < ?", (search.below_ns,))
    text = search.text.strip()[:MOST_CHARS]
    if not text:
        return where, FoundWords()
    found, looked, is_all = [], 0, True
    if store is not None and run_id is not None:
        found, looked, is_all = calls_with_words(store, run_id, text, now_unix_ns)
    by_text = Condition(
        "starts_with(lower(trace_id), lower(?)) OR starts_with(lower(call_id), lower(?)) "
        "OR contains(lower(utterance_id), lower(?)) OR contains(lower(transcript_pii), lower(?))",
        (text,) * 4,
    )
    if found:
        by_text = Condition(
            f"({by_text.sql}) OR (call_id, turn_index) IN (SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]))",
            (*by_text.values, [call for call, _ in found], [index for _, index in found]),
        )
    return where & by_text, FoundWords(looked, is_all)
