"""A picture as SVG text, for a file that is opened without a network and without scripts.

Colors are those of the page that holds it (`PAGE`), so that light, dark and paper are the style sheet's business.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from telemetry.charts.drawing import Palette, Picture, Row, page_palette

PAGE: Final[Palette] = page_palette()
# Wide for desks and paper, narrow for phones: a wide picture that is shrunk to their width could not be read.
_WIDTHS: Final = {"wide": 820, "narrow": 350}
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', sans-serif"
# A mark with a description: browsers show a title to a pointer, an attribute to none.
_DESCRIBED: Final = re.compile(r'<path aria-label="([^"]*)"([^>]*?)/?>(?:</path>)?')
_ROLES: Final = re.compile(
    r' (?:role="graphics-[^"]*"|aria-roledescription="[^"]*"|aria-hidden="true"|aria-label="[^"]*")'
)
_SVG: Final = re.compile(r"<svg [^>]*(viewBox=\"[^\"]*\")>")


def both_sizes(draw: Sequence[Picture] | Picture) -> str:
    """The picture for wide and for narrow screens, of which a style sheet shows one. Where the narrow one differs by
    more than its width, the two are given."""
    wide, narrow = (draw, draw) if isinstance(draw, Picture) else draw
    return svg(wide, "wide") + svg(narrow, "narrow")


def svg(picture: Picture, size: str = "wide") -> str:
    """The SVG element, as wide as its size says, in UTC; the sentence of the picture is its label."""
    spec: Row = {
        **_in_utc(picture.spec),
        "data": {"name": "rows", "values": list(picture.rows)},
        "width": _WIDTHS[size],
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
    marks = {**spec["config"].get("mark", {}), "aria": True}
    spec["config"] = {**spec["config"], "font": _FONT, "mark": marks, "aria": True}
    import vl_convert  # a program of 80 MB, which only files with pictures are to load

    drawn: str = vl_convert.vegalite_to_svg(spec)
    titled = _DESCRIBED.sub(r"<path\2><title>\1</title></path>", drawn)
    label = escape(picture.alt)
    return _SVG.sub(
        lambda found: f'<svg class="{size}" role="img" aria-label="{label}" {found[1]} width="{_WIDTHS[size]}">',
        _ROLES.sub("", titled),
        count=1,
    )


def _in_utc(part: Any) -> Any:
    """The specification with the moments of its axes and labels in UTC instead of the zone of the machine."""
    if isinstance(part, Mapping):
        made: Row = {name: _in_utc(value) for name, value in part.items()}
        if made.get("type") == "temporal" and "bandPosition" not in made:
            made["scale"] = {**made.get("scale", {}), "type": "utc"}
        return made
    if isinstance(part, str):
        return part.replace("timeFormat(", "utcFormat(")
    return [_in_utc(each) for each in part] if isinstance(part, list) else part
