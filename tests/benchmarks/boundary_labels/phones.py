# ruff: noqa: RUF001 - the signs of the International Phonetic Alphabet are intended
"""The class of the last phone of a text by espeak-ng's transcription, which clips are stratified by."""

import ctypes
from typing import Any, Final

import espeakng_loader

_ESPEAK_VOICES: Final = {"en": "en-us", "fr": "fr", "es": "es-419", "it": "it", "ru": "ru"}
_RETRIEVAL: Final = 1
_UTF8: Final = 1
_IPA: Final = 0x02
CLASSES: Final = {
    "nasal": "mnŋɲɱɴ",
    "stop": "pbtdkgɡʔcɟqʈɖ",
    "fricative": "fvszʃʒθðxχɣhçʝɸβɕʑʂʐʁ",
    "approximant": "lɫɭʎrɹɾɻɚɝjwɥɐ̯",
}
_VOWELS: Final = "iyɨʉɯuɪʏʊeøɘɵɤoəɛœɜɞʌɔæɐaɶɑɒᵻ"
_MARKS: Final = "ˈˌːʲʷʰˑ̩̃͡ ‿-."  # stress, length, palatalization, nasality: not phones


class FinalPhones:
    """espeak-ng's transcription of texts; one instance per process, because the library has global state."""

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        self._library.espeak_Initialize(_RETRIEVAL, 0, espeakng_loader.get_data_path().encode(), 0)
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p

    def ipa(self, text: str, language: str) -> str:
        """The transcription of a text, with its clauses joined by spaces."""
        if self._library.espeak_SetVoiceByName(_ESPEAK_VOICES[language].encode()) != 0:
            raise ValueError(f"espeak-ng has no voice for language {language!r}")
        left = ctypes.c_char_p(text.encode())
        clauses: list[str] = []
        while left.value:
            clause = self._library.espeak_TextToPhonemes(ctypes.byref(left), _UTF8, _IPA)
            clauses.append(clause.decode() if clause else "")
        return " ".join(clause for clause in clauses if clause.strip())

    def final_class(self, text: str, language: str) -> str | None:
        """`nasal`, `stop`, `fricative`, `approximant` or `vowel`; None if the text has no transcription."""
        return phone_class(self.ipa(text, language))


def phone_class(ipa: str) -> str | None:
    """The class of the last phone of a transcription. An affricate ends in its fricative; a nasal vowel is a vowel."""
    for sign in reversed(ipa):
        if sign in _MARKS:
            continue
        if sign in _VOWELS:
            return "vowel"
        return next((name for name, signs in CLASSES.items() if sign in signs), None)
    return None
