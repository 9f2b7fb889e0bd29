"""Progress of a run: its clock, the phase of a turn and the users that Locust gets, all under a simulated clock."""

from loadtest.scenario.file import parse_scenario
from loadtest.scenario.phases import LoadProfile, Phase, RunClock

SECOND = 1_000_000_000
PHASES = parse_scenario(
    """
    phases = [
        { name = "few", kind = "smoke", duration = 10, users = 4 },
        { name = "up", kind = "ramp", duration = 4, users = { to = 8 } },
        { name = "crowd", kind = "spike", duration = 10, users = 300 },
        { name = "after", kind = "recovery", duration = 10, users = 2 },
    ]
    """
).phases


def test_a_turn_has_the_phase_of_the_moment_at_which_it_began() -> None:
    clock = RunClock(PHASES)
    assert clock.phase_of(5) is None, "nothing has a phase before the start"
    clock.start(100 * SECOND)
    clock.start(900 * SECOND)
    phases = [clock.phase_of((100 + at) * SECOND) for at in (0, 9, 10, 14, 24, 33, 34, 60)]
    assert phases == [
        ("few", "smoke"),
        ("few", "smoke"),
        ("up", "ramp"),
        ("crowd", "spike"),
        ("after", "recovery"),
        ("after", "recovery"),
        ("after", "recovery"),
        ("after", "recovery"),
    ]


def test_turns_without_phases_are_ramp_until_all_callers_started() -> None:
    clock = RunClock()
    clock.expect_ramp_up()
    clock.start(0)
    assert clock.phase_of(3 * SECOND) == ("ramp-up", "ramp")
    clock.all_spawned(2 * SECOND)
    clock.all_spawned(7 * SECOND)
    assert clock.phase_of(1 * SECOND) == ("ramp-up", "ramp")
    assert clock.phase_of(2 * SECOND) == ("steady", "hold")
    assert clock.phase_of(8 * SECOND) == ("steady", "hold")


def test_callers_arriving_at_once_make_no_ramp() -> None:
    for expected in (False, True):
        clock = RunClock()
        if expected:
            clock.expect_ramp_up()
            clock.all_spawned(0)
        clock.start(SECOND)
        assert clock.phase_of(SECOND) == ("steady", "hold")


class _Locust:
    """Locust's loop: once a second it asks the shape, and obeys."""

    def __init__(self, phases: tuple[Phase, ...] = PHASES) -> None:
        self.load_profile = LoadProfile(phases)
        self.users = 0

    def at(self, run_s: float | None, *, obey: bool = True) -> tuple[int, float] | None:
        wanted = self.load_profile.tick(run_s, self.users)
        if wanted is not None and obey:
            self.users = wanted[0]
        return wanted


def test_the_first_callers_are_at_hand_before_the_start() -> None:
    locust = _Locust()
    assert [locust.at(None), locust.at(None), locust.at(0.2)] == [(4, 4.0)] * 3


def test_callers_follow_the_phases_and_end_with_them() -> None:
    locust = _Locust()
    locust.at(None)
    seen = [locust.at(second) for second in (1, 9, 11, 12, 13, 14, 15, 24, 33, 34)]
    assert seen == [
        (4, 4.0),
        (4, 4.0),
        (5, 1.0),
        (6, 1.0),
        (7, 1.0),
        (300, 100.0),
        (300, 100.0),
        (2, 100.0),
        (2, 100.0),
        None,
    ]


def test_ramp_from_zero_begins_with_one_caller_and_may_end_at_0() -> None:
    phases = parse_scenario('[[phases]]\nname="r"\nkind="ramp"\nduration=4\nusers={to=4}').phases
    phases += parse_scenario('[[phases]]\nname="d"\nkind="ramp"\nduration=4\nusers={from=4,to=0}').phases
    locust = _Locust(phases[:1])
    assert [locust.at(at) for at in (None, 0, 2)] == [(1, 1.0), (0, 1.0), (2, 2.0)]
    locust = _Locust(phases[1:])
    assert [locust.at(at) for at in (None, 3.9)] == [(4, 4.0), (0, 4.0)]


def test_locust_gets_next_number_only_after_callers_have_left() -> None:
    phases = parse_scenario(
        """
        phases = [
            { name = "full", kind = "hold", duration = 2, users = 9 },
            { name = "down", kind = "ramp", duration = 8, users = { to = 1 } },
        ]
        """
    ).phases
    locust = _Locust(phases)
    locust.at(None)
    assert locust.at(1) == (9, 9.0)
    assert locust.at(4, obey=False) == (7, 2.0), "two are asked to leave, and finish their turn first"
    assert locust.at(5, obey=False) == (7, 2.0)
    locust.users = 7
    assert locust.at(6) == (5, 2.0)
    assert locust.at(10) is None
