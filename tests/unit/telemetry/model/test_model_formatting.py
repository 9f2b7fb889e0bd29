"""Numbers, durations, addresses and other people's text: the one way in which each is written."""

import unicodedata
from decimal import Decimal
from fractions import Fraction
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model import formatting
from telemetry.model.addresses import host_and_port, is_loopback, is_unspecified, local_host, without_brackets
from telemetry.model.durations import Duration, DurationError
from telemetry.model.foreign_text import has_control_characters, one_line, several_lines
from telemetry.model.formatting import condition_label


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0.0 ms"),
        (-4e4, "0.0 ms"),
        (1_240_000, "1.2 ms"),
        (-48_060_000, "−48.1 ms"),
        (-1_204_000_000, "−1,204 ms"),
        (9.96e6, "10.0 ms"),
        (99.94e6, "99.9 ms"),
        (99.96e6, "100 ms"),
        (812_400_000, "812 ms"),
        (1_204_000_000, "1,204 ms"),
    ],
)
def test_a_duration_has_one_decimal_below_100_ms(ns: float | None, text: str) -> None:
    assert formatting.milliseconds(ns) == text
    assert formatting.milliseconds(ns, unit=False) == text.removesuffix(" ms")


def test_difference_has_a_sign_and_zero_is_never_negative() -> None:
    shown = [formatting.signed_milliseconds(ns) for ns in (None, 1_240_000, -1_240_000, -4_000, 2e9)]
    assert shown == ["–", "+1.2 ms", "−1.2 ms", "+0.0 ms", "+2,000 ms"]


def test_instrument_error_is_written_to_the_microsecond() -> None:
    assert [formatting.fine_milliseconds(ns) for ns in (None, 42_000, 1_234_567_890)] == [
        "–",
        "0.042 ms",
        "1,234.568 ms",
    ]
    assert [formatting.microseconds(ns) for ns in (None, 41_730)] == ["–", "41.7"]


@pytest.mark.parametrize(
    ("ns", "text"), [(8e8, "800 ms"), (37.5e6, "37.5 ms"), (250_000, "0.25 ms"), (1e9, "1,000 ms"), (0, "0 ms")]
)
def test_declared_value_is_not_rounded(ns: float, text: str) -> None:
    assert formatting.declared_milliseconds(ns) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.0006, "0.1 %"),
        (0.125, "12.5 %"),
        (0.29, "29 %"),  # 0.29 * 1000 is 289.99... in floating point
        (1 - (1 - 0.98) / (1 - 0.95), "60 %"),  # 0.5999999999999996
        (4 / 22, "18.2 %"),
        (2 / 3, "66.7 %"),
        (1 / 6, "16.7 %"),
        (0.1825, "18.3 %"),
        (0.94996, "94.996 %"),
        (0.95, "95 %"),
        (0.9504, "95.04 %"),
        (0.01004, "1.004 %"),
        (0.9996, "99.96 %"),
        (0.9999996, "99.99996 %"),
        (1.0, "100 %"),
        (1.0004, "100.04 %"),  # word errors can be more than words
        (1.25, "125 %"),
        (12.3456, "1,234.6 %"),
    ],
)
def test_a_share_is_rounded_and_a_whole_percentage_is_exact(ratio: float | None, text: str) -> None:
    assert formatting.percent(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "against", "text"),
    [
        (0.99896, 0.999, "99.896 %"),
        (0.9991, 0.999, "99.91 %"),
        (0.999, 0.999, "99.9 %"),
        (0.99948, 0.9995, "99.9 %"),
        (0.99951, 0.9995, "99.951 %"),
        (0.97, 0.999, "97 %"),
        (0.0052, 0.005, "0.52 %"),  # beyond what is allowed
    ],
)
def test_share_is_rounded_to_differ_from_its_objective(ratio: float, against: float, text: str) -> None:
    assert formatting.percent(ratio, against) == text


@given(st.integers(1, 10_000).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole))))
def test_a_share_of_turns_is_within_half_of_its_last_digit(counted: tuple[int, int]) -> None:
    part, whole = counted
    text = formatting.share(part, whole)
    assert (text == "0 %") is (part == 0)
    assert (text == "100 %") is (part == whole)
    if text.startswith("<"):
        assert 0 < part * 1000 < whole
        return
    shown = Decimal(text.removesuffix(" %"))
    decimals = max(1, -int(shown.as_tuple().exponent))
    assert abs(Fraction(shown) - Fraction(100 * part, whole)) <= Fraction(1, 2 * 10**decimals)
    if shown == int(shown):
        assert int(shown) * whole == 100 * part


def test_a_target_has_every_digit_it_has() -> None:
    shown = [formatting.declared_percent(ratio) for ratio in (0.95, 0.999, 0.9995, 0.29)]
    assert shown == ["95 %", "99.9 %", "99.95 %", "29 %"]


def test_a_share_of_nothing_is_unknown() -> None:
    assert formatting.share(0, 0) == formatting.DASH
    assert formatting.share(1, 8) == "12.5 %"


def test_things_are_counted_with_thousands_apart() -> None:
    assert [formatting.turns(n) for n in (0, 1, 1204)] == ["0 turns", "1 turn", "1,204 turns"]
    assert formatting.count(2, "process", "processes") == "2 processes"
    assert formatting.number(None) == formatting.DASH


def test_time_that_goes_on_is_a_clock() -> None:
    assert [formatting.clock(s) for s in (-1, 59.9, 61, 3661)] == ["0:00", "0:59", "1:01", "61:01"]
    assert [formatting.seconds(ns) for ns in (None, 2_440_000_000)] == ["–", "2.4 s"]
    assert formatting.factor(1.54) == "×1.5"


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (2.5, "per_s", "2.5/s"),
        (3, "count", "3"),
        (0.123, "ratio", "0.12"),
        (0.123, "share", "12.3 %"),
        (5e6, "ns", "5.0 ms"),
        (None, "ns", "–"),
        (None, "per_s", "–"),
        (None, "ratio", "–"),
    ],
)
def test_a_figure_carries_its_unit(value: float | None, kind: str, text: str) -> None:
    assert formatting.figure(value, kind) == text


def test_a_threshold_is_written_as_its_figures_are() -> None:
    kinds = (("ns", 8e8), ("share", 0.05), ("per_s", 12.5), ("count", 2), ("ratio", 1.25))
    shown = [formatting.declared_figure(value, kind) for kind, value in kinds]
    assert shown == ["800 ms", "5 %", "12.5/s", "2", "1.25"]


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="known are ns, per_s"):
        formatting.figure(1, "parsecs")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (12.34e6, "ns", "+12.3 ms"),
        (-250e6, "ns", "−250 ms"),
        (0.0031, "share", "+0.31 points"),
        (-0.0031, "share", "−0.31 points"),
        (-0.0, "share", "+0.00 points"),
        (-0.00421, "ratio", "−0.00421"),
        (0.0, "ratio", "+0"),
        (None, "ns", "–"),
    ],
)
def test_a_difference_has_its_direction(value: float | None, kind: str, text: str) -> None:
    assert formatting.signed_difference(value, kind) == text


def test_a_declared_difference_of_shares_keeps_its_digits() -> None:
    assert [formatting.declared_points(value) for value in (0.005, 0.02, 0.000125)] == [
        "0.5 points",
        "2 points",
        "0.0125 points",
    ]


def test_a_number_of_unknown_size_has_three_significant_digits() -> None:
    assert [formatting.significant(value) for value in (0.0042149, 12.34, 0.0, None)] == ["0.00421", "12.3", "0", "–"]


@given(st.floats(-1e12, 1e12))
def test_minus_is_never_ascii_hyphen_and_never_before_nothing(value: float) -> None:
    written = [
        formatting.milliseconds(value),
        formatting.fine_milliseconds(value),
        formatting.microseconds(value),
        formatting.seconds(value),
        formatting.declared_milliseconds(value),
        formatting.decimal(value),
        formatting.decibels(value),
        formatting.declared_decibels(value),
        formatting.rate(value),
        formatting.number(value),
        formatting.significant(value),
    ]
    for text in written:
        assert "-" not in text
        assert text.startswith(formatting.MINUS) is (value < 0 and any(digit in text for digit in "123456789"))


def test_a_level_has_its_sign() -> None:
    assert [formatting.decibels(db) for db in (-4.96, -0.04, 10.14)] == ["−5.0 dB", "0.0 dB", "10.1 dB"]
    assert [formatting.declared_decibels(db) for db in (-5.0, 2.5)] == ["−5 dB", "2.5 dB"]


@pytest.mark.parametrize(
    ("length_s", "text"),
    [
        (0.2, "about 1 s"),
        (39.2, "about 40 s"),
        (120, "about 120 s"),
        (121, "about 3 min"),
        (7_200, "about 120 min"),
        (7_201, "about 3 h"),
        (4_000_000, "about 1,112 h"),
    ],
)
def test_an_estimated_time_is_never_understated(length_s: float, text: str) -> None:
    assert formatting.about(length_s) == text


@pytest.mark.parametrize(
    ("noise", "snr_db", "channel", "label"),
    [
        ("babble", -5.0, "g711u", "babble −5 dB, g711u"),
        ("babble", 10.0, None, "babble 10 dB"),
        ("babble", 2.5, "clean", "babble 2.5 dB"),
        ("babble", None, None, "babble"),
        ("street 5 dB", 5.0, None, "street 5 dB"),
        ("clean", None, "clean", "clean"),
        ("none", 10.0, "g711a", "clean, g711a"),
        (None, None, None, "not reported"),
        (None, 10.0, "g711u", "not reported, g711u"),
        ("", None, None, "not reported"),
    ],
)
def test_a_condition_is_named_by_noise_level_and_channel(
    noise: str | None, snr_db: float | None, channel: str | None, label: str
) -> None:
    assert condition_label(noise, snr_db, channel) == label


MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("90", 90_000 * MS),
        ("0", 0),
        ("0.25", 250 * MS),
        ("500ms", 500 * MS),
        ("2s", 2_000 * MS),
        ("1.5m", 90_000 * MS),
        ("1h", 3_600_000 * MS),
        ("1h30m", 5_400_000 * MS),
        ("7d", 604_800_000 * MS),
        ("1m30s", 90_000 * MS),
        (" 2M ", 120_000 * MS),
        ("1.5 s", 1_500 * MS),
        ("200us", 200_000),
        ("200µs", 200_000),
        ("7ns", 7),
        ("0.1s", 100 * MS),  # 0.1 is not a binary fraction
        ("0.000000001s", 1),
    ],
)
def test_written_durations_are_parsed_exactly(text: str, ns: int) -> None:
    assert Duration.parse(text) == Duration(ns)


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "2 m x", "-3s", "-1", "1..5s", "3w", "2 weeks", "m2", "nan", "inf", ".", "1e3", "9" * 400, "1_000"],
)
def test_invalid_duration_is_refused_with_its_notation(text: str) -> None:
    with pytest.raises(DurationError) as refused:
        Duration.parse(text)
    assert str(refused.value) == f"{text!r} is not a duration: write it as 500ms, 2s, 1.5m or 1h"


def test_a_number_alone_is_refused_where_a_unit_is_required() -> None:
    assert Duration.parse("2s", bare=False) == Duration.parse("2")
    with pytest.raises(DurationError, match="'2' is not a duration"):
        Duration.parse("2", bare=False)


@pytest.mark.parametrize("seconds", [-1.0, -1e-9, float("nan"), float("inf")])
def test_a_number_of_seconds_is_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(DurationError):
        Duration.of_s(seconds)


@pytest.mark.parametrize(("value", "ns"), [("20ms", 20 * MS), ("2", 2_000 * MS), (2, 2_000 * MS), (0.25, 250 * MS)])
def test_a_file_holds_a_text_or_a_number_of_seconds(value: object, ns: int) -> None:
    assert Duration.of_value(value) == Duration(ns)


@pytest.mark.parametrize("value", [None, True, ["2s"], {}, 10**400, pytest.param(-(16**6000), id="huge")])
def test_a_file_holds_nothing_else(value: object) -> None:
    with pytest.raises(ValueError, match=r"^(neither text nor a number|too large)$"):
        Duration.of_value(value)


@pytest.mark.parametrize("value", ["soon", -1, float("nan")])
def test_a_text_or_a_number_that_is_not_a_duration(value: object) -> None:
    with pytest.raises(DurationError):
        Duration.of_value(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (10_000 * MS, "10s"),
        (90_000 * MS, "90s"),
        (120_000 * MS, "2m"),
        (1_500 * MS, "1500ms"),
        (3_600_000 * MS, "1h"),
        (1_001, "1001ns"),
    ],
)
def test_duration_is_shown_in_largest_whole_unit(ns: int, text: str) -> None:
    assert str(Duration(ns)) == text


@given(st.integers(0, 10**18))
def test_the_text_form_reads_back_equal(ns: int) -> None:
    assert Duration.parse(str(Duration(ns)), bare=False) == Duration(ns)


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_durations_are_ordered_by_their_length(first: int, second: int) -> None:
    assert (Duration(first) < Duration(second)) == (first < second)


def test_days_are_shown_from_two_on_as_people_write_them() -> None:
    assert [str(Duration.parse(text)) for text in ("24h", "1d", "48h", "7d", "36h")] == [
        "24h",
        "24h",
        "2d",
        "7d",
        "36h",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "Localhost.", "::ffff:127.0.0.1"])
def test_an_address_that_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "voice.example", "192.0.2.1", "::ffff:192.0.2.1", "", "[::1]"])
def test_an_address_that_others_may_reach(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "2001:db8::1", "voice.example", "0.0.0.0"])
def test_a_url_made_of_a_host_has_that_host_and_port(host: str) -> None:
    parts = urlsplit(f"http://{host_and_port(host, 8501)}/path")
    assert (parts.hostname, parts.port, parts.path) == (host, 8501, "/path")


def test_the_zone_of_an_address_is_encoded() -> None:
    assert host_and_port("fe80::1%eth0", 80) == "[fe80::1%25eth0]:80"


def test_unspecified_address_is_reached_at_its_loopback() -> None:
    assert [local_host(host) for host in ("0.0.0.0", "::", "192.0.2.1")] == ["127.0.0.1", "::1", "192.0.2.1"]
    assert [is_unspecified(host) for host in ("0.0.0.0", "::", "::1", "any")] == [True, True, False, False]


def test_brackets_belong_to_urls_alone() -> None:
    assert [without_brackets(host) for host in ("[::1]", "::1", "[::1", "a")] == ["::1", "::1", "[::1", "a"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ünïcode 日本 👩‍🚀", "plain – ünïcode 日本 👩‍🚀"),
        ("\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"),
        ("one\r\ntwo\tthree\u2028four\x85", "one  two three four "),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\x9b31m red \x7f", "\\x9b31m red \\x7f"),
        ("lone \ud800", "lone \\ud800"),
        ("joined \u0645\u200c\u062e", "joined \u0645\u200c\u062e"),
        ("tag \U000e0041", "tag \\U000e0041"),
    ],
)
def test_control_characters_are_escaped_and_the_rest_stays(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(st.characters(codec=None), max_size=80), st.integers(1, 60))
def test_any_text_is_one_bounded_line_without_anything_that_acts(text: str, longest: int) -> None:
    shown = one_line(text, longest)
    assert len(shown) <= longest
    assert not has_control_characters(shown)
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert shown.splitlines() in ([], [shown])
    shown.encode()  # no surrogate is left that a log could not take
    assert one_line(shown, longest) == shown
    lines = several_lines(text, longest)
    assert len(lines) <= longest
    assert not has_control_characters(lines.replace("\n", "").replace("\t", ""))


def test_a_long_text_says_that_it_is_cut_short() -> None:
    assert one_line("x" * 501) == "x" * 499 + "…"
    assert one_line("x" * 500) == "x" * 500
    assert several_lines("a\r\nb\tc\x1b", 100) == "a\nb\tc\\x1b"


@pytest.mark.parametrize("text", ["\r", "\n", "\x00", "\x1b", "\x7f", "\x80", "\u2028", "\u202e", "\ud800"])
def test_control_characters_are_found(text: str) -> None:
    assert has_control_characters(f"a{text}b")
    assert not has_control_characters("a b\u00a0c 日本 👩‍🚀")
