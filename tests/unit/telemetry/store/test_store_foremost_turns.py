"""The first turns of an order are those of all turns, sorted, whatever came and was merged since they were asked."""

import random
from pathlib import Path

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.store import foremost_turns
from telemetry.store.answers import Filter
from telemetry.store.compaction import Compactor
from telemetry.store.compaction_plan import MergeLimits
from telemetry.store.foremost_turns import ORDERS
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.turn_pages import OUTLIERS, ListedTurn, TurnsQuestion
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, START_UNIX_NS, client_turn

LISTED = 7


def sorted_plainly(turns: list[Turn], order: str) -> list[Turn]:
    sign = -1 if order in ("slowest", "newest") else 1

    def place(turn: Turn) -> tuple[float, int, str]:
        value = turn.started_unix_ns if order in ("newest", "oldest") else turn.first_audio_perf_ns
        if value is None:
            return float("inf"), turn.started_unix_ns, turn.span_id
        if order in ("slowest", "fastest"):
            value -= turn.speech_end_perf_ns or 0
        return sign * value, turn.started_unix_ns, turn.span_id

    return sorted(turns, key=place)


def names(turns: list[Turn] | tuple[ListedTurn, ...]) -> list[tuple[str, int]]:
    return [(turn.trace_id, turn.turn_index) for turn in turns]


@pytest.mark.slow
@pytest.mark.parametrize(("fewest_rows", "most_pieces"), [(1, 24), (12, 1), (10_000, 24), (10_000, 0)])
def test_the_first_turns_are_those_of_all_turns_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewest_rows: int, most_pieces: int
) -> None:
    monkeypatch.setattr(foremost_turns, "_FEWEST_ROWS", fewest_rows)
    monkeypatch.setattr(foremost_turns, "_MOST_PIECES", most_pieces)
    dice = random.Random(fewest_rows + most_pieces)
    orders = list(enumerate(dice.sample(list(ORDERS), 2)))  # on the first page by the one, on the second by the other
    written: list[Turn] = []
    with (
        StoreWriter(tmp_path) as writer,
        StoreReader(tmp_path, wall_clock_ns=lambda: START_UNIX_NS) as reader,
    ):
        for batch in range(5):
            turns: list[Turn] = []
            for number in range(batch * 20, batch * 20 + dice.randrange(1, 20)):
                turn = client_turn(number, voice_to_voice_ms=dice.choice((300.0, 500.0, 900.0, 900.5)))
                changes: dict[str, object] = {"run_id": dice.choice(("run-1", "run-1", "run-2"))}
                changes["started_unix_ns"] = START_UNIX_NS + dice.randrange(50) * MS  # many begin at one moment
                if dice.random() < 0.2:
                    changes["first_audio_perf_ns"] = None
                if dice.random() < 0.2:
                    changes["outcome"] = "invalid"
                turns.append(msgspec.structs.replace(turn, **changes))
            writer.append(Batch(turns))
            written += turns
            if dice.random() < 0.4:
                Compactor(writer, limits=MergeLimits(fan_in=2, rows=400)).run_once()
            mine = [turn for turn in written if turn.run_id == "run-1"]
            for page, order in orders:
                asked = TurnsQuestion(Filter("run-1"), order=order, page=page, page_size=LISTED)
                expected = sorted_plainly(mine, order)[page * LISTED : (page + 1) * LISTED]
                if expected:
                    assert names(reader.turns_page(asked).turns) == names(expected)
            valid = [turn for turn in mine if turn.outcome != "invalid"]
            assert names(reader.turns_page(TurnsQuestion(Filter("run-1"))).outliers) == names(
                sorted_plainly(valid, "slowest")[:OUTLIERS]
            )
