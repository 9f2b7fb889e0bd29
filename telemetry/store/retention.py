"""Which segments are too old or too many to be kept: pure.

Age counts from when rows were stored, not from what their senders say of themselves: a wrong clock elsewhere neither
keeps rows for ever nor takes new ones away. Whole segments go, the oldest first, never the newest of a table.
"""

from dataclasses import dataclass
from typing import Final

from telemetry.store.manifest import TABLES, Segment, StoreManifest


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows stored less than `age_ns` ago are kept, as long as segments and roll-ups together have at most `size_bytes`.

    None is no limit. Files that readers still need come on top of the size.
    """

    age_ns: int | None = None
    size_bytes: int | None = None


KEEP_ALL: Final = Keep()


def to_remove(manifest: StoreManifest, keep: Keep, now_unix_ns: int) -> tuple[Segment, ...]:
    """The segments that must go, oldest first."""
    newest = {segments[-1] for table in TABLES if (segments := _by_age(manifest.of(table)))}
    size_bytes = sum(segment.kept_bytes for segment in manifest.segments)
    chosen: list[Segment] = []
    for segment in _by_age(manifest.segments):
        if segment in newest:
            continue
        too_old = keep.age_ns is not None and segment.stored_unix_ns < now_unix_ns - keep.age_ns
        too_many = keep.size_bytes is not None and size_bytes > keep.size_bytes
        if too_old or too_many:
            chosen.append(segment)
            size_bytes -= segment.kept_bytes
    return tuple(chosen)


def _by_age(segments: tuple[Segment, ...]) -> list[Segment]:
    return sorted(segments, key=lambda segment: segment.stored_unix_ns)
