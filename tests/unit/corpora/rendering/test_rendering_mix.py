"""Tests of mixes: shares are exact in one kind and in several, and impossible mixes are errors."""

from collections import Counter
from typing import Any

import pytest

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import Utterance
from corpora.rendering.mix import deal, largest_remainder, mix_from_text

SECONDS = {"short": 1.0, "medium": 4.0, "long": 8.0}


def utterance(name: str, length: str, domain: str = "home", speaker: str = "ann") -> Utterance:
    end = round(SECONDS[length] * 16_000) - 1
    return Utterance(
        name, f"{name}.flac", "x", speaker, "en", domain, "CC0-1.0", "x", "0" * 64, 16_000, end + 1, 0, end
    )


def all_kinds(each: int = 3) -> list[Utterance]:
    return [
        utterance(f"{length}-{domain}-{speaker}-{number}", length, domain, speaker)
        for length in SECONDS
        for domain in ("home", "shop")
        for speaker in ("ann", "bob")
        for number in range(each)
    ]


def counts(selected: Any, kind: str) -> Counter[str]:
    return Counter(str(getattr(each, kind)) for each in selected)


@pytest.mark.parametrize("count", [10, 37, 200])
def test_lengths_have_their_shares_by_largest_remainder(count: int) -> None:
    selected = deal(all_kinds(), mix_from_text("short=60, medium=30 long=10%"), count, 1)
    assert len(selected) == count
    assert dict(counts(selected, "length")) == largest_remainder({"short": 60, "medium": 30, "long": 10}, count)


def test_the_rest_goes_to_the_largest_remainders() -> None:
    assert largest_remainder({"a": 60, "b": 30, "c": 10}, 37) == {"a": 22, "b": 11, "c": 4}
    assert largest_remainder({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    assert largest_remainder({"a": 1.0, "b": 0.0}, 5) == {"a": 5, "b": 0}


def test_every_kind_has_its_shares_at_once() -> None:
    mix = mix_from_text("short=60 medium=30 long=10 domain.home=3 domain.shop=1 speaker.ann=1 speaker.bob=1")
    selected = deal(all_kinds(), mix, 80, 4)
    assert counts(selected, "length") == {"short": 48, "medium": 24, "long": 8}
    assert counts(selected, "domain") == {"home": 60, "shop": 20}
    assert counts(selected, "speaker") == {"ann": 40, "bob": 40}
    # The kinds are nearly independent: three of four short ones have the domain home.
    short_home = sum(each.length == "short" and each.domain == "home" for each in selected)
    assert abs(short_home - 36) <= 1


def test_dependent_kinds_have_their_shares_if_possible() -> None:
    # Bob only has utterances of the shop, so Ann gets fewer of them than with independent kinds.
    limited = [each for each in all_kinds() if each.speaker == "ann" or each.domain == "shop"]
    selected = deal(limited, mix_from_text("domain.home=1 domain.shop=1 speaker.ann=1 speaker.bob=1"), 40, 1)
    assert counts(selected, "domain") == {"home": 20, "shop": 20}
    assert counts(selected, "speaker") == {"ann": 20, "bob": 20}
    with pytest.raises(CorpusError, match="The mix is impossible: no 40 utterances of the corpus have these shares"):
        deal(limited, mix_from_text("domain.home=3 domain.shop=1 speaker.ann=1 speaker.bob=1"), 40, 1)


def test_an_utterance_repeats_only_after_all_others_of_its_cell() -> None:
    selected = deal(all_kinds(2), mix_from_text("short=1"), 20, 1)
    times = Counter(each.id for each in selected)
    assert len(times) == 8
    assert set(times.values()) <= {2, 3}


def test_the_selection_depends_on_the_seed_only() -> None:
    mix = mix_from_text("short=1 medium=1 speaker.ann=2 speaker.bob=1")
    assert deal(all_kinds(), mix, 21, 5) == deal(list(reversed(all_kinds())), mix, 21, 5)
    assert deal(all_kinds(), mix, 21, 5) != deal(all_kinds(), mix, 21, 6)


def test_without_weights_all_utterances_are_used_equally() -> None:
    selected = deal(all_kinds(1), mix_from_text(""), 24, 1)
    assert set(Counter(each.id for each in selected).values()) == {2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("long=1", "The mix contains length long, but no utterance has it; use any of short."),
        ("domain.bank=1 domain.home=1", "The mix contains domain bank, but no utterance has it; use any of home."),
        ("speaker.eve=2", "The mix contains speaker eve"),
    ],
)
def test_a_value_without_an_utterance_is_an_error(text: str, expected: str) -> None:
    with pytest.raises(CorpusError) as caught:
        deal([utterance("one", "short")], mix_from_text(text), 10, 1)
    assert expected in str(caught.value)


def test_all_faults_of_a_mix_are_reported_at_once() -> None:
    with pytest.raises(CorpusError) as caught:
        mix_from_text("shrt=1 medium=some long=-1 short=1 short=2 wealth.rich=1 alone domain.a=0")
    assert str(caught.value).splitlines() == [
        "The length 'shrt' is unknown; did you mean short?",
        "medium: 'some' is not a weight; give a number, 0 or more.",
        "long: '-1' is not a weight; give a number, 0 or more.",
        "short: has two weights; give one.",
        "'wealth.rich=1' is not part of a mix; write short=WEIGHT, medium=WEIGHT, long=WEIGHT, domain.NAME=WEIGHT or "
        "speaker.NAME=WEIGHT.",
        "'alone' is not part of a mix; write short=WEIGHT, medium=WEIGHT, long=WEIGHT, domain.NAME=WEIGHT or "
        "speaker.NAME=WEIGHT.",
        "All weights of domain are 0; give one above 0.",
    ]
