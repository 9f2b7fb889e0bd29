"""Generates the page of the sidecar's settings from the list that the sidecar itself reads."""

from typing import Final

from docs_build.markdown import cell, code, page, table
from telemetry.sidecar.configuration import TABLES
from telemetry.sidecar.settings import CONFIG, GROUPS, SETTINGS, SidecarSetting

INTRODUCTION: Final = f"""
Each setting of the sidecar is a key of its file (TOML), an environment variable and a flag. A flag takes precedence
over a variable, and a variable over the file, which {code(CONFIG.flag)} or {code(CONFIG.variable)} names. All faults
are reported at once; unknown keys and unknown variables with that prefix are faults. A path in the file starts from the
folder of the file.

```bash
voiceprobe sidecar --config sidecar.toml --print-config
```

prints every setting with where it comes from, secrets hidden, and starts nothing; its output can serve as a file.
[The sidecar in production](../how-to/production.md) shows a complete file.
"""
CREDENTIALS: Final = """
The token is not read from the command line, which every list of processes shows, nor from the file: it comes from the
environment or from a file of its own. Where both are given, the stronger of the two sources decides.
"""
# What the readers of these tables check is on their own pages.
TABLES_TEXT: Final = {
    "forward": "an OTLP endpoint that everything received goes on to; `text` says what happens to texts",
    "rollout": "a staged rollout that is evaluated: `plan_file`, and whether the next stage begins `on-request` (the "
    "default) or `on-promotion`; not read where plans are given by flag or variable",
    "scrape": "a model server whose Prometheus page is read",
}


def sidecar_settings_page() -> str:
    """Return the page with every setting of a sidecar."""
    parts: list[str] = []
    for group in GROUPS:
        settings = [each for each in (*SETTINGS, CONFIG) if each.group == group]
        rows = [_row(setting) for setting in settings]
        parts += [f"## {group.capitalize()}", table(("Key", "Variable", "Flag", "Default", "Meaning"), rows)]
        parts += [CREDENTIALS] if any(each.is_secret for each in settings) else []
    rows = [(code(f"[[{name}]]"), TABLES_TEXT[name]) for name in TABLES]
    parts += ["## Tables of the file", table(("Table", "Meaning"), rows)]
    return page("Settings of the sidecar", INTRODUCTION, *parts)


def _row(setting: SidecarSetting) -> tuple[str, str, str, str, str]:
    key = code(f"[[{setting.key}]]") if setting.is_repeated else code(setting.key) if setting.in_file else "–"
    flag = "–" if setting.is_secret else code(setting.flag)
    default = "–" if setting.default is None else code(str(setting.default).lower())
    bounds = f" ({setting.expected})" if setting.choices or setting.kind in ("integer", "number") else ""
    return key, code(setting.variable), flag, default, cell(setting.help + bounds)
