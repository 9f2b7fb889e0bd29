"""Writes the generated pages to a folder, to read them without the site: `python -m docs_build FOLDER`."""

import sys
from pathlib import Path

from docs_build.pages import PAGES


def main() -> None:
    """Write every generated page to the given folder."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs_build FOLDER")
    for place, make in PAGES.items():
        file = Path(sys.argv[1], place)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
