"""The style of all pages: `style.css` with the colors and the parts that pages share, then every sheet of `styles/`.

A page's own rules stand in a sheet of its own, `styles/NAME.css`.
"""

from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent


@cache
def stylesheet() -> str:
    """All sheets as one `<style>` element, those of `styles/` in the order of their names."""
    sheets = [_FOLDER / "style.css", *sorted((_FOLDER / "styles").glob("*.css"))]
    return f"<style>{''.join(sheet.read_text(encoding='utf-8') for sheet in sheets)}</style>"
