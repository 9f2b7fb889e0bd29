"""A sidecar that is killed between a verdict and the row that keeps it: nothing is lost, and nothing begins twice."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from telemetry.sidecar.rollouts import rollout_log
from tests.fixtures_rollouts import read_rollouts
from tests.unit.telemetry.sidecar.rollouts.test_rollout_evaluation import Sidecar


class KilledError(BaseException):
    """kill -9: nothing below it is carried out."""


def killed_at(place: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A promotion that begins the next stage, killed before or after a row is committed; whether it came that far."""
    folder.mkdir()
    sidecar = Sidecar(folder)
    sidecar.start(next_stage="on-promotion")
    steps, real = itertools.count(1), rollout_log.keep_row

    def dies(store: Path, row: Any) -> None:
        # Before the commit at every odd place, after it at every even one.
        at = next(steps) * 2
        if at - 1 == place:
            raise KilledError
        real(store, row)
        if at == place:
            raise KilledError

    was_killed = False
    with monkeypatch.context() as patched:
        patched.setattr(rollout_log, "keep_row", dies)
        try:
            sidecar.look()
        except KilledError:
            was_killed = True
    kept = [entry for record in read_rollouts(sidecar.store) for entry in record.entries]
    sidecar.start(next_stage="on-promotion")  # another process
    state = sidecar.look()
    assert (state.stage, state.decision, state.is_kept) == ("half", "hold", True)
    (record,) = read_rollouts(sidecar.store)
    assert list(record.entries[: len(kept)]) == kept
    begun = [entry.stage for entry in record.entries[1:] if entry.verdict is None]
    assert begun == ["half"]
    # The stage that began last was promoted by the verdict before it, and by no later one.
    place_of_begin = next(number for number, entry in enumerate(record.entries[1:], 1) if entry.verdict is None)
    assert record.entries[place_of_begin - 1].decision == "promote"
    assert all(entry.decision == "hold" for entry in record.entries[place_of_begin + 1 :])
    sidecar.stop()
    return was_killed


@pytest.mark.slow
def test_killed_at_every_write_of_a_promotion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = itertools.takewhile(lambda place: killed_at(place, tmp_path / str(place), monkeypatch), itertools.count(1))
    assert len(list(places)) == 8  # the plan, the promotion, the next stage, and its first look
