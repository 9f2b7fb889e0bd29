"""Splits a stream of text into sentences, the smallest units that speech synthesis can start with.

Knows the marks of Latin, Cyrillic and Greek letters, of Chinese and Japanese, Devanagari, Arabic and Urdu.
"""

import re
from typing import Final

# Where spaces part the words, only the space after a full stop shows that it is not that of "3.5"; elsewhere the mark
# alone is enough.
_END: Final = re.compile("[.!?…؟۔।॥]+[\"')\\]”’»]*(?=\\s)|[。！？｡]+[」』”’）】]*")  # noqa: RUF001
_MIN_CHARACTERS: Final = 4  # an ellipsis alone is not a sentence
_WIDE: Final = frozenset("。！？｡")  # noqa: RUF001
_ABBREVIATED: Final = re.compile(
    r"\b(?:Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|No|Nr|vs|etc|approx|Inc|Ltd|Fig|e\.g|i\.e|a\.m|p\.m|z\.B|d\.h|bzw|usw|Hr|Fr"
    r"|Sra|Mme|p\.ej|[A-Z])\.$|^\s*\d+\.$"
)


class SentenceSplitter:
    """Splits streamed text. A sentence is complete once the text after it begins, at a wide mark, or at the end."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        """Return the sentences that this text completes."""
        self._text += text
        complete: list[str] = []
        search_from = 0
        while (end := _END.search(self._text, search_from)) is not None:
            if self._is_none(self._text[: end.end()], end.group()):
                search_from = end.end()
                continue
            complete.append(self._text[: end.end()].strip())
            self._text = self._text[end.end() :]
            search_from = 0
        return complete

    def end(self) -> str | None:
        """Return the rest, or None if it is empty."""
        rest, self._text = self._text.strip(), ""
        return rest or None

    @staticmethod
    def _is_none(text: str, mark: str) -> bool:
        """Return whether the text up to a mark is no sentence."""
        if mark[0] in _WIDE:
            return not any(character.isalnum() for character in text)
        return len(text) < _MIN_CHARACTERS or _ABBREVIATED.search(text) is not None
