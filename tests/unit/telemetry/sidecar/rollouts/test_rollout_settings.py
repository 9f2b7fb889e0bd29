"""Settings of rollouts: plans by flag, variable and file, with all faults at once."""

import json
from pathlib import Path

import pytest

from telemetry.model.errors import ConfigError
from telemetry.sidecar.configuration import TABLES, options_of, read_configuration
from telemetry.sidecar.rollouts.settings import RolloutSetting
from telemetry.sidecar.settings import SidecarOptions
from tests.fixtures_rollouts import PLAN_FILE


def written(folder: Path, name: str, text: str = PLAN_FILE) -> str:
    file = folder / f"{name}.toml"
    cohorts = text.replace('name = "streaming"', f'name = "{name}"', 1).replace('= "streaming"', f'= "new-{name}"')
    file.write_text(cohorts.replace('"stable"', f'"old-{name}"'))
    return str(file)


def options(folder: Path, file: str = "", *, flags: list[str] | None = None, variable: str = "") -> SidecarOptions:
    config = folder / "sidecar.toml"
    config.write_text(f'store = "store"\n{file}')
    given = {"config": str(config), "rollout": flags}
    return options_of(read_configuration(given, {"VOICEPROBE_SIDECAR_ROLLOUT": variable}, TABLES))


def test_flag_precedes_variable_and_variable_precedes_file(tmp_path: Path) -> None:
    files = [written(tmp_path, name) for name in ("a", "b", "c", "d")]
    tables = '[[rollout]]\nplan_file = "a.toml"\nnext_stage = "on-promotion"\n'
    assert options(tmp_path, tables).rollouts == (RolloutSetting("a", files[0], "on-promotion"),)
    by_variable = options(tmp_path, tables, variable=f"{files[1]}:{files[2]}").rollouts
    assert [destination.name for destination in by_variable] == ["b", "c"]
    by_flag = options(tmp_path, tables, variable=files[1], flags=[files[3], files[2]]).rollouts
    assert by_flag == (RolloutSetting("d", files[3]), RolloutSetting("c", files[2]))
    assert options(tmp_path).rollouts == ()
    assert options(tmp_path, "rollout_every = 7\n").rollout_every == 7


def test_every_fault_of_every_plan_is_named_at_once(tmp_path: Path) -> None:
    good, bad = written(tmp_path, "a"), written(tmp_path, "b", PLAN_FILE.replace("share = 0.25", "share = 25"))
    named = written(
        tmp_path, "o", PLAN_FILE + '[[guardrails]]\ncheck = "objective"\nobjective = "nobody"\nmargin = 0.1\n'
    )
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    tables = [good, bad, named, str(tmp_path / "binary.toml"), str(tmp_path / "missing.toml"), str(tmp_path)]
    text = "".join(f"[[rollout]]\nplan_file = {json.dumps(file)}\n" for file in tables)
    text += '[[rollout]]\nplan = "a.toml"\nnext_stage = "soon"\n[[scrape]]\nname = 1\n'
    with pytest.raises(ConfigError) as caught:
        options(tmp_path, text)
    message = "\n".join(caught.value.faults)
    for expected in (
        f"{bad}: line 13, stages[1].share",
        "there is no objective 'nobody'",
        f"{tmp_path / 'binary.toml'}: is not UTF-8 text",
        f"{tmp_path / 'missing.toml'}: does not exist; name the plan",
        f"{tmp_path}: is not a file of at most 1 MiB; name the plan",
        "[[rollout]] 7: 'plan' is not a known key; known are plan_file, next_stage",
        "[[rollout]] 7: plan_file: the path of a plan is expected",
        "next_stage is 'soon'; write on-request or on-promotion",
        "name: a short name in small letters is expected",
    ):
        assert expected in message, message


def test_two_plans_of_one_name_or_over_one_cohort_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(PLAN_FILE)
    (tmp_path / "two.toml").write_text(PLAN_FILE.replace('name = "streaming"', 'name = "two"', 1))
    (tmp_path / "copy.toml").write_text(PLAN_FILE)
    with pytest.raises(ConfigError) as caught:
        options(tmp_path, flags=[str(tmp_path / "one.toml"), str(tmp_path / "two.toml")])
    assert caught.value.faults == [
        "the plans streaming and two are both about the cohort streaming; end one of them, or give it another cohort",
        "the plans streaming and two share the control stable, and one takes all callers; "
        "state control_share in its stages",
    ]
    with pytest.raises(ConfigError, match="two plans have the name streaming"):
        options(tmp_path, flags=[str(tmp_path / "one.toml"), str(tmp_path / "copy.toml")])


def test_a_thousand_plans_are_refused_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        options(tmp_path, flags=[written(tmp_path, f"p{number}") for number in range(1000)])
    assert caught.value.faults == ["1000 plans are given; a sidecar evaluates 50 at most, so end some of them"]
