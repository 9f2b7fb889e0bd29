"""The generated pages of the documentation, by their path in `docs/`.

Each is a page in `templates`, written by hand, with marks such as `{{ docs_build.tables.exit_codes }}`: the name of a
function that makes a table from the code, or of a constant of the code, optionally with its format behind a `|`.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from docs_build.scenario import scenario_schema

TEMPLATES: Final = Path(__file__).with_name("templates")
_MARK: Final = re.compile(r"\{\{ ([\w.]+)(?:\|(\S+))? \}\}")


def filled(template: Path) -> str:
    """Return a page with the value of each of its marks."""
    return _MARK.sub(lambda mark: _shown(mark[1], mark[2] or ""), template.read_text(encoding="utf-8"))


def _shown(name: str, form: str) -> str:
    value = resolve_name(name)
    if callable(value):
        return str(value()).strip()
    if form in ("MiB", "KiB"):
        return f"{value >> (20 if form == 'MiB' else 10)} {form}"
    return f"{value / 60:g} minutes" if form == "minutes" else format(value, form)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    **{file.relative_to(TEMPLATES).as_posix(): partial(filled, file) for file in sorted(TEMPLATES.rglob("*.md"))},
    "reference/scenario-file.schema.json": scenario_schema,
}
