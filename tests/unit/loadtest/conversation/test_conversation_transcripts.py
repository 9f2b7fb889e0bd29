"""Word errors after one documented normalization, in many scripts; every expected count is worked out by hand.

The comment of a case says what the words (or characters) are; a count is (errors, words of the reference).
"""

# ruff: noqa: RUF001 - letters of other scripts are what is tested

import pytest

from loadtest.conversation import transcripts
from loadtest.conversation.transcripts import (
    REMEMBERED_CHARS,
    REMEMBERED_PAIRS,
    normalize,
    reference_characters,
    word_errors,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Turn the Light ON!", "turn the light on"),
        ("What's the time?", "whats the time"),
        ("  two\u2019s -- company ", "twos company"),
        ("Stra\u00dfe", "strasse"),
        ("", ""),
    ],
)
def test_normalization(text: str, words: str) -> None:
    assert normalize(text) == words


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("go forward ten meters", "Go forward, ten meters.", (0, 4)),
        ("go forward ten meters", "go four ten meters", (1, 4)),
        ("go forward ten meters", "go forward meters", (1, 4)),
        ("go forward", "please go forward now", (2, 2)),
        ("go forward", "", (2, 2)),
        ("go forward", "...", (2, 2)),
        ("!", "anything", (0, 0)),
    ],
)
def test_word_errors(reference: str, hypothesis: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, hypothesis) == expected


@pytest.mark.slow
def test_only_short_texts_are_remembered_and_so_many_of_them() -> None:
    remembered = transcripts._remembered
    remembered.cache_clear()
    assert [word_errors("go on", "go") for _ in range(3)] == [(1, 2)] * 3
    assert (remembered.cache_info().hits, remembered.cache_info().misses) == (2, 1)
    long = "go " * (REMEMBERED_CHARS // 3) + "on"
    assert word_errors("go on", long) == (REMEMBERED_CHARS // 3 - 1, 2)
    assert remembered.cache_info().currsize == 1
    for number in range(REMEMBERED_PAIRS + 1):
        word_errors("go on", f"go {number}")
    assert remembered.cache_info().currsize == REMEMBERED_PAIRS


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "expected"),
    [
        # Devanagari: three words, in each of which a vowel sign differs; no vowel sign may be dropped.
        ("hi-IN", "दिन की रोशनी", "दीन का रोशन", (3, 3)),
        ("hi-IN", "दिन की रोशनी", "दिन की रोशनी।", (0, 3)),
        ("und", "नमस्ते दुनिया", "नमस्ते", (1, 2)),
        # A nukta that is a letter of its own, and the same in two parts; a joiner between consonants.
        ("hi-IN", "\u0958लम", "\u0915\u093cलम", (0, 1)),
        ("hi-IN", "क्ष", "क्\u200dष", (0, 1)),
        # Bengali, Tamil: two words, of which one has lost a vowel sign.
        ("bn-BD", "আমার সোনার", "আমার সনার", (1, 2)),
        ("ta-IN", "தமிழ் மொழி", "தமிழ் மழி", (1, 2)),
        # Arabic: the vowels of one text, kashida, and alef with wasla are no errors; a missing word is.
        ("ar-EG", "مَرْحَبًا بِكُمْ", "مرحبا بكم", (0, 2)),
        ("ar-EG", "السلام عليكم", "السَّلَامُ عَلَيْكُم", (0, 2)),
        ("ar-EG", "مـرحـبا بكم", "مرحبا", (1, 2)),
        # Persian: a joiner inside a word, and the yeh and kaf of an Arabic keyboard.
        ("fa-IR", "می\u200cخواهم کیک", "می\u200cخواهم كيك", (0, 2)),
        # Hebrew: points of one text; gershayim typed as quotation marks; a wrong word.
        ("he-IL", "שָׁלוֹם עוֹלָם", "שלום עולם", (0, 2)),
        ("he-IL", "צה״ל", 'צה"ל', (0, 1)),
        ("he-IL", "שלום עולם", "שָׁלוֹם לְכֻלָּם", (1, 2)),
        # Turkish: dotted and dotless I are two letters, each with its own capital.
        ("und", "İstanbul", "istanbul", (0, 1)),
        ("tr-TR", "İSTANBUL'A GİT", "istanbul'a git", (0, 2)),
        ("tr-TR", "ISPARTA", "ısparta", (0, 1)),
        ("tr-TR", "kızı gördüm", "kizi gördüm", (1, 2)),
        # Cyrillic: stress marks and the dots of ё, which print leaves out; Ukrainian apostrophes.
        ("ru-RU", "за\u0301мок ещё", "Замок еще.", (0, 2)),
        ("uk-UA", "п'ять", "п\u02bcять", (0, 1)),
        # Greek: final sigma; German: ß in capitals; Vietnamese and French: accents in two code points.
        ("el-GR", "ΟΔΟΣ", "οδος", (0, 1)),
        ("de-DE", "Straße", "STRASSE", (0, 1)),
        ("vi-VN", "Tiếng Việt", "Tie\u0302\u0301ng Vie\u0323\u0302t", (0, 2)),
        ("fr-FR", "café noir", "cafe\u0301 noire", (1, 2)),
        # Hangul: Korean is written with spaces; letters of a syllable typed apart.
        ("ko-KR", "안녕 세상", "\u110b\u1161\u11ab\u1102\u1167\u11bc 세상", (0, 2)),
        ("en-US", "well-known, isn\u2019t it", "Well known isn't it?", (0, 4)),
        ("en-US", "hello world", "ｈｅｌｌｏ　ｗｏｒｌｄ", (0, 2)),
        ("en-US", "the U.S.A. today", "the USA today", (0, 3)),
    ],
)
def test_words(language: str, reference: str, hypothesis: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, hypothesis, language) == expected
    assert reference_characters(reference, language) == 0, "counted by word"


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "expected"),
    [
        ("zh-CN", "今天天气很好", "今天天氣很好。", (1, 6)),
        ("zh-CN", "今天天气很好", "今天 天气 好", (1, 6)),
        ("und", "打开 WiFi", "打开wifi", (0, 3)),  # two characters, one word
        ("zh-CN", "二十五个人", "25个人", (0, 4)),  # 2, 5 and two characters
        ("zh-CN", "二〇二五年", "2025年", (0, 5)),
        ("zh-CN", "一百二十万", "120万", (0, 7)),
        ("zh-CN", "十二点三十分", "12点30分", (0, 6)),
        ("zh-CN", "百分之三点五", "3.5%", (0, 4)),
        ("zh-CN", "百分之五十", "50%", (0, 3)),  # 5, 0, percent
        ("ja-JP", "こんにちは", "こんにちわ", (1, 5)),
        ("ja-JP", "ﾊﾟｿｺﾝ", "パソコン", (0, 4)),
        ("th-TH", "สวัสดีครับ", "สวัสดีคับ", (1, 10)),  # the vowel signs above count, too
        ("th-TH", "น้ำ", "น\u0e49\u0e4d\u0e32", (0, 3)),  # the vowel AM in two parts
        ("th-TH", "ราคา ๒๕ บาท", "ราคา 25 บาท", (0, 9)),
        ("lo-LA", "ສະບາຍດີ", "ສະບາຍດ", (1, 7)),
        ("km-KH", "ខ្មែរ", "ខ្មែ", (1, 5)),
        ("my-MM", "မြန်မာ", "မြန်မာ", (0, 6)),
    ],
)
def test_characters(language: str, reference: str, hypothesis: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, hypothesis, language) == expected
    words = 1 if "WiFi" in reference or "百分" in reference else 0  # the Latin word, and "percent"
    assert reference_characters(reference, language) == expected[1] - words


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "expected"),
    [
        ("en-US", "go forward ten meters", "Go forward 10 meters.", (0, 4)),
        ("und", "go forward ten meters", "Go forward 10 meters.", (0, 4)),
        ("en-US", "go forward ten meters", "Go forward 12 meters.", (1, 4)),
        ("en-US", "ten", "tin", (1, 1)),
        ("en-US", "twenty five", "25", (0, 1)),
        ("en-US", "twenty-five", "25", (0, 1)),
        ("en-US", "one thousand two hundred and five", "1,205", (0, 1)),
        ("en-US", "a hundred people", "100 people", (0, 2)),
        ("en-US", "three point one four", "3.14", (0, 1)),
        ("en-US", "five million dollars", "$5 million", (0, 2)),
        ("en-US", "five million dollars", "$5,000,000", (0, 2)),
        ("en-US", "five dollars and fifty cents", "$5.50", (0, 2)),
        ("en-US", "one dollar", "$1", (0, 2)),
        ("en-US", "fifty percent", "50%", (0, 2)),
        ("en-US", "the twenty-first of May", "the 21st of May", (0, 4)),
        ("en-US", "the twenty-first of May", "the 22nd of May", (1, 4)),
        ("en-US", "at three p.m.", "at 3pm", (0, 3)),
        ("en-US", "at 3 pm", "at three p m", (0, 3)),
        ("en-US", "three pm", "3:00 PM", (0, 2)),
        ("en-US", "three o'clock", "3:00", (0, 2)),
        ("en-US", "seven thirty", "7:30", (0, 2)),
        ("en-US", "nineteen eighty four", "1984", (0, 2)),
        ("en-US", "1984", "nineteen eighty-four", (0, 1)),
        ("en-US", "the nineteen nineties", "the 1990s", (0, 2)),
        ("en-US", "room two oh one", "room 201", (0, 4)),
        ("en-US", "call five five five one two three four", "call 555-1234", (0, 8)),
        ("en-US", "call five five five one two three four", "call 555-1235", (1, 8)),
        ("en-US", "one two three four five", "one two three four", (1, 5)),
        ("en-US", "5551234", "five five five one two three five", (1, 1)),
        ("en-US", "minus five degrees", "-5°", (0, 3)),
        ("en-US", "on July fourth", "on July 4", (0, 3)),
        ("en-US", "on May the fourth", "on May 4th", (0, 3)),
        ("en-US", "half a million", "500,000", (0, 1)),
        ("en-US", "seventy-five cents", "75¢", (0, 2)),
        ("en-US", "five dollars fifty", "$5.50", (0, 2)),
        ("de-DE", "sieben Uhr dreißig", "7:30 Uhr", (0, 3)),
        ("de-DE", "um sieben Uhr", "um 7:00 Uhr", (0, 3)),
        ("fr-FR", "dix-sept heures trente", "17h30", (0, 3)),
        ("fr-FR", "cinq pour cent", "5 %", (0, 2)),
        ("es-ES", "cinco por ciento", "5%", (0, 2)),
        ("en-US", "double oh seven", "007", (0, 3)),
        ("de-DE", "am dritten Mai um fünfundzwanzig nach zehn", "am 3. Mai um 25 nach 10", (0, 7)),
        ("de-DE", "drei Komma fünf Prozent", "3,5 %", (0, 2)),
        ("de-DE", "tausend Euro", "1.000 €", (0, 2)),
        ("und", "zehn Meter", "10 Meter", (0, 2)),
        ("fr-FR", "quatre-vingt-dix euros", "90 €", (0, 2)),
        ("es-ES", "mil novecientos ochenta y cuatro", "1984", (0, 1)),
        ("it-IT", "ventitré", "23", (0, 1)),
        ("pt-BR", "vinte e cinco", "25", (0, 1)),
        ("nl-NL", "vijfentwintig", "25", (0, 1)),
        ("hi-IN", "१० बजे", "10 बजे", (0, 2)),
        ("ar-EG", "الساعة ١٠", "الساعة 10", (0, 2)),
        ("hi-IN", "दस बजे", "10 बजे", (1, 2)),  # not read: Hindi number words
    ],
)
def test_numbers(language: str, reference: str, hypothesis: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, hypothesis, language) == expected


@pytest.mark.parametrize(
    "text", ["İi ıI", "ﬁve ½ Ⅳ ①", "दिन 25 zwölf", "$5.50, 3:00 p.m. & №7", "\u0301\u200d\ufe0f", "五百 5 ten"]
)
def test_a_normalized_text_stays_as_it_is(text: str) -> None:
    assert normalize(normalize(text, "en"), "en") == normalize(text, "en")


@pytest.mark.slow
def test_word_errors_of_hostile_transcript_take_linear_time() -> None:
    """text2num alone takes the square: two minutes for a text of this length."""
    assert word_errors("ten", "twenty five house and " * 20_000, "en-US") == (60_000, 1)
