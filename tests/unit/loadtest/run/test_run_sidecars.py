"""How a run waits until its store holds what the sidecar has acknowledged."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from loadtest.run import sidecars
from loadtest.run.sidecars import VISIBLE_S, Sidecar

PLACE = Sidecar("http://127.0.0.1:4318", Path("store"))
WAITING, NOTHING_WAITS = httpx.Response(200, json={"waiting_rows": 3}), httpx.Response(200, json={"waiting_rows": 0})
SLOW, GONE = httpx.ReadTimeout("timed out"), httpx.ConnectError("Connection refused")
STARTS_AGAIN = httpx.Response(503)


class Asked:
    """A sidecar that answers one after the other, the last for good, on a clock that moves with each question."""

    def __init__(self, answers: list[httpx.Response | Exception], answer_s: float) -> None:
        self._answers, self._answer_s = answers, answer_s
        self.asked, self.now_s = 0, 0.0

    def state(self, url: str) -> httpx.Response:
        assert url == PLACE.url
        self.now_s += self._answer_s
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


Ask = Callable[..., Asked]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Lets the sidecar of a run answer so."""

    def of(answers: list[httpx.Response | Exception], answer_s: float = 1.0) -> Asked:
        found = Asked(answers, answer_s)
        monkeypatch.setattr(sidecars, "_ask_state", found.state)
        monkeypatch.setattr(sidecars.time, "monotonic", lambda: found.now_s)
        monkeypatch.setattr(sidecars.time, "sleep", lambda _: None)
        return found

    return of


@pytest.mark.parametrize(
    ("answers", "is_there", "asked"),
    [
        ([NOTHING_WAITS], True, 1),
        ([WAITING, WAITING, NOTHING_WAITS], True, 3),
        ([SLOW, SLOW, WAITING, NOTHING_WAITS], True, 4),
        ([STARTS_AGAIN, NOTHING_WAITS], True, 2),
        ([GONE], False, 1),
        ([WAITING, SLOW, GONE], False, 3),
    ],
    ids=["at rest", "commits", "slow", "starts again", "gone", "killed"],
)
def test_a_run_waits_for_what_its_sidecar_has_acknowledged(
    asking: Ask, answers: list[httpx.Response | Exception], is_there: bool, asked: int
) -> None:
    sidecar = asking(answers)
    assert sidecars._commits(PLACE) is is_there
    assert sidecar.asked == asked


@pytest.mark.parametrize("answer", [WAITING, SLOW, STARTS_AGAIN])
def test_a_sidecar_that_never_commits_ends_the_wait(asking: Ask, answer: httpx.Response | Exception) -> None:
    sidecar = asking([answer], answer_s=5.0)
    assert sidecars._commits(PLACE)
    assert sidecar.now_s == VISIBLE_S
