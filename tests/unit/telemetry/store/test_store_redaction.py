"""No attribute that a framework puts words into is stored; held against the names in the frameworks' own code.

`framework_attributes.json` has every attribute name in the tracing code of the packages at the versions that it names:
`words` hold or may hold what people said, wrote or were answered; `labels` are ids, names and states; `numbers` are
figures and flags.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from telemetry.store.redaction import LABELS, is_label, without_text

FRAMEWORKS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "framework_attributes.json").read_text()
)
NAMED = {framework["package"]: framework for framework in FRAMEWORKS}
TEXTS = "my card number is 4711"
# Found stored by a reader of the issue; and one of each kind that a list of names misses.
ALWAYS_WORDS = [
    *("tool.arguments", "tool.result", "session.instructions", "tools.definitions", "settings.system_instruction"),
    *("lk.pii.anything_new", "gen_ai.prompt.variable.name", "llm.input_messages.0.message.content", "my.own.note"),
    *(
        "voice.turn.transcript_pii",
        "voice.asr.transcript",
        "voice.llm.prompt",
        "service.prompt.text",
        "exception.message",
    ),
    *("process.command_args", "http.request.header.authorization", "db.query.text", "url.full", "enduser.id"),
]
SHAPES = [TEXTS, [TEXTS], [1, TEXTS], {"text": TEXTS}, {"deep": {"er": [TEXTS]}}, TEXTS.encode(), [{"a": 1}]]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework["package"])
def test_words_of_a_framework_are_left_out_and_the_rest_stays(framework: dict[str, Any]) -> None:
    assert framework["words"]
    assert framework["labels"]
    for name in framework["words"]:
        assert without_text({name: TEXTS}) == {}, name
        assert without_text({f"{name}.0": TEXTS}) == {}, f"an entry of a list, {name}"
    for name in framework["labels"]:
        assert without_text({name: "a-label"}) == {name: "a-label"}
    for name in framework["numbers"]:
        assert without_text({name: 3}) == {name: 3}
        assert without_text({name: TEXTS}) == {}, f"{name} is a figure, and no text"


@pytest.mark.parametrize("name", ALWAYS_WORDS)
@pytest.mark.parametrize("value", SHAPES, ids=lambda value: type(value).__name__)
def test_no_shape_of_a_value_lets_words_through(name: str, value: object) -> None:
    assert without_text({name: value, "kept": 1}) == {"kept": 1}


@pytest.mark.parametrize("value", [3, 2.5, True, None, [1, 2], [], {}, "ok"], ids=repr)
def test_figures_are_kept_under_any_name_and_text_under_known_ones(value: object) -> None:
    name = "gen_ai.request.model" if value == "ok" else "my.own.figure"
    assert without_text({name: value}) == {name: value}


def test_the_installed_conventions_have_no_name_that_nobody_looked_at() -> None:
    installed = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    recorded = NAMED["opentelemetry-semantic-conventions"]
    known = {*recorded["words"], *recorded["labels"], *recorded["numbers"]}
    new = sorted(name for name in installed - known if isinstance(name, str) and is_label(name))
    assert new == [], "kept, and not in the fixture: look at them, and record them"
    assert is_label(gen_ai_attributes.GEN_AI_REQUEST_MODEL)
    for name in ("GEN_AI_INPUT_MESSAGES", "GEN_AI_OUTPUT_MESSAGES", "GEN_AI_TOOL_DEFINITIONS"):
        assert not is_label(getattr(gen_ai_attributes, name, "gen_ai.input.messages"))


def test_no_label_looks_like_words() -> None:
    endings = (
        "content",
        "text",
        "arguments",
        "result",
        "instructions",
        "messages",
        "input",
        "output",
        "value",
        "prompt",
    )
    assert [name for name in sorted(LABELS) if name.rpartition(".")[2] in endings] == []
