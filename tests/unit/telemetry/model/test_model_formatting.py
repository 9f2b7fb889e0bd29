"""The one way in which numbers are written."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model import formatting
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


def test_a_difference_has_a_direction_and_nothing_is_never_negative() -> None:
    shown = [formatting.signed_milliseconds(ns) for ns in (None, 1_240_000, -1_240_000, -4_000, 2e9)]
    assert shown == ["–", "+1.2 ms", "−1.2 ms", "+0.0 ms", "+2,000 ms"]


def test_an_error_of_the_instrument_is_written_to_the_microsecond() -> None:
    assert [formatting.fine_milliseconds(ns) for ns in (None, 42_000, 1_234_567_890)] == [
        "–",
        "0.042 ms",
        "1,234.568 ms",
    ]
    assert [formatting.microseconds(ns) for ns in (None, 41_730)] == ["–", "41.7 µs"]


@pytest.mark.parametrize(
    ("ns", "text"), [(8e8, "800 ms"), (37.5e6, "37.5 ms"), (250_000, "0.25 ms"), (1e9, "1,000 ms"), (0, "0 ms")]
)
def test_what_was_declared_is_not_rounded(ns: float, text: str) -> None:
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
def test_a_share_reads_as_it_stands_against_its_objective(ratio: float, against: float, text: str) -> None:
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
    assert [formatting.declared_points(each) for each in (0.005, 0.02, 0.000125)] == [
        "0.5 points",
        "2 points",
        "0.0125 points",
    ]


def test_a_number_of_unknown_size_has_three_significant_digits() -> None:
    assert [formatting.significant(each) for each in (0.0042149, 12.34, 0.0, None)] == ["0.00421", "12.3", "0", "–"]


@given(st.floats(-1e12, 1e12))
def test_people_never_read_an_ascii_hyphen_for_minus_nor_a_minus_before_nothing(value: float) -> None:
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
