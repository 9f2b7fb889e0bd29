"""Generates the page of exit codes."""

from docs_build.markdown import cell, code, page, table
from loadtest.exit_codes import MEANINGS, ExitCode


def exit_codes_page() -> str:
    """Return the page with every exit code and its meaning."""
    rows = [(code(str(int(each))), code(each.name), cell(MEANINGS[each])) for each in ExitCode]
    return page(
        "Exit codes",
        "`voiceprobe run`, `demo` and `capacity` end with one of these codes. A pipeline can therefore distinguish a "
        "slow service (3) from a load generator that could not measure it (4). The help of `calibrate` describes the "
        "meaning of its codes. The commands of `voiceprobe store` end with 0, 2 or 7.",
        table(("Exit code", "Name", "Meaning"), rows),
    )
