"""`python -m docs_build FOLDER`: writes the generated pages to a folder, for reading them without a site."""

import sys
from pathlib import Path

from docs_build.pages import PAGES


def main() -> None:
    """Write every generated page below the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m docs_build FOLDER")
    for place, make in PAGES.items():
        file = Path(sys.argv[1], place)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
