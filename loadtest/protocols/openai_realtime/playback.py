"""Tracks reply audio: how much of each item was sent, for truncation, and samples split between deltas."""


class ReplyAudio:
    """The audio of the latest response with audio, item by item in order."""

    def __init__(self) -> None:
        self._response_id: str | None = None
        self._sent: dict[str | None, dict[int, int]] = {}  # of each item: samples by their rate
        self._half: tuple[str | None, str | None, bytes] = (None, None, b"")

    @property
    def item_id(self) -> str | None:
        """The item of the latest audio."""
        return next(reversed(self._sent), None)

    def add(self, response_id: str | None, item_id: str | None, samples: int, rate_hz: int) -> None:
        """Add samples that arrived for an item. A new response begins a new reply."""
        if response_id != self._response_id:
            self._response_id = response_id
            self._sent = {}
        by_rate = self._sent.setdefault(item_id, {})
        by_rate[rate_hz] = by_rate.get(rate_hz, 0) + samples

    def forget(self, response_id: str | None) -> None:
        """Forget an id: what comes next under it is another reply."""
        if response_id == self._response_id:
            self._response_id, self._sent = None, {}

    def truncations(self, played_ms: int) -> list[tuple[str, int]]:
        """Return (item, heard ms) of every item not heard to its end, never more than was sent."""
        cuts: list[tuple[str, int]] = []
        before_ms = 0.0
        for item_id, by_rate in self._sent.items():
            sent_ms = sum(samples * 1000 / rate_hz for rate_hz, samples in by_rate.items())
            heard_ms = max(0.0, played_ms - before_ms)
            if item_id is not None and heard_ms < sent_ms:
                cuts.append((item_id, int(heard_ms)))
            before_ms += sent_ms
        return cuts

    def whole_samples(self, response_id: str | None, item_id: str | None, data: bytes) -> bytes:
        """Prepend the half sample that the item's previous delta ended with; keep a new half for the next one."""
        kept_response, kept_item, half = self._half
        if not half and not len(data) % 2:
            return data
        if half and (kept_response, kept_item) == (response_id, item_id):
            data = half + data
        odd = len(data) % 2
        self._half = (response_id, item_id, data[-1:] if odd else b"")
        return data[:-1] if odd else data

    @property
    def has_half_sample(self) -> bool:
        """Whether the latest delta of an item ended inside a sample."""
        return bool(self._half[2])

    def ends_inside_sample(self, response_id: str | None, item_id: str | None) -> bool:
        """Return whether the item's audio ended with half a sample."""
        return self._half[:2] == (response_id, item_id) and bool(self._half[2])
