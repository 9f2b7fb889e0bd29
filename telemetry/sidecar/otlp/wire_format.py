"""The parts of protobuf's encoding on the wire: numbers of variable length, and where a field ends."""

from typing import Final

_VARINT_BYTES_MAX: Final = 10


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends. Raises IndexError and ValueError."""
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number is longer than 64 bits")


def after(data: bytes, at: int, tag: int) -> int:
    """Where a field ends that is not of bytes; its type is in the lowest three bits of the tag. Raises ValueError."""
    match tag & 7:
        case 0:
            at = varint(data, at)[1]
        case 1:
            at += 8
        case 5:
            at += 4
        case _:
            raise ValueError("a group, which OTLP does not have")
    if at > len(data):
        raise ValueError("a field ends behind its message")
    return at


def field_of_bytes(number: int, content: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
