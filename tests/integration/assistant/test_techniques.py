"""`voiceprobe techniques` on engines of declared timing: a row shows what its technique is declared to save."""

from pathlib import Path

import pytest
from rich.console import Console

from corpora.manifest.library import BUNDLED
from loadtest.run.request import RunRequest, check
from loadtest.scenario.options import settings_from
from loadtest.scenario.sections import RunLoad
from loadtest.techniques.job import TechniquesRequest, techniques
from tests.declared_techniques import SCRIPTED, declared_technique

pytestmark = pytest.mark.nightly


def test_technique_shows_its_gain_and_kept_row_is_not_remeasured(tmp_path: Path) -> None:
    spoken = {"host": "ws://127.0.0.1:1/v1/realtime", "corpus": BUNDLED, "length": "short", "think": 0.05}
    checked = check(RunRequest(settings_from(spoken), RunLoad(users=1), None, tmp_path / "run", None))
    request = TechniquesRequest(checked, (declared_technique(250),), 0.5, 20.0, 20, SCRIPTED)
    rows, interrupted = techniques(request, Console(quiet=True))
    assert not interrupted
    (row,) = rows
    assert row["comparison"]["variants"][1]["decision"] == "faster"
    (difference,) = (
        difference
        for difference in row["comparison"]["variants"][1]["differences"]
        if (difference["metric"], difference["quantile"]) == ("voice_to_voice", 0.5)
    )
    assert difference["lower_ns"] <= -250e6 <= difference["upper_ns"]
    assert row["declared"] == "all stages"
    kept = (tmp_path / "run" / "declared-250" / "row.json").stat().st_mtime_ns
    again, _ = techniques(request, Console(quiet=True))
    assert again == rows
    assert (tmp_path / "run" / "declared-250" / "row.json").stat().st_mtime_ns == kept
