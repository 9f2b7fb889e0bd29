"""A condition under which speech was heard, as pages and reports write it alike."""

import pytest

from telemetry.model.formatting import condition_label


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
