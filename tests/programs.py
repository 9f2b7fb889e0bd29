"""System programs that tests drive: where each is, or why it is not there, in the words of the wrapper."""

import os
import shutil

import pytest

# What `./voiceprobe test` says of those that it could not install.
REASON_VARIABLE = "VOICEPROBE_MISSING_PROGRAMS"


def needed(*names: str) -> str:
    """The path of the program, the first of these that there is. Fails the test if all are missing."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        reason = os.environ.get(REASON_VARIABLE) or "it is not on PATH; ./voiceprobe test says how to install it"
        pytest.fail(f"the program {names[0]} is needed: {reason}", pytrace=False)
    return path
