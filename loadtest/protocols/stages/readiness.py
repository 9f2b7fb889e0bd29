"""Whether the services can be reached and let the caller in, asked before the first turn. Pure."""

from collections.abc import Sequence
from typing import Final

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.http_items import HttpFailed, HttpHead, HttpItem, HttpRequest
from loadtest.protocols.stages.parts import Broken, Part, StageName
from loadtest.protocols.stages.reader import FATAL_STATUSES, ResponseReader

# A service that knows no such page still shows that it is there; one that refuses now would refuse a turn as well.
_REFUSALS: Final = FATAL_STATUSES | {429, 502, 503, 504}


class _RefusalReader(ResponseReader):
    """Reads the body of a refusal, for the sentence about it."""

    def __init__(self, stage: StageName) -> None:
        super().__init__()
        self.stage = stage

    def raw(self, data: bytes) -> list[Part]:
        """Ignore what is not about the refusal."""
        del data
        return []

    def ended(self) -> list[Part]:
        """Return nothing: there was no refusal."""
        return []


class Readiness:
    """Waits until every service has answered; the first refusal is fatal."""

    def __init__(self, requests: Sequence[HttpRequest]) -> None:
        self.requests = tuple(requests)
        self._urls = {request.request_id: request.url for request in requests}
        self._waits_for = set(self._urls)
        self._names = frozenset(self._waits_for)
        self._refused: dict[str, ResponseReader] = {}
        self._failed = False

    def owns(self, request_id: str) -> bool:
        """Whether a response answers one of these requests."""
        return request_id in self._names

    def receive(self, item: HttpItem) -> list[VoiceEvent]:
        """Decode one part of such a response."""
        if self._failed:
            return [VoiceEvent(EventKind.OTHER, "ready")]
        if isinstance(item, HttpHead) and item.status in _REFUSALS:
            stage: StageName = next(name for name in ("asr", "llm", "tts") if item.request_id.endswith(name))
            reader = self._refused[item.request_id] = _RefusalReader(stage)
            reader.url = self._urls[item.request_id]
        reader = self._refused.get(item.request_id)
        if reader is not None:
            broken = [part for part in reader.receive(item) if isinstance(part, Broken)]
            return self._fatal(broken[0]) if broken else [VoiceEvent(EventKind.OTHER, "ready")]
        if isinstance(item, HttpFailed) and item.request_id in self._waits_for:
            return self._fatal(Broken(item.reason, item.failure))
        if not isinstance(item, HttpHead) or item.status < 200 or item.request_id not in self._waits_for:
            return [VoiceEvent(EventKind.OTHER, "ready")]
        self._waits_for.discard(item.request_id)
        return [VoiceEvent(EventKind.OTHER if self._waits_for else EventKind.READY, "ready")]

    def _fatal(self, broken: Broken) -> list[VoiceEvent]:
        self._failed = True
        return [VoiceEvent(EventKind.ERROR, "ready", message=broken.message, fatal=True, failure=broken.failure)]
