"""Partial transcripts that an endpoint sends whole each time, as the pieces that they add."""


class WholePartials:
    """What each whole partial adds to the one before it of the same item."""

    def __init__(self) -> None:
        self._whole: dict[str | None, str] = {}

    def addition(self, item_id: str | None, whole: str) -> str:
        """The text from the first difference on; empty where there is none."""
        before = self._whole.get(item_id, "")
        self._whole = {item_id: whole}
        same = 0
        for a, b in zip(before, whole, strict=False):
            if a != b:
                break
            same += 1
        return whole[same:]
