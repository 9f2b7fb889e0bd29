"""A picture as SVG text, for a file that is opened without a network and without scripts.

Colors are those of the page that holds it (`PAGE`), so that light, dark and paper are the style sheet's business.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from telemetry.charts.drawing import Palette, Picture, Row, page_palette
from telemetry.model.foreign_text import visible

PAGE: Final[Palette] = page_palette()
# Wide for desks and paper, narrow for phones: a wide picture that is shrunk to their width could not be read.
_WIDTHS: Final = {"wide": 820, "narrow": 350}
# A wide picture is drawn smaller on a tablet, and its type stays readable.
_LEAST_TYPE: Final = 12.5
_TYPES: Final = ("fontSize", "labelFontSize", "titleFontSize")
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', sans-serif"
# A mark with a description: browsers show a title to a pointer, an attribute to none.
_DESCRIBED: Final = re.compile(r'<path aria-label="([^"]*)"([^>]*?)/?>(?:</path>)?')
_ROLES: Final = re.compile(
    r' (?:role="graphics-[^"]*"|aria-roledescription="[^"]*"|aria-hidden="true"|aria-label="[^"]*")'
)
_SVG: Final = re.compile(r"<svg [^>]*(viewBox=\"[^\"]*\")>")


def both_sizes(picture: Picture) -> str:
    """The picture for wide and for narrow screens, of which a style sheet shows one."""
    return svg(picture, "wide") + svg(picture, "narrow")


def image(pictures: Sequence[Picture], kind: str, title: Sequence[str], columns: int = 1) -> bytes:
    """Pictures in columns as one file of a kind: `svg`, `png` or `pdf`. Each is headed by its sentence,
    all of them by the lines of the title; one without rows is left out. Raises ValueError for another kind."""
    import vl_convert

    config = {**pictures[0].spec["config"], "font": "sans-serif", "background": "white"}
    empty = {"layer": [{"mark": {"type": "text", "text": "no figures"}}], "height": 40}
    # A chart of nothing has no size.
    parts = [
        {
            **{
                name: part
                for name, part in _for_files(picture.spec, is_narrow=False).items()
                if name not in ("config", "padding")
            },
            "data": {"values": _shown(picture.rows)},
            "title": {"text": picture.alt, "fontSize": 12},
            "width": _WIDTHS["wide"] // (columns + 1) * 2 if columns > 1 else _WIDTHS["wide"],
        }
        for picture in [picture for picture in pictures if picture.rows] or [Picture([{}], empty, "")]
    ]
    spec = {
        "concat": parts,
        "columns": columns,
        "title": {"text": list(title), "fontSize": 13, "anchor": "start"},
        "resolve": {"scale": {"color": "independent", "shape": "independent", "strokeDash": "independent"}},
        "config": config,
    }
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    if kind == "png":
        return vl_convert.vegalite_to_png(spec, scale=1.5)
    if kind == "pdf":
        return vl_convert.vegalite_to_pdf(spec)
    raise ValueError(f"{kind!r} is no kind of a picture: svg, png or pdf")


def svg(picture: Picture, size: str = "wide") -> str:
    """The SVG element, as wide as its size says, in UTC; the sentence of the picture is its label."""
    spec: Row = {
        **_for_files(picture.spec, is_narrow=size == "narrow"),
        "data": {"name": "rows", "values": _shown(picture.rows)},
        "width": _WIDTHS[size],
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
    spec["config"] = {**spec["config"], "font": _FONT, "aria": True}
    import vl_convert  # a program of 80 MB, which only files with pictures are to load

    drawn: str = vl_convert.vegalite_to_svg(spec)
    titled = _DESCRIBED.sub(r"<path\2><title>\1</title></path>", drawn)
    label = escape(visible(picture.alt))
    return _SVG.sub(
        lambda match: f'<svg class="{size}" role="img" aria-label="{label}" {match[1]} width="{_WIDTHS[size]}">',
        _ROLES.sub("", titled),
        count=1,
    )


def _shown(rows: Sequence[Row]) -> list[Row]:
    """The rows with control characters written out, as the names in a specification are."""
    return [{name: visible(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows]


def _for_files(part: Any, *, is_narrow: bool) -> Any:
    """The specification with moments in UTC instead of the zone of the machine, with titles on described marks, and on
    narrow screens with legends of one column."""
    if isinstance(part, Mapping):
        made: Row = {name: _for_files(value, is_narrow=is_narrow) for name, value in part.items()}
        if made.get("type") == "temporal":
            made["scale"] = {**(made.get("scale") or {}), "type": "utc"}
        if isinstance(made.get("mark"), dict):
            # Only a description of its own is a title that people want to read.
            made["mark"]["aria"] = "description" in made.get("encoding", {})
        if is_narrow and "columns" in made:
            made["columns"] = 1
        return made | {name: max(made[name], _LEAST_TYPE) for name in _TYPES if name in made}
    if isinstance(part, str):
        return visible(part).replace("timeFormat(", "utcFormat(")
    return [_for_files(item, is_narrow=is_narrow) for item in part] if isinstance(part, list) else part
