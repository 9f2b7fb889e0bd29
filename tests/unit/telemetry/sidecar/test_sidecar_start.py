"""Imports of a sidecar before it is ready: no more than it uses, since runs wait for it."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_sidecar_without_scraping_or_rollouts_imports_neither() -> None:
    others = ["httpx", "pandas"]
    script = f"import sys, telemetry.sidecar.app; print(sorted(set({others}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
