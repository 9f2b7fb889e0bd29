"""Numbers, amounts, times and percentages in one form, whether they are spelled out or written in digits. Pure.

`text2num` reads the number words of eight languages. The digits in it that belong together are not joined here: where
one text has "19 84" and the other "1984", see `words.aligned_digits`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from text_to_num import alpha2digit

LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "da")
# text2num takes time that grows with the square of the words.
_WORDS_AT_ONCE: Final = 500
_MAGNITUDES: Final = "1000000000000|1000000000|1000000|1000|100"
_ROUND: Final = re.compile(rf"(?<![\d.])(\d{{1,15}}(?:\.\d{{1,9}})?) ({_MAGNITUDES})(?![\d.])")
_DECIMAL_COMMA: Final = frozenset(
    (*("de", "fr", "es", "it", "pt", "nl", "da", "sv", "nb", "nn", "no", "fi", "is", "pl", "cs", "sk", "sl", "hr"),
     *("sr", "bs", "ro", "hu", "bg", "ru", "uk", "be", "el", "tr", "az", "id", "vi", "lt", "lv", "et", "ca", "gl"))
)  # fmt: skip
_GROUPED: Final = {
    ".": re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![\d.])(?!,\d{3})"),
    ",": re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)(?!\.\d{3}\.)"),
    "'": re.compile(r"(?<![\d.,])\d{1,3}(?:'\d{3})+(?!\d)"),
}
_COMMA_IN_DIGITS: Final = re.compile(r"(?<=\d),(?=\d)")
_DOTTED_LETTERS: Final = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.){2,}(?:[^\W\d_](?![^\W_]))?")
_ORDINAL_SIGN: Final = re.compile(
    r"(?<=\d)(?:\.?[oa]s?|er|ers|re|res|ere|ère|ères|e|es|eme|emes|ème|èmes|de|ste|te|ter|tes|ten|tem|nd|nde)\b"
)
_CURRENCIES: Final = {
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "₹": "rupee",
    "₩": "won",
    "₽": "rouble",
    "¢": "cent",
}
_AMOUNT: Final = re.compile(
    rf"([{''.join(_CURRENCIES)}]) ?(\d+(?:\.\d+)?)((?: (?:hundred|thousand|million|billion|trillion))*)"
)
_AMOUNT_BEFORE: Final = re.compile(rf"(\d) ?([{''.join(_CURRENCIES)}])")
_UNIT_WORDS: Final = {
    "dollar": "dollars dolar dolares dólar dólares dollari dollaro",
    "euro": "euros",
    "pound": "pounds",
    "rupee": "rupees",
    "rouble": "roubles ruble rubles",
    "cent": "cents",
    "percent": "prozent procent pourcent",
}
_UNITS: Final = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_UNIT: Final = re.compile(rf"(?<=\d )(?:{'|'.join(sorted(_UNITS, key=len, reverse=True))})\b")
# Their "hundred" is not a quantity; it is read before the others are.
_PER_CENT: Final = re.compile(r"\b(?:per cent|pour cent|por cientos?|por cento|per cento)\b")
_CENTS_UNNAMED: Final = re.compile(r"(?<![\d.])(\d+) (dollar|euro|pound) (\d\d)$")
_WHOLE_AMOUNT: Final = re.compile(r"(?<=\d)\.00?(?= (?:dollar|euro|pound)\b)")
_CENTS: Final = re.compile(r"(?<![\d.])(\d+) (dollar|euro|pound) (?:(?:and|und|et|y|e|en|og) )?(\d{1,2}) cent\b")
# Han numerals are written in Chinese and Japanese, in texts of any stated language.
_HAN_DIGITS: Final = {
    char: digit
    for digit, chars in enumerate(
        ("\u3007零", "一壹", "二貳贰两兩", "三參叁", "四肆", "五伍", "六陸陆", "七柒", "八捌", "九玖")
    )
    for char in chars
}
_HAN_TENS: Final = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_HAN_MYRIADS: Final = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_HAN_NUMERAL: Final = re.compile(f"[{''.join((*_HAN_DIGITS, *_HAN_TENS, *_HAN_MYRIADS))}]+")
_HAN_ROUND: Final = re.compile(rf"(\d{{1,15}}(?:\.\d{{1,9}})?)([{''.join(_HAN_MYRIADS)}])(?![{''.join(_HAN_DIGITS)}])")
_HAN_OR_DIGITS: Final = rf"(?:[{''.join((*_HAN_DIGITS, *_HAN_TENS))}]+|\d+)"
_HAN_PERCENT: Final = re.compile(rf"百分之({_HAN_OR_DIGITS}(?:[点點.]{_HAN_OR_DIGITS})?)")

_PLURALS: Final = frozenset(["ones", "twos", "threes", "fours", "fives", "sixes", "sevens", "eights", "nines", "tens"])

_Rules = tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]
_ARTICLE: Final = {
    "en": re.compile(r"(?<!half )\ban? (?=(?:hundred|thousand|million|billion|trillion|dollar|euro|pound)\b)"),
    "de": re.compile(r"\beine[nr]? (?=(?:million|milliarde|billion)\b)"),
}
_DECADES: Final = {
    "twenties": "20s", "thirties": "30s", "forties": "40s", "fifties": "50s", "sixties": "60s", "seventies": "70s",
    "eighties": "80s", "nineties": "90s",
}  # fmt: skip
_MONTHS: Final = "january|february|march|april|may|june|july|august|september|october|november|december"
# Of the clock, where the hour is named on the other side of the minutes.
_CLOCK: Final[Mapping[str, _Rules]] = {
    "de": ((re.compile(r"\b(\d{1,2})[:.](\d\d) uhr\b"), r"\1 uhr \2"), (re.compile(r"(?<= uhr) 00\b"), "")),
    "fr": ((re.compile(r"\b(\d{1,2}) ?h ?(\d\d)\b"), r"\1 heures \2"), (re.compile(r"(?<= heures) 00\b"), "")),
}
# Of English, before and after the words have become digits.
_WRITTEN_ENGLISH: Final[_Rules] = (
    (re.compile(r"(?<![\d:])(\d{1,2}):00(?= ?[ap] ?\.? ?m\b)"), r"\1"),
    (re.compile(r"(?<![\d:])(\d{1,2}):00(?![\d:])"), r"\1 o'clock"),
    (re.compile(r"\bhalf an? (?=(?:million|billion|trillion)\b)"), "0.5 "),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"\bno\. ?(?=\d)"), "number "),
    (re.compile(r"(?<=\d) ?°c\b"), " degrees celsius"),
    (re.compile(r"(?<=\d) ?°f\b"), " degrees fahrenheit"),
    (re.compile(r"(?<=\d) ?°"), " degrees"),
    (re.compile(r"(?<=\w) ?& ?(?=\w)"), " and "),
    (re.compile(r"(?<![\w.])\+(?=\d)"), "plus "),
    (re.compile(r"(?<![\w.])\.(?=\d)"), "0."),
)
_SPOKEN_ENGLISH: Final[_Rules] = (
    (re.compile(r"\b(?:" + "|".join(_DECADES) + r")\b"), lambda match: _DECADES[match.group()]),
    (re.compile(r"\b(\d\d) (?=\d0s\b)"), r"\1"),
    (re.compile(r"\boh? (?=\d)"), "0 "),
    (re.compile(r"\bdouble (\d)\b"), r"\1 \1"),
    (re.compile(r"\btriple (\d)\b"), r"\1 \1 \1"),
    (re.compile(r"(?<!\d )\bpoint (?=\d+\b)"), "0."),
    (re.compile(r"(?<![\d.])(\d+) and a half\b"), r"\1.5"),
    (re.compile(r"(?<=\d )([ap]) m\b"), r"\1m"),
    (re.compile(rf"\b({_MONTHS}) (?:the )?(\d{{1,2}})(?:st|nd|rd|th)\b"), r"\1 \2"),
)
_LETTER_DIGIT: Final = re.compile(r"(?<=[^\W\d_])(?=\d)")
_DIGIT_LETTER: Final = re.compile(r"(?<=\d)(?=[^\W\d_])(?!(?:st|nd|rd|th|s)\b)")


def written_numbers(text: str, language: str) -> str:
    """The folded text with numbers, amounts and times as digits and words, their signs and separators resolved."""
    text = _DOTTED_LETTERS.sub(lambda match: match.group().replace(".", ""), text)
    for sign in (".", "'") if language in _DECIMAL_COMMA else (",", "'"):
        text = _GROUPED[sign].sub(lambda match, sign=sign: match.group().replace(sign, ""), text)
    if language in _DECIMAL_COMMA:
        text = _ORDINAL_SIGN.sub("", _COMMA_IN_DIGITS.sub(".", text))
    else:
        text = _COMMA_IN_DIGITS.sub(" ", text)
    text = re.sub(r"(?<![\w.])[-\u2212](?=\d)", "minus ", text)
    text = _replaced(_WRITTEN_ENGLISH if language == "en" else _CLOCK.get(language, ()), text)
    text = _AMOUNT.sub(lambda match: f"{match.group(2)}{match.group(3)} {_CURRENCIES[match.group(1)]}", text)
    text = _AMOUNT_BEFORE.sub(lambda match: f"{match.group(1)} {_CURRENCIES[match.group(2)]}", text)
    text = _han_numbers(text)
    text = re.sub(r"(?<=\d) ?%", " percent", text)
    return _DIGIT_LETTER.sub(" ", _LETTER_DIGIT.sub(" ", text))


def spoken_numbers(text: str, language: str) -> str:
    """Words separated by single spaces, with number words as digits where the language is one that is read."""
    if language in LANGUAGES:
        text = _PER_CENT.sub("percent", text)
        if language in _ARTICLE:
            text = _ARTICLE[language].sub("1 " if language == "de" else "one ", text)
        text = " ".join(
            " ".join(run) if is_plural else alpha2digit(" ".join(run), language, threshold=0)
            for is_plural, run in _numerable(text.split(" "))
        )
        if language in _DECIMAL_COMMA:
            text = _ORDINAL_SIGN.sub("", re.sub(r"(?<=\d)\.(?!\d)|(?<=\d)[ºª]", "", _COMMA_IN_DIGITS.sub(".", text)))
    if language == "en":
        text = _replaced(_SPOKEN_ENGLISH, text)
    text = _ROUND.sub(_product, text)
    text = _UNIT.sub(lambda match: _UNITS[match.group()], text)
    text = _CENTS_UNNAMED.sub(r"\1.\3 \2", _WHOLE_AMOUNT.sub("", text))
    return _CENTS.sub(lambda match: f"{match.group(1)}.{int(match.group(3)):02d} {match.group(2)}", text)


def _numerable(words: Sequence[str]) -> Iterator[tuple[bool, Sequence[str]]]:
    """Runs of words for text2num, and between them the plurals ("the ones") that it would take for numbers."""
    for is_plural, run in groupby(words, _PLURALS.__contains__):
        run_words = list(run)
        for at in range(0, len(run_words), _WORDS_AT_ONCE):
            yield is_plural, run_words[at : at + _WORDS_AT_ONCE]


def _replaced(rules: _Rules, text: str) -> str:
    for pattern, by in rules:
        text = pattern.sub(by, text)
    return text


def _product(match: re.Match[str]) -> str:
    """A number and the magnitude after it, as one number."""
    whole, _, fraction = match.group(1).partition(".")
    magnitude = int(match.group(2))
    scaled = int(whole + fraction) * magnitude
    over, rest = divmod(scaled, 10 ** len(fraction))
    return str(over) if not rest else f"{over}.{rest:0{len(fraction)}d}".rstrip("0")


def _han_numbers(text: str) -> str:
    text = _HAN_PERCENT.sub(lambda match: f"{_HAN_NUMERAL.sub(_han_number, match.group(1))}%", text)
    text = _HAN_ROUND.sub(_han_product, text)
    text = _HAN_NUMERAL.sub(_han_number, text)
    return re.sub(r"(?<=\d)[点點](?=\d)", ".", text)


def _han_product(match: re.Match[str]) -> str:
    whole, _, fraction = match.group(1).partition(".")
    return str(int(whole + fraction) * _HAN_MYRIADS[match.group(2)] // 10 ** len(fraction))


def _han_number(match: re.Match[str]) -> str:
    """The digits of a numeral: as written where it has no tens or myriads (a year, a telephone number)."""
    chars = match.group()
    if not set(chars) & (_HAN_TENS.keys() | _HAN_MYRIADS.keys()):
        return "".join(str(_HAN_DIGITS[char]) for char in chars)
    total = below_myriad = digit = 0
    for char in chars:
        if char in _HAN_DIGITS:
            digit = digit * 10 + _HAN_DIGITS[char]
        elif char in _HAN_TENS:
            below_myriad += (digit or 1) * _HAN_TENS[char]
            digit = 0
        else:
            total += ((below_myriad + digit) or 1) * _HAN_MYRIADS[char]
            below_myriad = digit = 0
    return str(total + below_myriad + digit)
