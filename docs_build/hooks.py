"""The mkdocs hook that adds the generated pages to the handwritten ones."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

# mkdocs loads this file by its path, without the checkout on the Python path.
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add every generated page."""
    from mkdocs.structure.files import File

    from docs_build.pages import PAGES

    for place, make in PAGES.items():
        files.append(File.generated(config, place, content=make()))
    # The screenshot is stored with the dashboard that it shows.
    files.append(
        File.generated(config, "images/dashboard.png", content=(ROOT / "dashboard/screenshot.png").read_bytes())
    )
    return files
