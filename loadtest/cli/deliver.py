"""`voiceprobe deliver`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

EXAMPLE: Final = "Example: voiceprobe deliver ./spool --sidecar http://127.0.0.1:4318"


def deliver(
    folder: Annotated[Path, typer.Argument(help="the folder that workers were given with --spool")],
    sidecar: Annotated[str, typer.Option(help="OTLP/HTTP address of the sidecar")] = "http://127.0.0.1:4318",
) -> None:
    """Bring what the workers of a swarm kept on disk to a sidecar, the last turns of killed ones among it."""
    from loadtest.run.deliver import deliver as carry_out

    Console().print(carry_out(folder, sidecar), soft_wrap=True)
