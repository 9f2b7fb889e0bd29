"""Messages between the front and the query process, in the frames of `messages`."""

import msgspec


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A question of the front: its name, its parameters in JSON, and whether the answer is wanted in msgpack."""

    name: str
    parameters: bytes
    is_msgpack: bool


class Replied(msgspec.Struct, frozen=True, array_like=True):
    """The answer: the status of the HTTP response and its body."""

    status: int
    body: bytes


def refusal(status: int, sentence: str) -> Replied:
    """A reply that says why there is no answer."""
    return Replied(status, msgspec.json.encode({"error": sentence}))
