"""The limit on open files is raised as far as possible; if that is not enough, the error says what to do."""

import errno
import json
import subprocess
import sys

from loadtest.engine.descriptors import Descriptors

# In a separate process: an unprivileged user cannot raise a hard limit that was lowered.
_PROGRAM = """
import json, resource
from loadtest.engine.descriptors import Descriptors
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
hard = 900 if hard == resource.RLIM_INFINITY else min(hard, 900)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
descriptors = Descriptors()
descriptors.allow_many()
print(json.dumps([hard, resource.getrlimit(resource.RLIMIT_NOFILE)[0], descriptors.limit]))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    output = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True, text=True).stdout
    hard, soft, limit = json.loads(output)
    assert soft == limit == hard > 300


def test_a_shortage_is_distinguished_from_an_endpoint_that_does_not_answer() -> None:
    descriptors = Descriptors()
    descriptors.limit = 1024
    full = descriptors.shortage(OSError(errno.EMFILE, "Too many open files"))
    assert full is not None
    assert full.startswith("this process has used up the 1,024 files it may open; raise the limit (ulimit -n)")
    assert "this machine" in (descriptors.shortage(OSError(errno.ENFILE, "")) or "")
    assert descriptors.shortage(ConnectionRefusedError(errno.ECONNREFUSED, "")) is None
