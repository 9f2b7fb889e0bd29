"""The page of exit codes."""

from docs_build.markdown import cell, code, page, table
from loadtest.exit_codes import MEANINGS, ExitCode


def exit_codes_page() -> str:
    """Every exit code with its meaning."""
    rows = [(code(str(int(each))), code(each.name), cell(MEANINGS[each])) for each in ExitCode]
    return page(
        "Exit codes",
        "`voiceprobe run`, `demo` and `capacity` end with one of these. A pipeline can therefore tell a slow service "
        "(3) from a load generator that could not measure it (4). What `calibrate` means by its codes is in its help.",
        table(("Exit code", "Name", "Meaning"), rows),
    )
