"""Network impairments as immutable values: packets that never arrive, and packets that arrive too late."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketLoss:
    """Packets that never arrive. `ratio` is the share lost in the long run; a packet lasts 20 ms.

    Without `burst_packets` each packet is lost independently. With it, losses follow the Gilbert-Elliott model: the bad
    state lasts `burst_packets` on average, and in it packets are lost with probability `bad_loss`.
    """

    ratio: float
    burst_packets: float | None = None
    bad_loss: float = 1.0

    def faults(self) -> list[str]:
        """Return what is wrong with the values, one sentence each."""
        faults: list[str] = []
        if not 0.0 < self.ratio < 1.0:
            faults.append(f"The loss must be above 0 % and below 100 % of the packets, got {self.ratio:g}.")
        if self.burst_packets is not None and not 1.0 <= self.burst_packets <= 100.0:
            faults.append(f"The length of a burst must be 1 to 100 packets, got {self.burst_packets:g}.")
        if not 0.0 < self.bad_loss <= 1.0:
            faults.append(f"The loss inside bursts must be above 0 % and at most 100 %, got {self.bad_loss:g}.")
        if self.burst_packets is None and self.bad_loss != 1.0:
            faults.append("A loss inside bursts requires the length of the bursts; write all three, as in 5%/3/80%.")
        if not faults and self.ratio >= self.bad_loss:
            faults.append(
                "The loss must be below the loss inside bursts; otherwise the line is never in the good state."
            )
        if not faults and self.enter > 1.0:
            faults.append(
                f"A loss of {self.ratio:.3g} in bursts of {self.mean_burst_packets:g} packets is impossible; "
                "use longer bursts."
            )
        return faults

    @property
    def mean_burst_packets(self) -> float:
        """The mean length of the bad state in packets: as given, or that of consecutive independent losses."""
        return 1.0 / (1.0 - self.ratio) if self.burst_packets is None else self.burst_packets

    @property
    def enter(self) -> float:
        """The probability that the good state is followed by the bad one; for independent losses, the ratio."""
        bad = self.ratio / self.bad_loss
        return bad / ((1.0 - bad) * self.mean_burst_packets)

    @property
    def label(self) -> str:
        """The text in a profile: `5%`, `5%/3`, `5%/3/80%`."""
        inside = "" if self.bad_loss == 1.0 else f"/{100 * self.bad_loss:g}%"
        burst = "" if self.burst_packets is None else f"/{self.burst_packets:g}"
        return f"{100 * self.ratio:g}%{burst}{inside}"


@dataclass(frozen=True, slots=True)
class Jitter:
    """Packets that arrive too late for the receiver's buffer and are concealed there; the caller sends them on time.

    Delays beyond that of the fastest packet are exponential; a packet is late if its delay exceeds the buffer.
    """

    mean_ms: float
    buffer_ms: float

    def faults(self) -> list[str]:
        """Return what is wrong with the values, one sentence each."""
        if 0.0 < self.mean_ms <= 1000.0 and 0.0 < self.buffer_ms <= 5000.0:
            return []
        return [
            f"A jitter of {self.mean_ms:g} ms with a buffer of {self.buffer_ms:g} ms is out of range; "
            "use a mean of up to 1000 ms and a buffer of up to 5000 ms, both above 0."
        ]

    @property
    def late_ratio(self) -> float:
        """The share of packets that are late in the long run."""
        return math.exp(-self.buffer_ms / self.mean_ms)

    @property
    def label(self) -> str:
        """The text in a profile: `20ms/60ms`."""
        return f"{self.mean_ms:g}ms/{self.buffer_ms:g}ms"
