"""Why a run says nothing about the service: each reason, and what outranks it."""

import pytest

from telemetry.store.answers import ProcessInfo, StartCounts
from telemetry.store.questions.runs import calls_in_flight_now, calls_not_begun, generator_limit

S = 1_000_000_000
NOW = 1_000 * S


def process(worker: int, *, ended: bool = True, seen_s: int = 900, calls: int | None = None) -> ProcessInfo:
    return ProcessInfo(f"p{worker}", str(worker), 100 * S, seen_s * S, ended, 10, calls, 0.2)


BOTH = (process(1), process(2))


@pytest.mark.parametrize(
    ("known", "asked", "reason"),
    [
        (BOTH, 2, None),
        (BOTH, 3, "1 of 3 generator processes was lost; the load was not what"),
        (
            (process(1), process(2, ended=False, calls=4)),
            None,
            "1 of 2 generator processes was lost after 800 s: of its 4 calls in flight only the finished turns count",
        ),
        ((process(1), process(2, ended=False, seen_s=980)), 3, None),
        ((), None, "1 of 1 generator process was lost"),
    ],
)
def test_each_reason_has_its_sentence(known: tuple[ProcessInfo, ...], asked: int | None, reason: str | None) -> None:
    limit = generator_limit(known, asked, NOW)
    assert (limit is None) == (reason is None)
    if limit is not None and reason is not None:
        assert limit.reason.startswith(reason)


@pytest.mark.parametrize(
    ("dropped", "text"),
    [(0, None), (1, "1 of 200 calls that were due never began"), (10, "10 of 200 calls that were due never began")],
)
def test_every_call_that_never_began_is_named(dropped: int, text: str | None) -> None:
    assert calls_not_begun(StartCounts(planned=200, started=200 - dropped, late=0, dropped=dropped)) == text
    assert calls_not_begun(None) is None


def reporting(calls: int | None, at_s: int = 0, *, seen_s: int = 900, ended: bool = False) -> ProcessInfo:
    reported = None if calls is None else at_s * S
    return ProcessInfo("p", "1", 100 * S, seen_s * S, ended, 10, calls, 0.2, calls_reported_unix_ns=reported)


@pytest.mark.parametrize(
    ("known", "calls"),
    [
        ((), None),
        ((reporting(3, 899), reporting(4, 900)), 7),
        ((reporting(3, 899), reporting(0, 900, ended=True)), 3),
        ((reporting(5, 900, ended=True),), 0),
        ((reporting(3, 899), reporting(None)), None),
        ((reporting(0, 110, seen_s=117),), None),  # its first report, before the turns that came since
    ],
)
def test_the_calls_in_flight_are_those_of_the_newest_reports(known: tuple[ProcessInfo, ...], calls: int | None) -> None:
    assert calls_in_flight_now(known) == calls
