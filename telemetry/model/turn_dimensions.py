"""Dimensions of a turn: the one table of what turns are narrowed, grouped, compared and explained by. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

# filter: of any question to the store. choice: offered by the selectors of a page. objective: an objective can be about
# one of its values. slice: of a rollout or of two runs. explanation: may explain the slow turns.
DimensionUse = Literal["filter", "choice", "objective", "slice", "explanation"]


@dataclass(frozen=True, slots=True)
class TurnDimension:
    """A dimension by its `name` for people, links and files, and by the turn's field that holds its value, which is
    also the store's column; None where the value is made of several fields."""

    name: str
    field: str | None
    uses: frozenset[DimensionUse]


def _dimension(name: str, field: str | None, *uses: DimensionUse) -> TurnDimension:
    return TurnDimension(name, field, frozenset(uses))


# In the order in which people read them.
DIMENSIONS: Final = (
    _dimension("cohort", "cohort", "filter", "choice", "objective", "explanation"),
    _dimension("target", "target", "filter", "slice"),
    _dimension("domain", "domain", "slice", "explanation"),
    _dimension("length", "length_class", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("noise", "noise_profile", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("channel", "channel_profile", "filter", "objective", "slice", "explanation"),
    _dimension("route", "route", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("phase", "phase", "filter", "choice"),
    _dimension("cache", None, "explanation"),
    _dimension("model", "model", "explanation"),
    _dimension("region", "region", "slice", "explanation"),
    _dimension("utterance", "utterance_id", "explanation"),
    _dimension("worker", None, "explanation"),
)


def fields_for(*uses: DimensionUse) -> tuple[str, ...]:
    """The fields of a turn whose dimensions have all of these uses."""
    return tuple(each.field for each in DIMENSIONS if each.field is not None and each.uses.issuperset(uses))


FILTERED: Final = fields_for("filter")
OF_OBJECTIVES: Final = fields_for("objective")
SLICES: Final = fields_for("slice")
# The field of each dimension that has one, by the name for people; and the other way.
FIELD_OF: Final[dict[str, str]] = {each.name: each.field for each in DIMENSIONS if each.field is not None}
NAME_OF: Final[dict[str, str]] = {field: name for name, field in FIELD_OF.items()}
