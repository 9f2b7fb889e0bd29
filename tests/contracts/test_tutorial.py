"""What the tutorial says of its first run against one's own endpoint: what that run shows, and what it cannot show."""

import re
import shlex

from loadtest.exit_codes import ExitCode
from loadtest.run.forecast import Load, forecast, needs
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.objectives.slo import default_objectives
from tests.contracts.documents import DOCS

SHORTEST_SPEECH_S = 1.0  # with it a call has the most turns


def test_the_first_run_against_ones_own_endpoint_says_that_it_judges_nothing() -> None:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    command = re.search(r"^\./voiceprobe run (.+--users 1 .+)$", text, re.MULTILINE)
    assert command is not None
    arguments = shlex.split(command[1])
    asked = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    load = Load(int(asked["--users"]), Duration.parse(asked["--run-time"]).seconds, SHORTEST_SPEECH_S)
    expected = forecast(SwarmSettings(), load).turns
    needed = needs(default_objectives(), "turns").most
    assert expected is not None
    assert expected < 20 < needed == 100, "the run that the tutorial warns of is too short for every objective"
    after = text[command.end() : text.index("Now add load")]
    for word in ("too few", "undecided", f"exit code {int(ExitCode.UNDECIDED)}", "20 turns", "100", "charges"):
        assert word in after, word
