"""Word error rate by profile, against a bootstrap and by hand."""

import random
from pathlib import Path

import numpy as np
import pytest

from telemetry.model.turns import Turn
from tests.fixtures_turns import client_turn
from tests.unit.telemetry.store.opened_stores import reader_of


def heard(
    index: int, errors: int, words: int, noise: str = "clean", snr: float | None = None, **changes: object
) -> Turn:
    return client_turn(
        index,
        wer_errors=errors,
        wer_reference_words=words,
        noise_profile=noise,
        snr_asked_db=snr,
        channel_profile="clean",
        **changes,
    )


def test_words_are_pooled_and_profiles_are_in_order(tmp_path: Path) -> None:
    turns = [
        heard(0, 3, 4, "babble", 0.0),
        heard(1, 0, 10),
        heard(2, 1, 2),  # a short clip counts by its words: 1 of 12, not the mean of 0 and 1/2
        heard(3, 1, 4, "babble", 10.0),
        heard(4, 9, 9, "babble", 10.0, outcome="invalid", invalid_reasons=("drift",)),
        heard(5, 0, 0),
        client_turn(6),
    ]
    with reader_of(tmp_path, *turns) as reader:
        rows = reader.summary().wer_by_condition
    assert [(row.noise_profile, row.snr_asked_db, row.errors, row.words) for row in rows] == [
        ("clean", None, 1, 12),
        ("babble", 10.0, 1, 4),
        ("babble", 0.0, 3, 4),
    ]
    assert rows[0].wer == pytest.approx(1 / 12)
    assert all(row.interval is None for row in rows), "fewer than 20 turns are no interval"


def test_character_counts_are_given_apart_from_words(tmp_path: Path) -> None:
    turns = [
        heard(0, 1, 4),  # of a reporter that does not say
        heard(1, 0, 5, wer_reference_characters=0),
        heard(2, 2, 6, wer_reference_characters=6),
        heard(3, 1, 8, "babble", 0.0, wer_reference_characters=7),  # a Latin word in a Chinese text
    ]
    with reader_of(tmp_path, *turns) as reader:
        rows = reader.summary().wer_by_condition
    assert [(row.errors, row.words, row.characters) for row in rows] == [(3, 15, 6), (1, 8, 7)]


def test_nothing_is_known_where_nothing_was_transcribed(tmp_path: Path) -> None:
    with reader_of(tmp_path, client_turn(0)) as reader:
        assert reader.summary().wer_by_condition == ()


def test_the_interval_agrees_with_a_bootstrap_over_turns(tmp_path: Path) -> None:
    rng = random.Random(4)
    # Words of a turn fail together: most turns are right, some are wrong in every word.
    output = [(words if rng.random() < 0.2 else 0, words) for words in (rng.randint(2, 15) for _ in range(200))]
    with reader_of(tmp_path, *(heard(i, errors, words) for i, (errors, words) in enumerate(output))) as reader:
        (row,) = reader.summary().wer_by_condition
    draws = np.random.default_rng(1).integers(0, len(output), (4000, len(output)))
    errors, words = np.array(output).T
    rates = errors[draws].sum(axis=1) / words[draws].sum(axis=1)
    low, high = np.percentile(rates, (2.5, 97.5))
    assert row.interval is not None
    assert row.interval[0] == pytest.approx(low, abs=0.015)
    assert row.interval[1] == pytest.approx(high, abs=0.015)
