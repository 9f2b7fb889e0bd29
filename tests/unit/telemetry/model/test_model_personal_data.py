"""Personal data in labels and in texts is found, and what only looks like it is left alone."""

import pytest

from telemetry.model.personal_data import (
    Names,
    PersonalPart,
    digit_runs,
    holds_card,
    identifies_person,
    is_card,
    is_pseudonym,
    label_without_personal_data,
    pseudonym,
    replaced,
    text_places,
    text_without_personal_data,
)

LABELS = {
    "4111111111111111": "[redacted:card]",
    "card_5555-5555-5555-4444": "card_[redacted:card]",
    "378282246310005 amex": "[redacted:card] amex",
    "3782-822463-10005": "[redacted:card]",
    "sip_+15105550100": "sip_[redacted:phone]",
    "tel:+49-170-1234567": "[redacted:phone]",
    "caller/%2B491701234567": "caller/[redacted:phone]",
    "anna.keller@example.com": "[redacted:email]",
    "anna%40example.co.uk": "[redacted:email]",
    "id=219-09-9998;x": "id=[redacted:national_id];x",
    "DE89 3704 0044 0532 0130 00": "[redacted:iban]",
    "GB33BUKB20201555555555": "[redacted:iban]",
}
NO_PERSONAL_DATA = [
    "4111111111111112",  # the wrong check digit
    "1763881234567890123",  # a time in nanoseconds
    "1763881234567",  # in milliseconds
    "0af7651916cd43dd8448eb211c80319c",
    "4111111111111111a0af7651916cd43d",
    "a4111111111111111",
    "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "20261123-070200-a1b2c3",
    "2026-11-23T07:02:00.123456789Z",
    "2026-11-23 07:02:00+01:00",
    "gpt-4o-2024-08-06",
    "react@18.2.0",
    "1.14.0",
    "12345-ab12cd34ef56ab12",
    "192.168.100.200:4317",
    "ws://127.0.0.1:41111/v1/realtime",
    "+5",
    "resp_68123456789012345678901234567890",
    "0000000000000000",
    "AB12 CDEF 0123 4567",
]
TEXTS = {
    "My card number is four one double one triple one one, eleven eleven one one one one.": "card",
    "vier eins eins eins, eins eins eins eins, eins eins eins eins, eins eins eins eins": "card",
    "four zero zero zero one two three four five six seven eight nine zero one zero": "digits",
    "call me on five five five, zero one four two": "digits",
    "meine Nummer ist null eins sieben null eins zwei drei vier fünf sechs sieben": "phone",
    "einundvierzig zwölf dreiundzwanzig": "digits",
    "forty one, eleven, twenty three": "digits",
    "my card is 4111 1111 1111 1111, until 03/27": "card",
    "4 one 1 one and then 22 33": "digits",
    "write to anna dot keller at example dot com": "email",
    "anna punkt keller ät example punkt de bitte": "email",
    "reach me at +49 170 1234567": "phone",
    "my name is Margaret Ellsworth, and I": "name",
    "Mein Name ist Peter Lindqvist.": "name",
    "account 1234567": "digits",
}
HARMLESS_TEXTS = [
    "The temperature is 21.5 degrees, at half past ten, on the 3rd of March 1974.",
    "It costs 1,200,000 dollars, or 3.14159265 of them.",
    "cannot connect to 127.0.0.1:41883: Connection refused",
    "if the server at 203.113.142.250:41883 speaks TLS, use wss://",
    "I live at two hundred and six Harbour Street, on the third floor.",
    "Turn four lights on, two in one room and three in another.",
    "Es sind vier bis fünf, um halb acht.",
    "What is the name?",
]


@pytest.mark.parametrize(("label", "kept"), LABELS.items())
def test_personal_data_in_a_label_is_replaced(label: str, kept: str) -> None:
    assert label_without_personal_data(label) == kept
    assert identifies_person(label)
    assert label_without_personal_data(kept) == kept


@pytest.mark.parametrize("label", NO_PERSONAL_DATA)
def test_label_resembling_personal_data_is_kept(label: str) -> None:
    assert label_without_personal_data(label) == label
    assert not identifies_person(label)


def test_long_labels_are_looked_at_to_their_end() -> None:
    label = "x " * 5000 + "4111111111111111"
    assert label_without_personal_data(label) == "x " * 5000 + "[redacted:card]"
    assert identifies_person(label)


@pytest.mark.parametrize(
    "number", ["491701234567", "0049 170 1234567", "0170 1234567", "(510) 555-0100", "tel:5105550100"]
)
def test_id_that_is_a_whole_telephone_number_identifies_person(number: str) -> None:
    assert identifies_person(number)
    assert label_without_personal_data(number) in (number, "[redacted:phone]")


@pytest.mark.parametrize("number", ["1763881234", "12345678", "1234567890123456", "call 0170 1234567"])
def test_other_numbers_do_not(number: str) -> None:
    assert not identifies_person(number)


@pytest.mark.parametrize(("text", "kind"), TEXTS.items())
def test_personal_data_in_a_text_is_replaced(text: str, kind: str) -> None:
    assert {place.kind for place in text_places(text)} == {kind}
    kept = text_without_personal_data(text)
    assert f"[redacted:{kind}]" in kept
    assert text_without_personal_data(kept) == kept


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_harmless_texts_stay(text: str) -> None:
    assert text_without_personal_data(text) == text


def test_names_of_the_list_are_replaced_as_whole_words() -> None:
    names = Names(["Anna", "José María", " "])
    assert text_without_personal_data("ANNA and josé maría know Annabel", names) == (
        "[redacted:name] and [redacted:name] know Annabel"
    )
    assert text_without_personal_data("Anna") == "Anna"


def test_places_that_overlap_have_one_mark() -> None:
    text = "0123456789"
    assert replaced(text, [PersonalPart(4, 8, "card"), PersonalPart(1, 5, "phone")]) == "0[redacted:phone]89"
    assert replaced(text, []) == text


def test_spoken_runs_say_which_digits_they_are() -> None:
    (run,) = digit_runs("it is oh one double seven, twenty three")
    assert (run.digits, run.has_words) == ("017723", True)
    assert [run.digits for run in digit_runs("neunzehn vierundsiebzig. Dort 12 34")] == ["1974", "1234"]


def test_a_card_has_the_length_of_its_scheme() -> None:
    assert is_card("4222222222222")
    assert not is_card("42222222222228")
    assert holds_card("03274111111111111111123")


def test_spellings_of_one_person_share_a_pseudonym() -> None:
    key, other = b"k" * 32, b"o" * 32
    known = pseudonym("+49 170 1234567", key)
    assert is_pseudonym(known)
    assert {pseudonym(value, key) for value in ("tel:+491701234567", "+49-170-123 4567", known)} == {known}
    assert pseudonym("Anna@Example.com", key) == pseudonym("mailto:anna@example.com", key)
    assert pseudonym("+491701234567", other) != known
    assert pseudonym("+491701234568", key) != known
