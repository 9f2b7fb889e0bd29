"""The file of `--json`: whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write an object to a file, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(file)
