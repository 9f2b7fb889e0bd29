"""What a sidecar imports before it is ready: no more than its processes use, since it is waited for."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "others"),
    [
        # Questions and rollouts are answered by processes of their own; pages are scraped where that is asked for.
        ("telemetry.sidecar.app", {"duckdb", "httpx", "pydantic"}),
        # Its front serves HTTP.
        (
            "telemetry.sidecar.store_process.connection, telemetry.sidecar.forwarding.forwarder",
            {"starlette", "asyncio", "httpx"},
        ),
    ],
    ids=["front", "store process"],
)
def test_a_process_imports_nothing_that_another_one_uses(module: str, others: set[str]) -> None:
    script = f"import sys, {module}; print(sorted(set({sorted(others)}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
