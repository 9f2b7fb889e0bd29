"""One question to a language model and its answer with every time, and the one definition of each figure. Pure.

All times are integers of one monotonic clock in ns; None is unknown. Each figure is a property of `LlmAnswer` and is
None where it has no value; an answer with a fault has no figures at all, it is counted by its fault.

Seconds count from `asked_ns`, when the first byte of the request was handed to the open connection: setting up a new
connection is apart (`connect_s`). A chunk is what arrived in one piece, however many events it contains.
"""

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from loadtest.protocols.sentences import SentenceSplitter

SECOND_NS: Final = 1_000_000_000
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

Role = Literal["system", "user", "assistant"]
CountedBy = Literal["server", "tokenizer"]
FaultKind = Literal[
    "address",  # the host name has no address
    "connection",  # refused, unreachable, reset before anything of the answer came
    "tls",
    "unauthorized",  # HTTP 401 or 403: no key, or not a valid one
    "unknown_model",
    "rate_limited",  # HTTP 429, or an overload that the service names as one; with the wait it asks for
    "http_status",  # any other answer that is no success
    "error_in_stream",  # the stream began well and then reported an error
    "empty_choices",  # the stream ended well, and no event had a choice
    "empty_answer",  # there were choices, and neither text, reasoning nor a tool call
    "not_a_stream",  # a stream was asked for, and the whole answer came as one JSON body
    "buffered",  # a stream whose whole answer arrived in one piece: its times say nothing about the model
    "not_seen",  # likewise, while this machine did not look for so long that the delay may be its own
    "cut_off",  # the connection or the body ended before the answer was complete
    "never_ended",  # the answer was not complete within the time allowed
    "no_answer",  # nothing of it arrived within the time allowed
    "undecodable",  # neither an event stream nor JSON, or events that are no JSON
    "http",  # the endpoint violated HTTP
]


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Role
    content: str


class LlmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a model, answered as a stream.

    With `exact_length`, the model is made to write `max_tokens` tokens, where the server accepts that (`ignore_eos`,
    `min_tokens`). `extra_body` is sent as it is and wins over everything else.
    """

    messages: tuple[Message, ...]
    system: str | None = None
    max_tokens: int | None = None
    exact_length: bool = False
    json_schema: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()  # {"name": …, "description": …, "parameters": JSON schema}
    temperature: float | None = None
    seed: int | None = None
    extra_body: Mapping[str, Any] = _NOTHING


class LlmChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer as it arrived: its text, and between which moments its first and its last byte came.

    `lower_ns` is `upper_ns` where the piece is one event; where it has several, the earlier ones may have come at any
    time since `lower_ns`. `tokens` is by how many the server's running count grew, None where it sends none.
    """

    lower_ns: int
    upper_ns: int
    text: str = ""
    reasoning: str = ""
    arguments: str = ""  # of tool calls
    tokens: int | None = None
    events: int = 1


class LlmUsage(msgspec.Struct, frozen=True):
    """Counts of tokens. `prompt` includes `cached` and its `audio`, `completion` includes `reasoning`."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    audio: int | None = None
    counted_by: CountedBy = "server"
    cached_by: Literal["answer", "metrics"] = "answer"  # the page of the server's counters


class CacheCounters(msgspec.Struct, frozen=True):
    """The tokens that a server has looked up in its prefix cache since it began, and those that it found."""

    looked_up: int
    hits: int


class ServerTimings(msgspec.Struct, frozen=True):
    """The server's own times, as llama.cpp reports them."""

    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    cache_n: int | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool that the model wants; the arguments are JSON as the model wrote it, valid or not."""

    name: str
    arguments: str


class LlmFault(msgspec.Struct, frozen=True):
    """The reason why an answer has no figures: one kind, and one sentence for people."""

    kind: FaultKind
    sentence: str
    status: int | None = None
    retry_after_ns: int | None = None


class LlmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as it came, or what came of it."""

    target: str
    started_ns: int
    dns_ns: int | None = None  # the following three only where a new connection was made
    tcp_ns: int | None = None
    tls_ns: int | None = None
    asked_ns: int | None = None  # the first byte of the request was handed to the connection
    first_byte_ns: int | None = None  # of the response
    finished_ns: int | None = None  # the answer was complete
    chunks: tuple[LlmChunk, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    usage: LlmUsage | None = None
    finish_reason: str | None = None
    served_model: str | None = None  # as the response names it
    timings: ServerTimings | None = None
    keep_alives: int = 0
    stamps: Literal["kernel", "user"] = "user"
    fault: LlmFault | None = None

    @property
    def text(self) -> str:
        """The answer, without reasoning."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def structured(self) -> str:
        """The JSON that was asked for by a schema or a tool: the first tool call's arguments, else the text."""
        return self.tool_calls[0].arguments if self.tool_calls else self.text

    @property
    def connect_s(self) -> float | None:
        """Time to open the new connection; None if one was reused."""
        return None if self.tcp_ns is None else (max(self.tcp_ns, self.tls_ns or 0) - self.started_ns) / SECOND_NS

    @property
    def first_byte_s(self) -> float | None:
        """Time to the first byte of the response, which is its head."""
        return self._since_asked(self.first_byte_ns)

    @property
    def first_token_s(self) -> float | None:
        """Time to the first piece of the answer, of reasoning, or of a tool call."""
        return self._since_asked(self.chunks[0].upper_ns) if self.chunks else None

    @property
    def first_answer_token_s(self) -> float | None:
        """Time to the first piece of the answer itself: reasoning is never spoken."""
        first = next((chunk.upper_ns for chunk in self.chunks if chunk.text), None)
        return self._since_asked(first)

    @property
    def first_sentence_s(self) -> float | None:
        """Time to the end of the answer's first sentence: the earliest at which a speech synthesis can start.

        A full stop ends a sentence once text after it begins; the wide marks of Chinese and Japanese end one at once;
        the end of the answer ends the last.
        """
        splitter = SentenceSplitter()
        for chunk in self.chunks:
            if chunk.text and splitter.feed(chunk.text):
                return self._since_asked(chunk.upper_ns)
        return self._since_asked(self.finished_ns) if splitter.end() else None

    @property
    def wall_s(self) -> float | None:
        """Time to the end of the answer."""
        return self._since_asked(self.finished_ns)

    @property
    def tokens(self) -> int | None:
        """Number of the answer's tokens, reasoning included; `usage.counted_by` names who counted."""
        return None if self.usage is None or self.fault is not None else self.usage.completion

    @property
    def tokens_per_s(self) -> float | None:
        """(tokens − 1) ÷ (last − first content): the rate of writing alone."""
        span_ns = self.chunks[-1].upper_ns - self.chunks[0].upper_ns if self.chunks else 0
        return (
            None if self.tokens is None or self.tokens < 2 or not span_ns else (self.tokens - 1) * SECOND_NS / span_ns
        )

    @property
    def tokens_per_s_wall(self) -> float | None:
        """Tokens ÷ (end − asked): what a caller gets, waiting included."""
        return None if not self.tokens or not self.wall_s else self.tokens / self.wall_s

    @property
    def tokens_per_chunk(self) -> float | None:
        """Mean number of tokens in one piece."""
        return None if not self.tokens or not self.chunks else self.tokens / len(self.chunks)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """The times between chunks."""
        if self.fault is not None:
            return ()
        return tuple((later.upper_ns - earlier.upper_ns) / SECOND_NS for earlier, later in pairwise(self.chunks))

    @property
    def token_gaps_s(self) -> tuple[float, ...]:
        """The times between chunks ÷ the tokens of the later one, by the server's running count.

        Empty where the server sends no running count: a mean would hide the stalls that this is for.
        """
        known = [chunk.tokens for chunk in self.chunks[1:]]
        return tuple(gap / tokens for gap, tokens in zip(self.gaps_s, known, strict=False) if tokens)

    @property
    def stamp_error_s(self) -> float | None:
        """The largest time by which an event of the answer may be earlier than its chunk."""
        return max(((chunk.upper_ns - chunk.lower_ns) / SECOND_NS for chunk in self.chunks), default=None)

    def _since_asked(self, moment_ns: int | None) -> float | None:
        if self.fault is not None or self.asked_ns is None or moment_ns is None:
            return None
        return (moment_ns - self.asked_ns) / SECOND_NS


class NetworkPath(msgspec.Struct, frozen=True):
    """The way to a target without its model, measured once.

    `round_trip_s` is from the last byte of a small request to the first byte of its response, on a connection that is
    open: the network and the front of the server, so an upper limit of the network alone. `tcp_s` is one round trip of
    the network alone.
    """

    dns_s: float | None = None
    tcp_s: float | None = None
    tls_s: float | None = None
    round_trip_s: float | None = None
    asked: str = ""  # the small request: "OPTIONS /models"
    fault: LlmFault | None = None
