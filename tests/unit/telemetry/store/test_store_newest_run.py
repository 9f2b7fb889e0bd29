"""The newest run is the one that was stored last, whatever the clocks of the senders say."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import ProcessInfo
from telemetry.store.questions.pages import ViewQuestion
from telemetry.store.questions.runs import RECENT_S, is_at_work, is_under_way, newest_run
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn

MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
_NUMBERS = count()


def turns(run_id: str, at_unix_ns: int, how_many: int = 3) -> list[Turn]:
    """Turns of a run, dated by its sender's clock."""
    source = "service" if run_id.startswith("service:") else "client"
    return [
        client_turn(
            next(_NUMBERS),
            run_id=run_id,
            source=source,
            call_id=f"{run_id}-{number}",
            started_unix_ns=at_unix_ns + number * SECOND,
            process_id="",
            sequence=None,
        )
        for number in range(how_many)
    ]


def service_turns(at_unix_ns: int) -> list[Turn]:
    """Turns that a service dates at this moment."""
    return turns(service_run_id("bot", at_unix_ns), at_unix_ns)


def stored(folder: Path, *commits: tuple[int, Sequence[Turn]]) -> Path:
    """A store to which turns came in this order: after so many minutes of its own clock each."""
    clock = [0]
    with StoreWriter(folder, unix_ns=lambda: clock[0]) as writer:
        for minute, some in commits:
            clock[0] = START_UNIX_NS + minute * MINUTE
            writer.append(Batch(turns=list(some)))
    return folder


def newest(folder: Path) -> str | None:
    with StoreReader(folder) as reader:
        newest_record = newest_run(reader.runs())
    return None if newest_record is None else newest_record.run_id


def test_service_turns_of_future_do_not_hide_run_of_callers(tmp_path: Path) -> None:
    callers, ahead = turns("run-1", START_UNIX_NS, 20), service_turns(START_UNIX_NS + 20 * MINUTE)
    assert newest(stored(tmp_path / "after", (1, callers), (2, ahead))) == "run-1"
    assert newest(stored(tmp_path / "before", (1, ahead), (2, callers))) == "run-1"


def test_callers_with_slow_clock_are_not_hidden_by_service(tmp_path: Path) -> None:
    callers, service = turns("run-1", START_UNIX_NS - 60 * MINUTE, 20), service_turns(START_UNIX_NS + MINUTE)
    assert newest(stored(tmp_path, (1, callers), (2, service))) == "run-1"


def test_run_stored_last_is_newest_of_two_caller_runs(tmp_path: Path) -> None:
    ahead, now = turns("tomorrow", START_UNIX_NS + DAY), turns("today", START_UNIX_NS)
    folder = stored(tmp_path, (1, ahead), (30, now))
    assert newest(folder) == "today"
    with StoreReader(folder) as reader:
        assert [run.run_id for run in reader.runs()] == ["today", "tomorrow"]
        assert [run.stored_unix_ns for run in reader.runs()] == [START_UNIX_NS + n * MINUTE for n in (30, 1)]


def test_service_reporting_long_after_callers_is_newest(tmp_path: Path) -> None:
    # Also where the service's clock is behind, so that its turns seem older than the callers'.
    service = service_turns(START_UNIX_NS - 5 * MINUTE)
    folder = stored(tmp_path, (1, turns("run-1", START_UNIX_NS)), (20, service))
    assert newest(folder) == service[0].run_id


def test_a_page_s_window_ends_with_what_has_come(tmp_path: Path) -> None:
    """Turns that a sender dates ahead do not move the window beyond all others."""
    day = service_run_id("bot", START_UNIX_NS)
    some = [*turns(day, START_UNIX_NS, 10), *turns(day, START_UNIX_NS + 20 * MINUTE)]
    with StoreReader(stored(tmp_path, (1, some))) as reader:
        page = reader.cache_page(ViewQuestion(window_ns=5 * MINUTE))
    assert page.summary is not None
    assert page.summary.turns.total == 13


def test_a_process_of_the_future_is_not_at_work() -> None:
    def seen(at_s: float) -> ProcessInfo:
        return ProcessInfo("p", "1 of 1", START_UNIX_NS, START_UNIX_NS + round(at_s * SECOND), False, 3, 1)

    assert is_at_work(seen(-RECENT_S), START_UNIX_NS)
    assert is_at_work(seen(1.0), START_UNIX_NS)  # clocks differ a little
    assert not is_under_way([seen(1200.0)], START_UNIX_NS)
    assert not is_under_way([seen(-RECENT_S - 1)], START_UNIX_NS)


def test_run_list_puts_run_of_future_where_it_was_stored(tmp_path: Path) -> None:
    ahead, callers = service_turns(START_UNIX_NS + 2 * DAY), turns("run-1", START_UNIX_NS + MINUTE)
    folder = stored(tmp_path, (0, ahead), (2, callers))
    listed = RunCatalog([str(folder)], default_objectives()).entries(now_unix_ns=START_UNIX_NS + 5 * MINUTE)
    assert [run.run_id for run in listed] == ["run-1", ahead[0].run_id]
