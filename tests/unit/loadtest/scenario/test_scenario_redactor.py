"""Secrets: what a protocol needs is named by the settings alone, and no text keeps one in whatever encoding."""

import base64
import html
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.scenario.access import filled_settings, literal_secret_faults
from loadtest.scenario.document import encode_settings
from loadtest.scenario.file import Scenario
from loadtest.scenario.redactor import HIDDEN, SecretRedactor
from loadtest.scenario.settings import SwarmSettings
from tests.fixtures_turns import exchange

SECRET = "sk-4f9a77e2c1d0"
# Names that nobody escapes stay; what a percent sign says is in either case of its digits.
ENCODINGS: Final[dict[str, Callable[[str], str]]] = {
    "raw": lambda text: text,
    "percent": lambda text: quote(text, safe=""),
    "percent, slashes kept": quote,
    "percent, lower case": lambda text: "".join(
        quote(char, safe="").lower() if quote(char, safe="") != char else char for char in text
    ),
    "plus": quote_plus,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON as it is": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON, escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "percent of JSON": lambda text: quote(json.dumps(text)[1:-1], safe=""),
    "repr": lambda text: repr(text)[1:-1],
    "ascii": lambda text: ascii(text)[1:-1],
    "HTML": html.escape,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 in a URL": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "URL-safe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
}
# What a header or a URL can carry, and then anything that text can hold.
HARD = "ab1+/=%&;,:'\"\\ ~-._<>#?"
secrets = st.one_of(
    st.text(HARD, min_size=8, max_size=40),
    st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=8, max_size=40),
).filter(lambda text: text.strip() == text and not {"«", "»"} & set(text))  # those mark where the text around it is


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "secret",
    ["abcd1234+/=tail", "p%40ss w\"o'r\\d", "12345678%2B+%2b", "ünïcode-sécret", "Bearer abcdefgh+/==", SECRET],
)
def test_no_tail_stays(secret: str, encoding: str) -> None:
    encoded = ENCODINGS[encoding](secret)
    assert SecretRedactor([secret]).text(f"«{encoded}» and «{encoded}»") == f"«{HIDDEN}» and «{HIDDEN}»"


@pytest.mark.slow
@settings(max_examples=60)
@given(secrets, st.sampled_from(list(ENCODINGS)))
def test_any_secret_in_any_encoding_is_hidden_whole(secret: str, encoding: str) -> None:
    encoded = ENCODINGS[encoding](secret)
    clean = SecretRedactor([secret]).text(f"«{encoded}»")
    assert clean.replace(HIDDEN, "") == "«»", encoded


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(secrets, min_size=2, max_size=3), st.sampled_from(list(ENCODINGS)))
def test_secrets_that_begin_alike_hide_nothing_of_one_another(drawn: list[str], encoding: str) -> None:
    alike = [*drawn, drawn[0] + drawn[1], drawn[0] + "x"]
    redactor = SecretRedactor(alike)
    for secret in alike:
        assert redactor.text(f"«{ENCODINGS[encoding](secret)}»").replace(HIDDEN, "") == "«»", secret


def test_token_inside_base64_text_is_redacted_whole() -> None:
    for before in ("", "x", "xy"):
        inside = base64.b64encode(f'{before}{{"token": "{SECRET}"}}'.encode()).decode()
        clean = SecretRedactor([SECRET]).text(inside)
        begin, _, end = clean.partition(HIDDEN)
        assert HIDDEN in clean
        assert SECRET[2:-2].encode() not in base64.b64decode(begin[: len(begin) // 4 * 4])
        assert len(begin) + len(end) < len(inside) - len(SECRET)


@pytest.mark.parametrize("output", ["bearer {}", "token={}", "key: {};", '"{}"', "Basic {}"])
def test_a_part_of_a_header_is_hidden_whole(output: str) -> None:
    secret = "abc+12345678/=="
    for given_as in (f"Bearer {secret}", f"a=1; session={secret}", secret):
        assert SecretRedactor([given_as]).text(output.format(secret)) == output.format(HIDDEN)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"bad key {SECRET}!", f"bad key {HIDDEN}!"),
        (f"cut short: {SECRET[:10]}", f"cut short: {HIDDEN}"),
        (f"{SECRET}{SECRET}", f"{HIDDEN}{HIDDEN}"),
        ("only me, and some-one else", f"only {HIDDEN}, and some-one else"),
        ("nothing of it: sk-4f", "nothing of it: sk-4f"),
    ],
)
def test_an_echo_is_hidden_and_the_rest_stays(text: str, clean: str) -> None:
    assert SecretRedactor([f"Bearer {SECRET}", "me"]).text(text) == clean


@pytest.mark.slow
@given(
    st.text("abcdefgh-/=+%", min_size=8, max_size=40), st.text(max_size=30), st.text(max_size=30), st.integers(8, 40)
)
def test_no_beginning_of_a_secret_stays(secret: str, before: str, after: str, cut: int) -> None:
    assert secret[:8] not in SecretRedactor([secret]).text(before + secret[:cut] + after)


def test_text_of_endpoint_in_turn_is_redacted() -> None:
    turn, _ = exchange(0)
    texts = ("outcome_reason", "transcript_pii", "cohort", "model", "response_id")
    dirty = msgspec.structs.replace(
        turn,
        withheld_metrics=("wer",),
        withheld_reasons=(f"no text: {SECRET}",),
        **dict.fromkeys(texts, f"see {SECRET}"),
    )
    clean = SecretRedactor([SECRET]).turn(dirty)
    assert SECRET.encode() not in msgspec.json.encode(clean)
    assert clean.outcome_reason == f"see {HIDDEN}"
    assert msgspec.structs.replace(clean, withheld_reasons=(), **dict.fromkeys(texts)) == msgspec.structs.replace(
        dirty, withheld_reasons=(), **dict.fromkeys(texts)
    )


SET_SECRET = "s3cr3t-value-4711"
NAMES = st.sampled_from(["headers", "session", "inner", "llm_body", "a.b", "x"])
TELLING = st.sampled_from(
    ["api_key", "x-api-key", "token", "accessToken", "Authorization", "client_secret", "password", "cookie", "apiKey"]
)


@st.composite
def tables(draw: st.DrawFn, text: str) -> dict[str, Any]:
    """A table with a text somewhere in it, under a name that says what it is."""
    value: Any = {draw(TELLING): text}
    for _ in range(draw(st.integers(0, 4))):
        value = {draw(NAMES): draw(st.sampled_from([value, [1, value]])), "other": 1}
    return value


def swarm(table: dict[str, Any]) -> SwarmSettings:
    return SwarmSettings(host="ws://127.0.0.1:1/", scenario=Scenario(protocol=table))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(tables(SET_SECRET))
def test_secret_in_settings_is_fault_at_any_place(table: dict[str, Any]) -> None:
    faults = swarm(table).faults()
    assert any("holds a secret: put it into an environment variable and write ${NAME}" in fault for fault in faults)
    assert SET_SECRET not in "".join(faults)
    assert HIDDEN in swarm(table).redactor.text(f"an endpoint repeats {SET_SECRET}")


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=st.sampled_from(["${MY_SECRET}", "Bearer ${MY_SECRET}", "https://u:${MY_SECRET}@h/voice"]).flatmap(tables))
def test_secret_of_environment_reaches_only_the_callers(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", SET_SECRET)
    given_settings = swarm(table)
    assert literal_secret_faults(given_settings.protocol_settings) == []
    assert SET_SECRET in repr(given_settings.caller_options.settings)
    assert SET_SECRET not in encode_settings(given_settings)
    assert SET_SECRET not in repr(given_settings)
    assert SET_SECRET not in "".join(given_settings.faults())
    for text in (f"a {SET_SECRET} b", f"b {SET_SECRET[:10]}"):
        assert SET_SECRET[:8] not in given_settings.redactor.text(text)


def test_a_variable_that_is_not_set_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_SECRET", raising=False)
    with pytest.raises(UsageError, match="the environment variable MY_SECRET, which the protocol's settings name"):
        filled_settings({"a": [{"b": "${MY_SECRET}"}]})
    assert any("MY_SECRET" in fault for fault in swarm({"a": {"token": "${MY_SECRET}"}}).faults())


@pytest.mark.parametrize(
    "table",
    [
        {"llm_key": "OPENAI_KEY", "llm_body": {"max_tokens": "100", "max_output_tokens": "inf"}},
        {"auth": "bearer", "authorization": "token"},
        {"parameters": {"customer": "Ada", "keyboard": "yes"}},
        {"webhook": "https://agent.example/voice?tenant=1"},
        {"session": {"turn_detection": {"type": "server_vad"}, "tools": [{"name": "token"}]}},
        {"template": "costs $5 {x} ${lower}"},
    ],
)
def test_setting_without_secret_is_unchanged(table: dict[str, Any]) -> None:
    assert literal_secret_faults(table) == []
    assert filled_settings(table, {}) == table


@pytest.mark.parametrize("url", [f"https://u:{SET_SECRET}@h/", f"https://h/voice?access_token={SET_SECRET}"])
def test_credentials_of_an_address_are_secrets(url: str) -> None:
    (fault,) = literal_secret_faults({"webhook": url})
    assert "'webhook' holds a secret" in fault
    assert SET_SECRET not in fault
