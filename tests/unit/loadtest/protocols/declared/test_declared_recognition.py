"""Which rules of a spec a message matches: those whose every condition it fulfills, however they are looked up."""

import json
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadtest.protocols.declared.recognition import Recognition
from loadtest.protocols.declared.spec import spec_of
from loadtest.protocols.declared.templates import parse_path

PATHS: Final = ("$.type", "$.list[*]", "$['type']", "$.kind", "$.type.inner", "$")
SCALARS: Final = ("a", "b", None, "", True, False, 0, 1, 1.0)
strings = st.sampled_from(("a", "b"))
scalars = strings | st.sampled_from(SCALARS)
wanted = scalars | st.lists(scalars, max_size=3) | st.booleans().map(lambda exists: {"exists": exists})
rules = st.lists(
    st.dictionaries(st.sampled_from(PATHS[:2]) | st.sampled_from(PATHS), wanted, min_size=1, max_size=2),
    min_size=1,
    max_size=4,
)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.just("inner"), scalars)
messages = (
    st.fixed_dictionaries({"type": strings, "list": st.lists(strings, min_size=1, max_size=3)})
    | st.fixed_dictionaries({}, optional={"type": values, "kind": values, "list": values})
    | values
)


def fulfilled(message: Any, path: str, condition: Any) -> bool:
    found = list(parse_path(path).all(message))
    if isinstance(condition, dict):
        return bool(found) is condition["exists"]
    # As JSON, in which true is not 1; but 1.0 is 1.
    shown = [1 if each == 1.0 and not isinstance(each, bool) else each for each in found]
    of_any = condition if isinstance(condition, list) else [condition]
    return any(json.dumps(each) == json.dumps(1 if type(want) is float else want) for each in shown for want in of_any)


@example([{"$.type": None}, {"$.type": "b"}], "$.type", [{"type": "a"}, {"type": "b"}, {"type": None}, {}])
@example([{"$.list[*]": "b"}], "$.list[*]", [{"list": ["a", "b"]}, {"list": ["a"]}])
@settings(max_examples=200, deadline=None)
@given(rules, st.sampled_from(PATHS[:3]), st.lists(messages, min_size=2, max_size=6))
def test_a_message_matches_the_rules_whose_conditions_it_fulfills(
    whens: list[dict[str, Any]], named_at: str, heard: list[Any]
) -> None:
    events = [{"when": when, "is": "ignored", "code": f"$.number{at}"} for at, when in enumerate(whens)]
    spec = spec_of({"name": "any", "type": named_at, "reply": {"audio": "none"}, "events": events}, "spec")
    recognition = Recognition(spec)
    for message in heard:
        found = recognition.rules_of(spec.type.first(message), message)
        matching = [
            rule
            for rule, when in zip(spec.events, whens, strict=True)
            if all(fulfilled(message, path, condition) for path, condition in when.items())
        ]
        assert found == matching


@given(st.sampled_from(PATHS), messages)
def test_the_first_value_of_a_path_is_the_first_of_all(path: str, message: Any) -> None:
    every = list(parse_path(path).all(message))
    assert parse_path(path).first(message) == (every[0] if every else None)
