"""The alias table: whether it names what there is, and the recordings of what it says."""

import pytest

from telemetry.model.metrics import METRICS, TIMESTAMPS
from telemetry.sidecar.adapters.frameworks import Framework, frameworks, span_role
from telemetry.store.redaction import table_without_text
from telemetry.store.schema import span_from_row, spans_table

from .made_spans import span
from .recorded_spans import FOLDER, recorded_files, recorded_spans

TEXTS = ("call_id", "model", "transcript_events")  # columns that are text


LATENCIES = {"voice_to_voice", "endpointing", "asr_final_latency", "asr_final", "llm_first_token", "tts_first_chunk"}


def test_every_framework_has_a_name_of_its_own() -> None:
    names = [framework.name for framework in frameworks()]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("framework", frameworks(), ids=lambda framework: framework.name)
def test_the_table_names_what_there_is(framework: Framework) -> None:
    roles = {*framework.spans.values()}
    places = {f"{role}.{end}" for role in roles for end in ("start", "end")}
    assert TIMESTAMPS.keys() >= framework.moments.keys()
    assert {place for moment in framework.moments.values() for place in moment} <= places
    assert METRICS.keys() >= framework.withheld.keys()
    assert framework.scopes
    for read in framework.reads:
        assert read.span in roles
        assert read.attributes
        assert (read.unit is not None) == (read.column in LATENCIES), read


@pytest.mark.parametrize("framework", frameworks(), ids=lambda framework: framework.name)
def test_attributes_read_from_a_framework_are_stored(framework: Framework) -> None:
    """Text is stored only under names that are known to be labels: any other would never reach an adapter."""
    texts = {"feature_flag.result.variant", "voice.run_id", "error.type"}
    texts |= {name for read in framework.reads if read.column in TEXTS for name in read.attributes}
    texts |= {name.partition("#")[0] for read in framework.reads for name in read.attributes if "#" in name}
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
    for recorded_span in recorded_spans(name):
        role = span_role(recorded_span.scope_name, recorded_span.name)
        assert role is not None, (recorded_span.scope_name, recorded_span.name)
        if role.family != "genai":
            assert role.framework is not None
            assert name.partition("/")[0] in role.framework.recorded
