"""Converts cumulative partial transcripts into the text that each one adds."""


class CumulativePartials:
    """Computes what each cumulative partial transcript adds to the previous one of the same item."""

    def __init__(self) -> None:
        self._whole: dict[str | None, str] = {}

    def addition(self, item_id: str | None, whole: str) -> str:
        """Return the text from the first difference on; empty if there is no difference."""
        before = self._whole.get(item_id, "")
        self._whole = {item_id: whole}
        same = 0
        for a, b in zip(before, whole, strict=False):
            if a != b:
                break
            same += 1
        return whole[same:]
