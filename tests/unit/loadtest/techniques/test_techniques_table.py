"""The techniques are options that the assistant has, and their table shows what was measured and what was not."""

from typing import Any

import pytest
from rich.console import Console

from loadtest.cli.guard import guarded
from loadtest.cli.main import app
from loadtest.exit_codes import ExitCode
from loadtest.targets.assistant.config import AssistantConfig, build_config
from loadtest.techniques.catalog import COMMON, TECHNIQUES, named
from loadtest.techniques.job import exit_code
from loadtest.techniques.view import techniques_table
from tests.declared_techniques import SCRIPTED, declared_technique


def configured(flags: tuple[str, ...]) -> AssistantConfig:
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return build_config({name.removeprefix("--").replace("-", "_"): value for name, value in pairs})


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda each: each.name)
def test_a_technique_changes_one_option_and_nothing_else(technique: Any) -> None:
    off, on = (configured((*COMMON, *flags)) for flags in (technique.off, technique.on))
    changed = {name for name in AssistantConfig.model_fields if getattr(off, name) != getattr(on, name)}
    # A cache is its place, its lifetime and its own delay.
    assert len(changed - {"cache_ttl", "cache_delay"}) == (0 if technique.name == "no-op" else 1), changed
    assert configured(COMMON).needs_models


def test_a_declared_technique_saves_what_it_declares() -> None:
    for saves_ms in (150.0, -40.0):
        technique = declared_technique(saves_ms)
        off, on = (configured((*SCRIPTED, *flags)).llm_ttft for flags in (technique.off, technique.on))
        assert off is not None
        assert on is not None
        assert off.first - on.first == saves_ms * 1e6


def test_techniques_are_chosen_by_name_or_by_speed() -> None:
    assert [each.name for each in named("fallback, streaming", quick=False)] == ["fallback", "streaming"]
    assert len(named(None, quick=True)) == 4
    assert named(None, quick=False) == TECHNIQUES
    with pytest.raises(KeyError, match="magic"):
        named("magic", quick=False)


def row(name: str, difference_ms: tuple[float, float, float] | None) -> dict[str, Any]:
    value, lower, upper = (each * 1e6 for each in difference_ms) if difference_ms else (None, None, None)
    found = {"metric": "voice_to_voice", "quantile": 0.5, "difference_ns": value, "lower_ns": lower, "upper_ns": upper}
    decision = "undecided" if difference_ms is None else "faster"
    variants = [{"word_error_rate": 0.1}, {"word_error_rate": None, "decision": decision, "differences": [found]}]
    return {
        "title": name,
        "hit_rate": 0.5,
        "real": "LLM",
        "comparison": {"pairs": 20, "variants": variants},
    }


def test_table_shows_intervals_as_lines_and_missing_figures_as_too_few() -> None:
    console = Console(width=220, record=True)
    console.print(techniques_table([row("faster", (-200, -300, -100)), row("none", None)]))
    faster, none = (line for line in console.export_text().splitlines() if "faster" in line or "none" in line)
    assert "−200 (−300 to −100)" in faster
    assert "too few" in faster  # of the p95 and p99
    assert "●" in faster
    assert "10 % / –" in faster
    assert none.count("too few") == 3
    assert "●" not in none


def test_an_undecided_row_decides_the_exit_code() -> None:
    assert exit_code([row("a", (-2, -3, -1))], interrupted=False) == ExitCode.OK
    assert exit_code([row("a", None)], interrupted=False) == ExitCode.UNDECIDED
    assert exit_code([], interrupted=True) == ExitCode.INTERRUPTED


def test_all_faults_of_the_command_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["techniques", "--only", "magic", "--pairs", "3", "--smallest", "0"]
    assert guarded(lambda: app(command)) == ExitCode.USAGE
    error = capsys.readouterr().err
    for part in ("--only 'magic' is not a technique", "--pairs 3 is too few", "--smallest 0 is too small"):
        assert part in error
