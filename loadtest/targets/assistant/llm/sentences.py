"""Cutting a stream of answer text into sentences, the earliest pieces that speech synthesis can start with."""

import re
from typing import Final

_END: Final = re.compile(r"[.!?…]+[\"')\]]*(?=\s)")
_LEAST_CHARACTERS: Final = 4  # an ellipsis alone is no sentence
_ABBREVIATED: Final = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|No|vs|etc|e\.g|i\.e|a\.m|p\.m)\.$")


class SentenceSplitter:
    """Feed it text as it streams. A sentence is complete when the text after its end has begun, or at the end."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        """The sentences that this text completes."""
        self._text += text
        complete: list[str] = []
        search_from = 0
        while (end := _END.search(self._text, search_from)) is not None:
            if end.end() < _LEAST_CHARACTERS or _ABBREVIATED.search(self._text[: end.end()]):
                search_from = end.end()
                continue
            complete.append(self._text[: end.end()].strip())
            self._text = self._text[end.end() :]
            search_from = 0
        return complete

    def end(self) -> str | None:
        """What is left, if it holds anything to say."""
        rest, self._text = self._text.strip(), ""
        return rest or None
