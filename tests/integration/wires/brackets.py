"""The moments that we measured of a service's messages, between two of its own: right before it handed a message to its
kernel, and right after. Both hold however slow the machine is."""

from collections.abc import Mapping, Sequence

MS = 1_000_000
CLOCKS_NS = MS // 10  # what the kernel's stamp may lose on its way from the wall clock to the monotonic one
WITHIN_NS = 2 * MS

Bracket = Sequence[int]  # the moment before and the moment after


def assert_measured(turns: Sequence[Mapping[str, int | None]], sent: Sequence[Mapping[str, Bracket]]) -> None:
    """Each moment of each turn is known, and none is before its message was sent.

    A message over loopback has arrived when the service's write returns. A machine that pauses may make us read several
    at once, whose stamp is that of the last: so only one turn has to have all its moments in time.
    """
    late: list[dict[str, int]] = []
    for turn, brackets in zip(turns, sent, strict=True):
        known = {name: moment for name, moment in turn.items() if moment is not None}
        assert known.keys() == turn.keys(), turn
        early = {name: moment - brackets[name][0] for name, moment in known.items()}
        assert min(early.values()) >= -CLOCKS_NS, early
        late.append({name: moment - brackets[name][1] for name, moment in known.items()})
    print(*late, sep="\n")
    assert any(max(delays.values()) < WITHIN_NS for delays in late), late
