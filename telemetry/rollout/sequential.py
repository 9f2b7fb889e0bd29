"""Bounds that hold however often, and whenever, somebody looks.

A difference is estimated again and again while turns arrive. Multiplied by the turns that it is taken over it is,
approximately, a Brownian motion with drift whose clock are the turns: the central limit theorem for sums over clusters,
with an estimated variance (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, *Time-uniform central limit theory and
asymptotic confidence sequences*, Ann. Statist. 52, 2024). The boundary is the one-sided normal mixture of Robbins
(*Statistical Methods Related to the Law of the Iterated Logarithm*, Ann. Math. Stat. 41, 1970) as Howard, Ramdas,
McAuliffe & Sekhon give it (*Time-uniform, nonparametric, nonasymptotic confidence sequences*, Ann. Statist. 49, 2021,
proposition 6)::

    crossed at n turns   when   z >= sqrt(2 (1 + r / n) ln(1 + sqrt(1 + n / r) / (2 level)))

A motion without drift ever crosses it with probability `level` at most (Ville's inequality). The constant `r` only says
where the boundary is closest to zero: MIXTURE_TURNS puts that at about 400 turns. At 200 turns, where a
serious regression should be seen, it is as close within 2 %, and little farther out after thousands, when promotions
come.

There is no schedule of looks to keep to, and no error is spent by looking.
"""

import math
from typing import Final

LARGEST_LEVEL: Final = 0.15
MIXTURE_TURNS: Final = 50.0
# A path crosses the boundary when chance carries it there, before its drift alone would: in half of all cases while the
# drift is so many standard errors short of it.
FLUCTUATION: Final = 0.35
# A forecast of more turns than this says nothing.
MOST_TURNS_FORECAST: Final = 10**9


def boundary(error_level: float, turns: float, mixture_turns: float = MIXTURE_TURNS) -> float:
    """Return how many standard errors from zero the bounds lie after so many turns, in one direction; infinity without
    turns. They are closest to zero at about eight times `mixture_turns`.

    Raises ValueError unless the level is above 0 and at most LARGEST_LEVEL.
    """
    if not 0 < error_level <= LARGEST_LEVEL:
        raise ValueError(f"an error level lies above 0 and is at most {LARGEST_LEVEL}, not {error_level}")
    if turns <= 0:
        return math.inf
    mixed = math.sqrt(1 + turns / mixture_turns) / (2 * error_level)
    return math.sqrt(2 * (1 + mixture_turns / turns) * math.log1p(mixed))


def sequential_p_value(z: float, turns: float) -> float:
    """The smallest error level whose boundary `z` standard errors cross after so many turns: a p-value that may be
    looked at all the time (one-sided, 1 at most)."""
    if z <= 0 or turns <= 0:
        return 1.0
    exponent = z**2 / (2 * (1 + MIXTURE_TURNS / turns))
    # The boundary solved for its level; exp(-x) / (1 - exp(-x)) is 1 / (exp(x) - 1) without overflow.
    return min(1.0, math.sqrt(1 + turns / MIXTURE_TURNS) / 2 * math.exp(-exponent) / -math.expm1(-exponent))


def turns_until_shown(z: float, turns: int, error_level: float, settled_z: float | None = None) -> int | None:
    """Forecast the number of turns altogether after which a difference that is `z` standard errors from zero after
    `turns` of them crosses the boundary, if it stays as it is; None where it never does, or only after
    MOST_TURNS_FORECAST.

    `settled_z` is what `z` would be without the part of its variance that more turns take away altogether; that part
    becomes smaller as the number of turns becomes larger.
    """
    if z <= 0 or turns <= 0:
        return None
    settled = z**-2 if settled_z is None else settled_z**-2

    def is_shown(at: int) -> bool:
        variance = (settled + (z**-2 - settled) * turns / at) * turns / at
        return variance**-0.5 + FLUCTUATION >= boundary(error_level, at)

    high = turns
    while not is_shown(high):
        high *= 2
        if high > MOST_TURNS_FORECAST:
            return None
    low = high // 2 if high > turns else turns
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def holm(p_values: dict[str, float], error_level: float) -> dict[str, bool]:
    """Reject those of several hypotheses that can be when the chance of any false rejection stays below `error_level`.

    Holm, *A simple sequentially rejective multiple test procedure*, Scand. J. Statist. 6 (1979).
    """
    rejected = dict.fromkeys(p_values, False)
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] > error_level / (len(p_values) - rank):
            break
        rejected[name] = True
    return rejected
