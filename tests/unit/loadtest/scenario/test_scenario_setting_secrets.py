"""A secret that a protocol needs is in the environment: the settings name it, and nothing shows it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.scenario.access import filled_settings, literal_secret_faults
from loadtest.scenario.document import encode_settings
from loadtest.scenario.file import Scenario
from loadtest.scenario.redactor import HIDDEN
from loadtest.scenario.settings import SwarmSettings

SECRET = "s3cr3t-value-4711"
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
@given(tables(SECRET))
def test_secret_in_settings_is_fault_at_any_place(table: dict[str, Any]) -> None:
    faults = swarm(table).faults()
    assert any("holds a secret: put it into an environment variable and write ${NAME}" in fault for fault in faults)
    assert SECRET not in "".join(faults)
    assert HIDDEN in swarm(table).redactor.text(f"an endpoint repeats {SECRET}")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["${MY_SECRET}", "Bearer ${MY_SECRET}", "https://u:${MY_SECRET}@h/voice"])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_secret_of_environment_reaches_only_the_callers(
    form: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)
    given_settings = swarm(data.draw(tables(form)))
    assert literal_secret_faults(given_settings.protocol_settings) == []
    assert SECRET in repr(given_settings.caller_options.settings)
    assert SECRET not in encode_settings(given_settings)
    assert SECRET not in repr(given_settings)
    assert SECRET not in "".join(given_settings.faults())
    for text in (f"a {SECRET} b", f"b {SECRET[:10]}"):
        assert SECRET[:8] not in given_settings.redactor.text(text)


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


@pytest.mark.parametrize("url", [f"https://u:{SECRET}@h/", f"https://h/voice?access_token={SECRET}"])
def test_credentials_of_an_address_are_secrets(url: str) -> None:
    (fault,) = literal_secret_faults({"webhook": url})
    assert "'webhook' holds a secret" in fault
    assert SECRET not in fault
