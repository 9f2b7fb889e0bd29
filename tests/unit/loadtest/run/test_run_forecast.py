"""Forecast of a run's turns, against sums by hand and callers simulated one by one."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.run.forecast import CONNECT_S, REPLY_S, Forecast, Load, calls_needed, forecast, needs, sentence
from loadtest.scenario.file import load_scenario
from loadtest.scenario.settings import SwarmSettings
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives

FAST = Objective("fast", "metric", 0.95, metric="voice_to_voice", threshold=800e6)
GOOD = Objective("good", "outcome", 0.99, outcomes=("ok",))
CONNECT = Objective("connect", "metric", 0.95, metric="connect", threshold=1e9)
SETTINGS = SwarmSettings(host="ws://127.0.0.1:9/v1/realtime")  # 4 turns a call, a pause of 1 s in the mean
SPEECH_S = 3.0


def _acted_out(users: int, run_time_s: float, turns: int) -> int:
    """Count the turns when each caller calls again and again, second by second."""
    ended = 0
    for _ in range(users):
        now_s, in_call = CONNECT_S, 0
        while now_s + 1.0 + SPEECH_S + REPLY_S <= run_time_s:
            now_s += 1.0 + SPEECH_S + REPLY_S
            ended, in_call = ended + 1, in_call + 1
            if in_call == turns:
                now_s, in_call = now_s + CONNECT_S, 0
    return ended


@pytest.mark.parametrize(("users", "run_time_s"), [(1, 60.0), (5, 60.0), (12, 600.0), (100, 45.0)])
def test_callers_for_a_time(users: int, run_time_s: float) -> None:
    estimate = forecast(SETTINGS, Load(users, run_time_s, SPEECH_S))
    assert estimate.turns == pytest.approx(_acted_out(users, run_time_s, 4), abs=users)


def test_calls_bound_a_run_and_silent_turns_do_not_count() -> None:
    settings = SETTINGS.replaced(calls=10)
    assert forecast(settings, Load(5, None, SPEECH_S)) == Forecast(40, 10)
    assert forecast(settings, Load(5, 3600.0, SPEECH_S)) == Forecast(40, 10)
    assert (forecast(settings, Load(1, 60.0, SPEECH_S)).turns or 0) < 9
    assert forecast(settings.replaced(silence=0.5), Load(5, None, SPEECH_S)) == Forecast(20, 10)


def test_calls_by_a_rate_and_phases(tmp_path: Path) -> None:
    assert forecast(SETTINGS.replaced(arrivals="constant", rate=0.5), Load(1, 60.0, SPEECH_S)) == Forecast(120, 30)
    file = tmp_path / "scenario.toml"
    file.write_text(
        '[[phases]]\nname = "up"\nkind = "ramp"\nduration = "1m"\nusers = { from = 1, to = 10 }\n'
        '[[phases]]\nname = "flat"\nkind = "hold"\nduration = "2m"\nusers = 10\n'
    )
    settings = SETTINGS.replaced(scenario=load_scenario(file))
    # No figures are taken over a ramp.
    assert forecast(settings, Load(10, 180.0, SPEECH_S)) == forecast(SETTINGS, Load(10, 120.0, SPEECH_S))


def test_nothing_is_forecast_without_end_or_with_scripts() -> None:
    assert forecast(SETTINGS, Load(5, None, SPEECH_S)) == Forecast(None, None)
    assert sentence(SETTINGS.replaced(conversations=True), Load(5, 60.0, SPEECH_S), [GOOD]) is None


def test_turns_needed_follow_from_objectives() -> None:
    assert needs([FAST, GOOD, CONNECT], "turns").most == 100
    assert needs([FAST, CONNECT], "turns").most == 20
    assert needs([CONNECT], "calls").most == 20
    assert needs([], "turns").most == 0
    assert needs([replace(GOOD, cohort="b")], "turns").most == 0


def test_calls_enough_for_every_objective() -> None:
    assert calls_needed([GOOD], SETTINGS, 5) == 28  # 110 turns
    assert calls_needed([GOOD], SETTINGS.replaced(turns=50), 5) == 5
    assert calls_needed([GOOD, CONNECT], SETTINGS.replaced(turns=50), 5) == 22
    assert calls_needed([], SETTINGS, 5) == 5


def test_the_sentence_says_what_to_ask_for() -> None:
    short = Load(1, 60.0, SPEECH_S)
    objectives = default_objectives()
    assert sentence(SETTINGS, short, objectives) == (
        "about 7 turns expected, the 99 % objective needs 100; try --users 16, or --run-time 16m"
    )
    enough = replace(short, users=16)
    assert sentence(SETTINGS, enough, objectives) == "about 119 turns expected"
    longer = replace(short, run_time_s=960.0)
    assert sentence(SETTINGS, longer, objectives) == "about 119 turns expected"
    assert sentence(SETTINGS.replaced(calls=2), Load(1, None, SPEECH_S), objectives) == (
        "about 8 turns expected, the 99 % objective needs 100; try --calls 28"
    )
    assert sentence(SETTINGS.replaced(arrivals="poisson", rate=0.1), short, objectives) == (
        "about 24 turns expected, the 99 % objective needs 100; try --run-time 5m"
    )
