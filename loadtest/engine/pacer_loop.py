"""The loop of the pacer thread: sends what is due on every socket of a worker without needing the interpreter.

Compiled by Numba, which this module imports: only `loadtest.engine.pacer` imports it, once calls are to be paced. The
functions touch no Python object, allocate nothing and never block on a socket.

Each call has a place: a row of `places`, an entry of `wake`, and a mutex. Whoever changes a row, or writes to its
socket, holds the mutex, be it the loop or Python; so there is one writer at any time, bytes are never mixed, and once a
place was given back nothing can be written to its descriptor any more. The loop only tries to lock: a place that is
being changed comes up again a moment later. What a socket does not accept waits in the place's queue, in order.
"""

# Numba and llvmlite have no type information; the types of this module are those that it states to Numba.
# pyright: basic, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, config, njit, types
from numba.extending import intrinsic


def _can_cache() -> bool:
    """Return whether the folder for compiled functions can be written: Numba refuses to compile for one that cannot."""
    try:
        Path(config.CACHE_DIR).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.CACHE_DIR):
            return True
    except OSError:
        return False


CACHED: Final = bool(config.CACHE_DIR) and _can_cache()

# Columns of a place.
FD: Final = 0
DUE: Final = 1  # when the next frame is due; NEVER: no frames are sent
FRAME_NS: Final = 2
SENT: Final = 3  # how many frames of the call have been offered to the socket
BACKGROUND: Final = 4  # addresses of the frames' bytes and of where each ends, and how many there are
BACKGROUND_ENDS: Final = 5
BACKGROUND_COUNT: Final = 6
BACKGROUND_NEXT: Final = 7
CLIP: Final = 8
CLIP_ENDS: Final = 9
CLIP_COUNT: Final = 10  # 0: no utterance is being sent
CLIP_NEXT: Final = 11  # negative: so many frames of the background come first
SPEECH_START: Final = 12  # the frames of the utterance that hold the first and the last sample of speech
SPEECH_END: Final = 13
START_FRAME: Final = 14  # of those two frames: its number in the call, -1 until it was offered; when it was due,
START_DUE: Final = 15  # offered, and handed over; and its size
START_OFFERED: Final = 16
START_GONE: Final = 17
START_BYTES: Final = 18
END_FRAME: Final = 19
END_DUE: Final = 20
END_OFFERED: Final = 21
END_GONE: Final = 22
END_BYTES: Final = 23
END_UNSENT: Final = 24  # bytes that had not left this machine then; -1: not known
ERRNO: Final = 25  # of the error that broke the connection
QUEUE_FIRST: Final = 26  # cumulative counts of what had to wait: parts that left the queue, and that entered it,
QUEUE_LAST: Final = 27
QUEUED_BYTES: Final = 28  # and their bytes
DRAINED_BYTES: Final = 29
HELD_UP: Final = 30  # frames that had to wait
BLOCKED_WORST: Final = 31  # how long a frame waited at most, of those that count
COUNTED_FROM: Final = 32  # the number of the first frame that counts
HEAD: Final = 33  # address of what begins each frame, 0 where frames are complete
FRAMES: Final = 34  # where those frames are made that begin so: address, size, and how much is taken by what waits
FRAMES_BYTES: Final = 35
FRAMES_TAKEN: Final = 36
COLUMNS: Final = 40

# Columns of a head: how many numbers it has, the addresses of its text and of its numbers, the mask of the rest of a
# frame (-1: the rest begins with it, twice), the first byte of a frame, and where the text ends. Then follow, for each
# number, where the text before it ends, and the step.
NUMBERS: Final = 0
TEXT_AT: Final = 1
NUMBERS_AT: Final = 2
MASK: Final = 3
FIRST_BYTE: Final = 4
TEXT_END: Final = 5
OF_NUMBER: Final = 6

# Columns of a part in the queue.
PART_AT: Final = 0
PART_BYTES: Final = 1
PART_OFFERED: Final = 2
PART_FRAME: Final = 3  # its number in the call; -1: no frame

# Entries of the control array.
STOP: Final = 0
PLACES: Final = 1  # how many rows may be in use
LOGGED: Final = 2  # how many frames' lateness has been logged
CONTROLS: Final = 8

NEVER: Final = 2**62
MUTEX_BYTES: Final = 64
_EAGAIN: Final = 11
_EINTR: Final = 4
_NOT_READ: Final = 110  # ETIMEDOUT: the endpoint has not read for far too long
_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_SEND_FLAGS: Final = 0x4040  # MSG_NOSIGNAL | MSG_DONTWAIT
_UNSENT_REQUEST: Final = 0x894B  # SIOCOUTQNSD
_LONGEST_SLEEP_NS: Final = 5_000_000
_LOCKED_NS: Final = 100_000
_RETRY_NS: Final = 1_000_000
_SLOW_RETRY_NS: Final = 5_000_000
_BLOCKED_LONG_NS: Final = 20_000_000
_PARTS_AT_ONCE: Final = 16
_REPORT_FRAMES: Final = 256
_HEADER_BYTES: Final = 14  # of a masked WebSocket frame, at the most
_DIGITS: Final = 20


class Shared(NamedTuple):
    """The arrays that the thread and Python share."""

    control: Any
    places: Any  # a row of COLUMNS for each socket
    wake: Any  # when each place is to be looked at next
    news: Any  # 1: Python has to look at the place
    queues: Any
    lateness: Any  # of each place's last frames, by their numbers
    log: Any  # the lateness of the last frames of all places
    mutexes: Any  # of each place, and behind them one for `control[LOGGED]`


class OfferedBytes(NamedTuple):
    """Bytes for a socket: their address and size, when they were offered, and the number of the frame, -1 if none."""

    at: int
    size: int
    offered: int
    frame: int


_address = types.intp
_send = types.ExternalFunction("send", types.intp(types.int32, _address, types.intp, types.int32))
_errno_at = types.ExternalFunction("__errno_location", _address())
_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, _address))
_sleep_until = types.ExternalFunction("clock_nanosleep", types.int32(types.int32, types.int32, _address, _address))
_ioctl = types.ExternalFunction("ioctl", types.int32(types.int32, types.uint64, _address))
_lock = types.ExternalFunction("pthread_mutex_lock", types.int32(_address))
_try_lock = types.ExternalFunction("pthread_mutex_trylock", types.int32(_address))
_unlock = types.ExternalFunction("pthread_mutex_unlock", types.int32(_address))


@intrinsic
def _uint32_at(typing_context: Any, address: Any) -> Any:
    """Read 32 bits at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

    return types.int64(types.intp), generate


@intrinsic
def _bytes_at(typing_context: Any, address: Any) -> Any:
    """Return a pointer to the bytes at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.CPointer(types.uint8)(types.intp), generate


@njit(nogil=True, cache=CACHED, inline="never")
def _now(scratch):
    _gettime(_MONOTONIC, scratch.ctypes.data)
    return scratch[0] * 1_000_000_000 + scratch[1]


@njit(nogil=True, cache=CACHED)
def _errno():
    return _uint32_at(_errno_at())


@njit(nogil=True, cache=CACHED)
def _queue(row, queue, part):
    """Queue bytes behind those that wait already. Without room for another part, the connection counts as broken."""
    if row[QUEUE_LAST] - row[QUEUE_FIRST] >= queue.shape[0]:
        row[ERRNO] = _NOT_READ
        return
    if row[QUEUE_FIRST] == row[QUEUE_LAST]:
        row[QUEUE_FIRST] = row[QUEUE_LAST] = 0  # memory that a longer queue has not needed is not touched
    waiting = queue[row[QUEUE_LAST] % queue.shape[0]]
    waiting[PART_AT], waiting[PART_BYTES] = part.at, part.size
    waiting[PART_OFFERED], waiting[PART_FRAME] = part.offered, part.frame
    row[QUEUE_LAST] += 1
    row[QUEUED_BYTES] += part.size


@njit(nogil=True, cache=CACHED)
def _offer(row, queue, part):
    """Send bytes, or let what is not accepted wait; return whether all was accepted."""
    if row[ERRNO] != 0:
        return True
    sent = 0
    if row[QUEUE_FIRST] == row[QUEUE_LAST]:
        sent = _send(row[FD], part.at, part.size, _SEND_FLAGS)
        if sent == part.size:
            return True
        if sent < 0:
            error = _errno()
            if error != _EAGAIN and error != _EINTR:
                row[ERRNO] = error
                return True
            sent = 0
    _queue(row, queue, OfferedBytes(part.at + sent, part.size - sent, part.offered, part.frame))
    return False


@njit(nogil=True, cache=CACHED)
def _flush(row, queue, scratch):
    """Send what waits, as far as the socket accepts it."""
    for _ in range(_PARTS_AT_ONCE):
        if row[QUEUE_FIRST] == row[QUEUE_LAST] or row[ERRNO] != 0:
            return
        part = queue[row[QUEUE_FIRST] % queue.shape[0]]
        sent = _send(row[FD], part[PART_AT], part[PART_BYTES], _SEND_FLAGS)
        if sent < 0:
            error = _errno()
            if error != _EAGAIN and error != _EINTR:
                row[ERRNO] = error
            return
        row[DRAINED_BYTES] += sent
        part[PART_AT] += sent
        part[PART_BYTES] -= sent
        if part[PART_BYTES] != 0:
            return
        row[QUEUE_FIRST] += 1
        if part[PART_FRAME] >= row[COUNTED_FROM]:
            row[BLOCKED_WORST] = max(row[BLOCKED_WORST], _now(scratch) - part[PART_OFFERED])


@njit(nogil=True, cache=CACHED)
def _frame_of(base, ends, index):
    """Return the address and the size of a frame."""
    begin = 0 if index == 0 else _uint32_at(ends + 4 * (index - 1))
    return base + begin, _uint32_at(ends + 4 * index) - begin


@njit(nogil=True, cache=CACHED)
def _write_number(to, at, value):
    """Write a number in decimal digits; return where it ends."""
    end, rest = at + 1, value // 10
    while rest != 0:
        end += 1
        rest //= 10
    for place in range(end - 1, at - 1, -1):
        to[place] = 48 + value % 10
        value //= 10
    return end


@njit(nogil=True, cache=CACHED)
def _headed_frame(row, rest_at, rest_size):
    """Make the frame of the next head and what all calls share of it: masked, with a WebSocket header before it.

    Returns its address and size; a size of 0 if there is no room.
    """
    head = carray(_bytes_at(row[HEAD]), 8 * 1024).view(np.int64)
    if row[QUEUE_FIRST] == row[QUEUE_LAST]:
        row[FRAMES_TAKEN] = 0
    text_end, count = head[TEXT_END], head[NUMBERS]
    begin = row[FRAMES_TAKEN] + _HEADER_BYTES
    if begin + text_end + _DIGITS * count + rest_size > row[FRAMES_BYTES]:
        return row[FRAMES], 0
    to, rest = carray(_bytes_at(row[FRAMES]), row[FRAMES_BYTES]), carray(_bytes_at(rest_at), rest_size)
    text = carray(_bytes_at(head[TEXT_AT]), text_end)
    numbers = carray(_bytes_at(head[NUMBERS_AT]), 8 * count).view(np.int64)
    end, number = begin, 0
    for at in range(text_end + 1):
        while number < count and head[OF_NUMBER + 2 * number] == at:
            end = _write_number(to, end, numbers[number])
            numbers[number] += head[OF_NUMBER + 2 * number + 1]
            number += 1
        if at < text_end:
            to[end] = text[at]
            end += 1
    # The rest was masked as if it came first: the key on the wire is its mask, rotated by the length of the head.
    skipped = 8 if head[MASK] < 0 else 0
    for at in range(4):
        turned = (at - (end - begin)) & 3
        to[begin - 4 + at] = rest[turned] if skipped else (head[MASK] >> (8 * turned)) & 0xFF
    for at in range(begin, end):
        to[at] ^= to[begin - 4 + ((at - begin) & 3)]
    for at in range(skipped, rest_size):
        to[end + at - skipped] = rest[at]
    end += rest_size - skipped
    length, first = end - begin, begin - 4
    extended = 0 if length < 126 else 2 if length < 65_536 else 8
    for at in range(extended):
        to[first - 1 - at] = (length >> (8 * at)) & 0xFF
    first -= extended
    to[first - 1] = 0x80 | (length if extended == 0 else 126 if extended == 2 else 127)
    to[first - 2] = head[FIRST_BYTE]
    return row[FRAMES] + first - 2, end - first + 2


@njit(nogil=True, cache=CACHED)
def _send_frame(row, queue, lateness, offered, scratch):
    """Offer the frame that is due; return when it was handed over, and whether Python has to hear of it."""
    number, due, clip_frame = row[SENT], row[DUE], -1
    if row[CLIP_COUNT] != 0 and row[CLIP_NEXT] >= 0:
        clip_frame = row[CLIP_NEXT]
        at, size = _frame_of(row[CLIP], row[CLIP_ENDS], clip_frame)
    else:
        at, size = _frame_of(row[BACKGROUND], row[BACKGROUND_ENDS], row[BACKGROUND_NEXT])
        row[BACKGROUND_NEXT] = (row[BACKGROUND_NEXT] + 1) % row[BACKGROUND_COUNT]
    if row[HEAD] != 0:
        at, size = _headed_frame(row, at, size)
        if size == 0:
            row[ERRNO] = _NOT_READ
    accepted = _offer(row, queue, OfferedBytes(at, size, offered, number))
    if row[HEAD] != 0 and not accepted:
        row[FRAMES_TAKEN] = at + size - row[FRAMES]
    gone = _now(scratch)
    lateness[number % lateness.shape[0]] = gone - due
    row[SENT] = number + 1
    row[DUE] = due + row[FRAME_NS]
    news = (number + 1) % _REPORT_FRAMES == 0 or not accepted or row[ERRNO] != 0
    if not accepted:
        row[HELD_UP] += 1
    if row[CLIP_COUNT] != 0:
        row[CLIP_NEXT] += 1
    if clip_frame < 0:
        return gone, news
    if clip_frame == row[SPEECH_START]:
        row[START_FRAME], row[START_DUE], row[START_OFFERED], row[START_GONE] = number, due, offered, gone
        row[START_BYTES] = size
        news = True
    if clip_frame == row[SPEECH_END]:
        row[END_FRAME], row[END_DUE], row[END_OFFERED], row[END_GONE], row[END_UNSENT] = number, due, offered, gone, -1
        row[END_BYTES] = size
        scratch[0] = 0
        if _ioctl(row[FD], _UNSENT_REQUEST, scratch.ctypes.data) == 0:
            row[END_UNSENT] = scratch[0] + row[QUEUED_BYTES] - row[DRAINED_BYTES]
        news = True
    if clip_frame + 1 == row[CLIP_COUNT]:
        row[CLIP_COUNT] = 0
    return gone, news


@njit(nogil=True, cache=CACHED)
def _next_look(row, queue, now):
    """Return when a place is to be looked at again."""
    if row[ERRNO] != 0:
        return NEVER
    due = max(row[DUE], now + _RETRY_NS) if row[DUE] < now else row[DUE]  # one frame a pass: never in a burst
    if row[QUEUE_FIRST] == row[QUEUE_LAST]:
        return due
    waits = now - queue[row[QUEUE_FIRST] % queue.shape[0]][PART_OFFERED]
    return min(due, now + (_RETRY_NS if waits < _BLOCKED_LONG_NS else _SLOW_RETRY_NS))


@njit(nogil=True, cache=CACHED)
def pace(shared, scratch):
    """Send what is due on all places until `control[STOP]` is set."""
    control, places, wake, news, queues, lateness, log, mutexes = shared
    now = _now(scratch)
    mutex_at = mutexes.ctypes.data
    log_mutex = mutex_at + places.shape[0] * MUTEX_BYTES
    logged = 0
    while control[STOP] == 0:
        next_wake = now + _LONGEST_SLEEP_NS
        for place in range(control[PLACES]):
            if wake[place] > now:
                next_wake = min(next_wake, wake[place])
                continue
            mutex = mutex_at + place * MUTEX_BYTES
            if _try_lock(mutex) != 0:
                next_wake = min(next_wake, now + _LOCKED_NS)  # never spin: the holder may need this processor
                continue
            row, queue = places[place], queues[place]
            if wake[place] <= now:  # still: Python may have changed it before it was locked
                if row[QUEUE_FIRST] != row[QUEUE_LAST]:
                    _flush(row, queue, scratch)
                    if row[QUEUE_FIRST] == row[QUEUE_LAST] or row[ERRNO] != 0:
                        news[place] = 1
                    now = _now(scratch)
                if row[DUE] <= now and row[ERRNO] == 0:
                    due = row[DUE]
                    now, tell = _send_frame(row, queue, lateness[place], now, scratch)
                    log[logged % log.shape[0]] = now - due
                    logged += 1
                    if tell:
                        news[place] = 1
                wake[place] = _next_look(row, queue, now)
            next_wake = min(next_wake, wake[place])
            _unlock(mutex)
        if logged != control[LOGGED] and _try_lock(log_mutex) == 0:
            control[LOGGED] = logged
            _unlock(log_mutex)
        now = _now(scratch)
        if next_wake > now:
            scratch[0], scratch[1] = next_wake // 1_000_000_000, next_wake % 1_000_000_000
            _sleep_until(_MONOTONIC, _ABSOLUTE, scratch.ctypes.data, 0)
            now = _now(scratch)


# For Python, which holds the interpreter meanwhile: each takes microseconds.


@njit(cache=CACHED)
def lock(mutexes, place):
    """Lock a place. The loop holds it for the time of a frame at the most."""
    _lock(mutexes.ctypes.data + place * MUTEX_BYTES)


@njit(cache=CACHED)
def unlock(mutexes, place):
    """Unlock a place."""
    _unlock(mutexes.ctypes.data + place * MUTEX_BYTES)


@njit(cache=CACHED)
def send_message(shared, scratch, place, message, is_locked):
    """Send a message behind what waits; return whether it was accepted. Its bytes must live until it has been."""
    mutex = shared.mutexes.ctypes.data + place * MUTEX_BYTES
    if not is_locked:
        _lock(mutex)
    row = shared.places[place]
    now = _now(scratch)
    accepted = _offer(row, shared.queues[place], OfferedBytes(message.ctypes.data, message.size, now, -1))
    if not accepted:
        shared.wake[place] = min(shared.wake[place], now + _RETRY_NS)
    if not is_locked:
        _unlock(mutex)
    return accepted


@njit(cache=CACHED)
def collect(shared, deadlines, places, now):
    """Write the places with news, or whose deadline has come, to `found`.

    Returns how many these are, and how many frames have been logged.
    """
    count, news, mutex_at = 0, shared.news, shared.mutexes.ctypes.data
    for place in range(shared.control[PLACES]):
        if news[place] != 0 or deadlines[place] <= now:
            _lock(mutex_at + place * MUTEX_BYTES)
            news[place] = 0
            _unlock(mutex_at + place * MUTEX_BYTES)
            places[count] = place
            count += 1
    log_mutex = mutex_at + shared.places.shape[0] * MUTEX_BYTES
    _lock(log_mutex)
    logged = shared.control[LOGGED]
    _unlock(log_mutex)
    return count, logged
