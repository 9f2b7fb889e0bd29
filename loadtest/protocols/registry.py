"""The registered protocols, by name. The code of a protocol is loaded when its name is asked for.

The protocols of this package are in the table `built_in`; other packages add theirs as entry points of the group
`voiceprobe.protocols`, each with the protocol's name and the module that registers it. In such a module, above a class
or a function that takes `CallerOptions` and returns a `CallerProtocol`:

    from loadtest.protocols.registry import register

    @register(
        "small-wire",
        summary="a small wire over a WebSocket",
        shows=("transcripts", "speech"),
        url_hints=("ws*://*/small",),
    )
    class SmallWireCaller(CallerProtocol):
        def __init__(self, options: CallerOptions) -> None: ...

and in the package's `pyproject.toml`:

    [project.entry-points."voiceprobe.protocols"]
    small-wire = "small_wire"

Once the package is installed, `--protocol small-wire` makes such callers. `docs/extending/protocol.md` has all of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from loadtest.errors import UsageError
from loadtest.protocols.address import SCHEMES
from loadtest.protocols.base import CallerOptions, CallerProtocol, TransportKind
from loadtest.protocols.built_in import BUILT_IN, Description, ShownStage

GROUP: Final = "voiceprobe.protocols"
# What an address is taken for that fits no protocol's patterns.
USUAL: Final = "openai-realtime"
Make = TypeVar("Make", bound=Callable[[CallerOptions], CallerProtocol])

_makers: Final[dict[str, Callable[[CallerOptions], CallerProtocol]]] = {}
_descriptions: Final = dict(BUILT_IN)


def register(
    name: str,
    *,
    summary: str,
    shows: tuple[ShownStage, ...],
    transport: TransportKind = "websocket",
    url_hints: tuple[str, ...] = (),
    proved_against: tuple[str, ...] = (),
) -> Callable[[Make], Make]:
    """Register what makes the callers of a protocol of another package. Raises ValueError if the name is taken."""

    def add(make: Make) -> Make:
        if name in _descriptions:
            raise ValueError(f"the protocol {name!r} is registered twice: give one of them another name")
        _descriptions[name] = Description(name, summary, shows, proved_against, transport, url_hints)
        _makers[name] = make
        return make

    return add


def names() -> tuple[str, ...]:
    """Return the names of all protocols. Loads none of them."""
    return tuple(sorted({*_descriptions, *_installed()}))


def names_with_scheme(scheme: str) -> tuple[str, ...]:
    """Return the names of this package's protocols whose addresses can have this scheme."""
    return tuple(name for name, row in BUILT_IN.items() if scheme in SCHEMES[row.transport])


def lines() -> tuple[str, ...]:
    """Return one line for each protocol: its name, what it is, and what it shows. Loads none of them."""
    return tuple(map(_line, names()))


def _line(name: str) -> str:
    known = _descriptions.get(name)
    if known is None:
        return f"{name}: of {' and '.join(map(_package, _installed()[name]))}"
    return f"{name}: {known.summary}. Shows: {known.shown}"


def describe(name: str) -> Description:
    """Return what a protocol is. Loads it only if it is of another package. Raises UsageError for an unknown name."""
    if name not in _descriptions:
        _load(name)
    return _descriptions[name]


def make_caller(name: str, options: CallerOptions) -> CallerProtocol:
    """Create the protocol of one conversation. Raises UsageError for an unknown name and for faulty settings."""
    if name not in _makers:
        _load(name)
    return _makers[name](options)


def guess(url: str) -> str:
    """Return the name of the protocol that an address is most likely for.

    That is the one with the longest fitting pattern. Packages of others are asked only if no protocol of this one fits,
    and an address that fits none is taken for OpenAI Realtime. Raises UsageError for a package that cannot be loaded.
    """
    return _best(url, BUILT_IN) or _best(url, (name for name in names() if name not in BUILT_IN)) or USUAL


def _best(url: str, candidates: Iterable[str]) -> str | None:
    fits = sorted((-fit, name) for name in candidates if (fit := describe(name).fit(url)))
    return fits[0][1] if fits else None


@cache
def _installed() -> Mapping[str, Sequence[EntryPoint]]:
    """Return the protocols of installed packages. A name of this package stays this package's."""
    by_name: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=GROUP):
        if entry_point.name not in BUILT_IN:
            by_name.setdefault(entry_point.name, []).append(entry_point)
    return by_name


def _load(name: str) -> None:
    """Import what makes the callers of a protocol. Raises UsageError."""
    if name in BUILT_IN:
        module, _, maker = (BUILT_IN[name].code or "").partition(":")
        _makers[name] = getattr(import_module(f"loadtest.protocols.{module}"), maker)
        return
    points = _installed().get(name)
    if points is None:
        raise UsageError(f"unknown protocol {name!r}; known: {', '.join(names())}")
    if len(points) > 1:
        listed = " and ".join(_package(point) for point in points)
        raise UsageError(f"the protocol {name!r} is in {listed}: remove all but one of them")
    where = _package(points[0])
    try:
        points[0].load()
    except Exception as error:  # the code is not ours: it may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"the protocol {name!r} of {where} cannot be loaded: {reason}; update or remove it") from error
    if name not in _makers:
        raise UsageError(f"{where} has an entry point for the protocol {name!r}, but does not register it; update it")


def _package(point: EntryPoint) -> str:
    return "an installed package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
