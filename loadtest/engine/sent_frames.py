"""Records of the frames that a call has handed to the socket."""

from dataclasses import dataclass

from loadtest.conversation.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that the socket has not accepted, when it was offered, and the exchange whose evidence it affects."""

    offered_perf_ns: int
    exchange: Exchange | None  # None: it cannot affect any metric
    until_bytes: int  # it has been passed to the kernel when the outbox has drained this many


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame of an utterance that was handed to the socket: its number, and from when until when."""

    index: int
    sent_perf_ns: int
    gone_perf_ns: int
    unsent_bytes: int | None  # that had not left this machine then; None: not known, or not asked
    frame_bytes: int
