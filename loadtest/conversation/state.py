"""Where a conversation stands."""

from enum import Enum


class State(Enum):
    """See `loadtest.conversation.conversation` for the ways between them."""

    THINKING = "thinking"
    SPEAKING = "speaking"
    WAITING = "waiting"
    HEARING = "hearing"
    OVER = "over"
