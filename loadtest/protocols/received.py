"""The messages that arrive on a wire: read once by a table of types, counted once, put together to replies.

A message of JSON is read by `JsonMessages`. `ReplyUnderWay` is the reply of a wire that names none. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from loadtest.protocols.base import Content, EventKind, Message, VoiceEvent
from loadtest.protocols.error_objects import violation
from loadtest.protocols.failure import SECOND_NS, Failure
from loadtest.protocols.foreign import message_type
from loadtest.protocols.json_fields import Json, MalformedError, as_object, parse_object

# The first argument is what reads the messages.
Handler = Callable[[Any, str, Json], Sequence[VoiceEvent]]


class JsonMessages:
    """Reads messages of JSON that say what they are, by a table of handlers. One that returns nothing makes OTHER."""

    # On the class, not on each object: bound methods in an object would be a reference cycle that only the garbage
    # collector breaks.
    handlers: ClassVar[Mapping[str, Handler]] = {}
    unused: ClassVar[frozenset[str]] = frozenset()  # types that no caller needs
    type_key: str = "type"

    def receive(self, message: Message) -> Sequence[VoiceEvent]:
        """Decode one message; never raises."""
        raw_type = ""
        try:
            fields = parse_object(message)
            raw_type = message_type(fields, self.type_key, message)
            return self.handle(raw_type, fields, message) or [VoiceEvent(EventKind.OTHER, raw_type)]
        except MalformedError as error:
            return malformed(raw_type, error)

    def handle(self, raw_type: str, fields: Json, message: Message) -> Sequence[VoiceEvent]:
        """Return the events of a message of this type. May raise MalformedError."""
        del message
        handler = self.handlers.get(raw_type)
        return unhandled(raw_type, self.unused) if handler is None else handler(self, raw_type, fields)


def unhandled(raw_type: str, unused: frozenset[str]) -> list[VoiceEvent]:
    """Return the event of a message that nothing handles: known and not needed, or unknown."""
    return [VoiceEvent(EventKind.OTHER if raw_type in unused else EventKind.UNKNOWN, raw_type)]


def malformed(raw_type: str, error: object) -> list[VoiceEvent]:
    """Return the event of a message that breaks the protocol."""
    return [violation(raw_type, f"{raw_type}: {error}" if raw_type else str(error), "malformed_message")]


class ReplyUnderWay:
    """The reply under way, if any, of a wire that names no replies. Methods return the events that they make."""

    announces = True  # whether its first sign makes RESPONSE_STARTED

    def __init__(self) -> None:
        self.is_open = False
        self.carried: set[Content] = set()
        self.owes_response = False  # a tool was called, and nothing has answered since

    def begin(self, raw_type: str) -> list[VoiceEvent]:
        """The first sign of a reply begins it."""
        if self.is_open:
            return []
        self.is_open = True
        return [VoiceEvent(EventKind.RESPONSE_STARTED, raw_type)] if self.announces else []

    def piece(self, kind: EventKind, raw_type: str, content: Content, **fields: Any) -> list[VoiceEvent]:
        """A piece of content."""
        began = self.begin(raw_type)
        self.carried.add(content)
        return [*began, VoiceEvent(kind, raw_type, **fields)]

    def done(
        self, raw_type: str, status: str = "completed", why: str | None = None, failure: Failure | None = None
    ) -> VoiceEvent:
        """End the reply."""
        event = VoiceEvent(
            EventKind.RESPONSE_DONE,
            raw_type,
            status=status,
            carried=frozenset(self.carried),
            owes_response=self.owes_response and status == "completed",
            message=why,
            failure=failure,
        )
        self.is_open = self.owes_response = False
        self.carried = set()
        return event


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


REMEMBERED_EVENTS: Final = 2048


class RepeatDetector:
    """Distinguishes repeated messages from new ones, by the id that the protocol gives each event.

    A second message with the same id is the same event again. Some servers use one id for several messages, or for a
    whole answer: an id that recurs with other content shows that the ids of its group identify nothing, and from then
    on no message of the group counts as a repeat.
    """

    def __init__(self) -> None:
        self._recent: dict[object, object] = {}
        self._before: dict[object, object] = {}
        self._not_unique: set[str] = set()

    def is_repeat(self, event_id: object, content: object, group: str = "") -> bool:
        """Return whether the same message was among at least the last `REMEMBERED_EVENTS` ones.

        One without an id, which is a text, is not. `content` is the same for the same messages alone.
        """
        if group in self._not_unique or not isinstance(event_id, str) or not event_id:
            return False
        key = (group, event_id)
        seen = self._recent.get(key, self._before.get(key))
        if seen is None:
            if len(self._recent) >= REMEMBERED_EVENTS:
                self._before, self._recent = self._recent, {}
            self._recent[key] = content
            return False
        if seen != content:
            self._not_unique.add(group)
            return False
        return True


LONGEST_S: Final = 86_400.0  # of a latency that an endpoint reports


def seconds_ns(value: object) -> int | None:
    """Return a latency in ns; None for what is no positive number of seconds up to a day."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * SECOND_NS) if 0 < value <= LONGEST_S else None


# The details objects of usage and the prefix of their counts.
_USAGE_PREFIXES: Final = {
    "input_token_details": "input_",
    "output_token_details": "output_",
    "input_tokens_details": "input_",
    "output_tokens_details": "output_",
    "cached_tokens_details": "cached_",
}
_NO_PREFIX: Final = frozenset({"cached_tokens"})


def flat_usage(usage: Json | None) -> dict[str, int]:
    """Flatten usage into one level of counts: output_tokens, cached_tokens, input_audio_tokens, …

    Seconds become duration_ms. Counts that are missing, negative or not whole numbers are left out, never 0.
    """
    counts: dict[str, int] = {}
    _flatten(usage or {}, "", counts)
    seconds = (usage or {}).get("seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1e9:
        counts["duration_ms"] = round(seconds * 1000)
    return counts


def _flatten(usage: Json, prefix: str, counts: dict[str, int]) -> None:
    for key, value in usage.items():
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and key.endswith("tokens"):
            counts[key if key in _NO_PREFIX else prefix + key] = value
        inner = as_object(value)
        if inner is not None and key in _USAGE_PREFIXES:
            _flatten(inner, _USAGE_PREFIXES[key], counts)


def text_pairs(metadata: Json | None) -> dict[str, str]:
    """Return metadata as string pairs; a value of another type, which the specification forbids, becomes its JSON."""
    return {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in (metadata or {}).items()
        if value is not None
    }
