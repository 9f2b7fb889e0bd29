"""The alias table: the one that is shipped, and how a broken one is refused."""

import pytest

from telemetry.model.errors import ConfigError
from telemetry.sidecar.adapters.alias_table import Framework, frameworks, parse_alias_table
from telemetry.sidecar.adapters.span_roles import span_role
from telemetry.store.schema import span_from_row, spans_table
from telemetry.store.table_redaction import table_without_text

from .made_spans import span
from .recorded_spans import FOLDER, recorded_files, recorded_spans

GOOD = """
[[framework]]
name = "one"
title = "One"
versions = "1.x"
recorded = []
scopes = ["one"]
turns = "nested"
enable = "it"
[framework.spans]
turn = "turn"
[[framework.reads]]
column = "voice_to_voice"
span = "turn"
attributes = ["latency"]
unit = "s"
"""

TEXTS = ("call_id", "model", "transcript_events")  # columns that are text


def test_a_table_is_read() -> None:
    (framework,) = parse_alias_table(GOOD, "table")
    assert (framework.name, framework.spans, framework.reads[0].unit) == ("one", {"turn": "turn"}, "s")


def test_every_fault_is_reported_at_once() -> None:
    broken = (
        GOOD.replace('"nested"', '"side by side"').replace('unit = "s"', "").replace('span = "turn"', 'span = "tea"')
    )
    broken += '[framework.moments]\nspeech_stop = ["asr.middle"]\n[framework.withheld]\nwarmth = "cold"\n'
    with pytest.raises(ConfigError) as caught:
        parse_alias_table(broken + GOOD, "table.toml")
    assert caught.value.where == "table.toml"
    for part in (
        "turns is 'side by side'",
        "framework[0].reads[0].span is 'tea'",
        "moments.speech_stop",
        "'asr.middle'",
    ):
        assert part in str(caught.value), caught.value
    assert "withheld.warmth is no metric" in str(caught.value)
    assert len(caught.value.faults) >= 5


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('unit = "s"', "", "is missing; a latency has the unit s, ms or ns"),
        ('"voice_to_voice"', '"model"', "but model is no latency; leave it out"),
        ('span = "turn"', 'span = "tts"', "is 'tts', but spans has none of these"),
        ('attributes = ["latency"]', "attributes = []", "a list of names of attributes is expected"),
        ('column = "voice_to_voice"', 'column = "wer"', "a column of a turn is expected"),
        ("[[framework]]", "[[frameworks]]", "did you mean framework?"),
        ("[[framework]]", "[[framework]", "is not TOML"),
    ],
)
def test_a_fault_says_where_and_how_to_mend_it(old: str, new: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        parse_alias_table(GOOD.replace(old, new, 1), "table")


def test_two_frameworks_have_two_names() -> None:
    with pytest.raises(ConfigError, match="as of another framework"):
        parse_alias_table(GOOD + GOOD, "table")


@pytest.mark.parametrize("framework", frameworks(), ids=lambda framework: framework.name)
def test_what_is_read_of_a_framework_is_stored(framework: Framework) -> None:
    """Text is stored only under names that are known to be labels: any other would never reach an adapter."""
    texts = {"feature_flag.result.variant", "voice.run_id", "error.type"}
    texts |= {name for each in framework.reads if each.column in TEXTS for name in each.attributes}
    texts |= {name.partition("#")[0] for each in framework.reads for name in each.attributes if "#" in name}
    texts |= {framework.same_turn} if framework.same_turn is not None else set()
    sent = span(
        "any", 1, attributes=dict.fromkeys(texts, "a label"), scope_name=framework.scopes[0].replace("*", "any")
    )
    (row,) = table_without_text("spans", spans_table([sent])).to_pylist()
    assert span_from_row(row).attributes.keys() == texts


def test_every_recording_belongs_to_a_framework() -> None:
    stated = {name for framework in frameworks() for name in framework.recorded}
    assert stated == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", recorded_files())
def test_every_recorded_span_is_known(name: str) -> None:
    for each in recorded_spans(name):
        found = span_role(each.scope_name, each.name)
        assert found is not None, (each.scope_name, each.name)
        if found.family != "genai":
            assert found.framework is not None
            assert name.partition("/")[0] in found.framework.recorded
