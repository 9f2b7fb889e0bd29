"""What a network does to packets, as immutable values: those that never arrive, and those that arrive too late."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketLoss:
    """Packets that never arrive. `ratio` is the share lost in the long run; a packet lasts 20 ms.

    Without `burst_packets` each packet is lost independently of all others. With it, losses follow the model of Gilbert
    and Elliott: a bad state that lasts `burst_packets` on average, in which packets are lost with `bad_loss`.
    """

    ratio: float
    burst_packets: float | None = None
    bad_loss: float = 1.0

    def faults(self) -> list[str]:
        """What is wrong with it, one sentence each."""
        found: list[str] = []
        if not 0.0 < self.ratio < 1.0:
            found.append(f"A loss of {self.ratio:g} cannot be; use a share of the packets above 0 % and below 100 %.")
        if self.burst_packets is not None and not 1.0 <= self.burst_packets <= 100.0:
            found.append(f"A burst of {self.burst_packets:g} packets cannot be; use 1 to 100.")
        if not 0.0 < self.bad_loss <= 1.0:
            found.append(f"A loss of {self.bad_loss:g} inside bursts cannot be; use above 0 % and at most 100 %.")
        if self.burst_packets is None and self.bad_loss != 1.0:
            found.append("A loss inside bursts needs the length of the bursts; write all three, as in 5%/3/80%.")
        if not found and self.ratio >= self.bad_loss:
            found.append("A loss must be below the loss inside its bursts, or the line is never good.")
        if not found and self.enter > 1.0:
            found.append(
                f"A loss of {self.ratio:.3g} in bursts of {self.mean_burst_packets:g} packets cannot be; "
                "use longer bursts."
            )
        return found

    @property
    def mean_burst_packets(self) -> float:
        """The mean stay in the bad state, in packets: as asked for, or that of independent losses in a row."""
        return 1.0 / (1.0 - self.ratio) if self.burst_packets is None else self.burst_packets

    @property
    def enter(self) -> float:
        """The probability that a good state turns bad with the next packet; for independent losses, the ratio."""
        bad = self.ratio / self.bad_loss
        return bad / ((1.0 - bad) * self.mean_burst_packets)

    @property
    def label(self) -> str:
        """As it is written in a profile: `5%`, `5%/3`, `5%/3/80%`."""
        inside = "" if self.bad_loss == 1.0 else f"/{100 * self.bad_loss:g}%"
        burst = "" if self.burst_packets is None else f"/{self.burst_packets:g}"
        return f"{100 * self.ratio:g}%{burst}{inside}"


@dataclass(frozen=True, slots=True)
class Jitter:
    """Packets that come too late for the receiver's buffer and are concealed there. Audio leaves the caller on time.

    Delays beyond the quickest packet's are exponential with a mean; a packet is late when its own exceeds the buffer.
    """

    mean_ms: float
    buffer_ms: float

    def faults(self) -> list[str]:
        """What is wrong with it, one sentence each."""
        if 0.0 < self.mean_ms <= 1000.0 and 0.0 < self.buffer_ms <= 5000.0:
            return []
        return [
            f"A jitter of {self.mean_ms:g} ms with a buffer of {self.buffer_ms:g} ms cannot be; "
            "use up to 1000 ms, and a buffer of up to 5000 ms."
        ]

    @property
    def late_ratio(self) -> float:
        """The share of packets that is late in the long run."""
        return math.exp(-self.buffer_ms / self.mean_ms)

    @property
    def label(self) -> str:
        """As it is written in a profile: `20ms/60ms`."""
        return f"{self.mean_ms:g}ms/{self.buffer_ms:g}ms"
