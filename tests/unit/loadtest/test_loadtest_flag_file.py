"""The file of flags: who gets which variant, and what a change of a share leaves as it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext

from loadtest.flag_file import Split, encode_flags, flag_of, read_flags, share_of, unknown_variants, with_split
from telemetry.model.errors import ConfigError


def document(targeting: object = None, **flag: Any) -> dict[str, Any]:
    voice = {"state": "ENABLED", "variants": {"stable": "s", "streaming": "t"}, "defaultVariant": "stable", **flag}
    if targeting is not None:
        voice["targeting"] = targeting
    return {"$schema": "https://flagd.dev/schema/v0/flags.json", "flags": {"voice": voice, "other": {"kept": [1]}}}


def split(share: float, control_share: float | None = None) -> Split:
    return Split("stable", "streaming", 1 - share if control_share is None else control_share, share)


def assigned(found: dict[str, Any], callers: int = 2000) -> list[str | None]:
    """Who gets what, by the evaluator that flagd's provider uses."""
    core = FlagdCore()
    core.set_flags(encode_flags({**found, "flags": {"voice": found["flags"]["voice"]}}).decode())
    return [
        core.resolve_string_value("voice", "", EvaluationContext(targeting_key=f"caller-{number}")).variant
        for number in range(callers)
    ]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 1.0])
def test_the_evaluator_gives_the_share_that_was_written(share: float) -> None:
    found = with_split(document(), "voice", split(share), "flags.json")
    assert share_of(flag_of(found, "voice", "flags.json"), "streaming") == pytest.approx(share)
    assert assigned(found).count("streaming") / 2000 == pytest.approx(share, abs=0.02)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_caller_that_has_the_candidate_keeps_it_while_the_share_grows(one: float, other: float) -> None:
    low, high = sorted((one, other))
    before = assigned(with_split(document(), "voice", split(low), "f"), 200)
    after = assigned(with_split(document(), "voice", split(high), "f"), 200)
    assert all(later == "streaming" for first, later in zip(before, after, strict=True) if first == "streaming")


def test_everything_else_stays_as_it_is() -> None:
    targeting = {
        "if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "streaming", {"fractional": [["stable", 1]]}]
    }
    before = document(targeting, metadata={"team": "voice"})
    kept = json.dumps(before)
    after = with_split(before, "voice", split(0.05), "flags.json")
    assert json.dumps(before) == kept  # the given document is not changed
    rule = after["flags"]["voice"]["targeting"]["if"]
    assert rule[2] == {"fractional": [["stable", 95], ["streaming", 5]]}
    rule[2] = {"fractional": [["stable", 1]]}
    assert after == before


def test_other_variants_keep_their_proportion_and_their_callers() -> None:
    variants = {"stable": "s", "streaming": "t", "local": "l"}
    rule = {"fractional": [{"var": "user"}, ["stable", 90], ["streaming", 2], ["local", 8]]}
    before = document(rule, variants=variants)
    after = with_split(before, "voice", split(0.05, 0.87), "flags.json")
    assert after["flags"]["voice"]["targeting"]["fractional"] == [
        {"var": "user"},
        ["stable", 87],
        ["streaming", 5],
        ["local", 8],
    ]
    del before["flags"]["voice"]["targeting"]["fractional"][0], after["flags"]["voice"]["targeting"]["fractional"][0]
    kept = [(one, other) for one, other in zip(assigned(before), assigned(after), strict=True) if one == "local"]
    assert kept
    assert all(other == "local" for _, other in kept)


def test_a_new_variant_is_put_beside_the_control() -> None:
    rule = {"fractional": [["stable", 90], ["local", 10]]}
    found = with_split(
        document(rule, variants={"stable": "s", "streaming": "t", "local": "l"}), "voice", split(0.05, 0.85), "f"
    )
    names = [name for name, _ in found["flags"]["voice"]["targeting"]["fractional"]]
    assert names == ["stable", "streaming", "local"]


def test_a_share_of_a_tenth_of_a_percent_is_exact() -> None:
    found = with_split(document(), "voice", split(0.001), "f")
    assert found["flags"]["voice"]["targeting"]["fractional"] == [["stable", 999], ["streaming", 1]]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (document(state="DISABLED"), "state is DISABLED"),
        (document({"if": [True, "stable"]}), "has no fractional"),
        (
            document({"if": [{"fractional": [["stable", 1]]}, {"fractional": [["stable", 1]]}]}),
            "has several fractional",
        ),
        (document(variants={"stable": "s", "streamed": "t"}), "did you mean streamed?"),
    ],
)
def test_what_cannot_take_a_share_is_refused(found: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        with_split(found, "voice", split(0.05), "flags.json")


def test_a_plan_that_leaves_callers_to_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leaves 0\.1 of the callers to other variants, and it has none"):
        with_split(document(), "voice", split(0.05, 0.85), "flags.json")


@pytest.mark.parametrize("content", [b"", b'{"flags": {"voi', b"[]", b"\xff\xfe", b'{"flags": 7}'])
def test_what_is_not_a_file_of_flags_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="flagd's"):
        read_flags(content, "flags.json")


def test_a_flag_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="has no flag 'voices'; did you mean voice"):
        flag_of(document(), "voices", "flags.json")
    with pytest.raises(ConfigError, match=r"variants is missing"):
        flag_of({"flags": {"voice": {"state": "ENABLED"}}}, "voice", "flags.json")


def test_variants_without_settings_are_named() -> None:
    assert unknown_variants(document()["flags"]["voice"], "voice", {"stable"}) == [
        "flags.voice.variants has 'streaming', which has no settings; known are stable"
    ]
