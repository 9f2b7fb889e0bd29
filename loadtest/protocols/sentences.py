"""Splits a stream of text into sentences, the smallest units that speech synthesis can start with."""

import re
from typing import Final

_END: Final = re.compile(r"[.!?…]+[\"')\]]*(?=\s)")
_MIN_CHARACTERS: Final = 4  # an ellipsis alone is not a sentence
_ABBREVIATED: Final = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|No|vs|etc|e\.g|i\.e|a\.m|p\.m)\.$")


class SentenceSplitter:
    """Splits streamed text. A sentence is complete once the text after it has begun, or at the end of the stream."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        """Return the sentences that this text completes."""
        self._text += text
        complete: list[str] = []
        search_from = 0
        while (end := _END.search(self._text, search_from)) is not None:
            if end.end() < _MIN_CHARACTERS or _ABBREVIATED.search(self._text[: end.end()]):
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
