"""Which of an endpoint's headers are kept, and that nothing else ever is."""

import string

from hypothesis import given
from hypothesis import strategies as st

from loadtest.protocols.endpoint_headers import KEPT, MAX_VALUE_CHARS, kept_headers

SECRET = "s3cr3t-4711"
NAMES = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=30)


def test_what_says_who_answered_is_kept_under_the_response_that_had_it() -> None:
    headers = [("Server", " uvicorn "), ("CF-Ray", "8a1"), ("via", "1.1 a"), ("Via", "1.1 b"), ("X-Cache", "")]
    assert kept_headers(headers, "upgrade") == {
        "upgrade.server": "uvicorn",
        "upgrade.cf-ray": "8a1",
        "upgrade.via": "1.1 a, 1.1 b",
    }


def test_secrets_and_cookies_are_not_kept() -> None:
    names = (
        "Set-Cookie",
        "Cookie",
        "Authorization",
        "Proxy-Authorization",
        "WWW-Authenticate",
        "X-Api-Key",
        "Location",
    )
    assert kept_headers([(name, SECRET) for name in names], "upgrade") == {}


@given(st.lists(st.tuples(NAMES, st.just(SECRET))))
def test_no_other_name_is_kept(headers: list[tuple[str, str]]) -> None:
    unknown = [(name, value) for name, value in headers if name.lower() not in KEPT]
    assert SECRET not in repr(kept_headers(unknown, "upgrade"))


def test_of_an_address_neither_credentials_nor_the_query_are_kept() -> None:
    value = f"https://user:{SECRET}@llm.example/v1?key={SECRET}"
    assert kept_headers([("x-litellm-model-api-base", value)], "llm") == {
        "llm.x-litellm-model-api-base": "https://llm.example/v1"
    }


def test_a_value_is_one_line_and_bounded() -> None:
    (value,) = kept_headers([("server", "a\x1b[31m\n" + "b" * 9999)], "upgrade").values()
    assert value.isprintable()
    assert len(value) <= MAX_VALUE_CHARS + 1
