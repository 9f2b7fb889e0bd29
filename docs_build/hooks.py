"""What mkdocs calls while it builds the site: adds the generated pages to those that are written by hand."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

# mkdocs loads this file by its path: the checkout is not on the path of the `mkdocs` script.
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
    # The one picture stands with the dashboard that it shows.
    files.append(
        File.generated(config, "images/dashboard.png", content=(ROOT / "dashboard/screenshot.png").read_bytes())
    )
    return files
