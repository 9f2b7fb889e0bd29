"""Locust is imported here, without its patches of this process, in which other tests run."""

import pytest

with pytest.MonkeyPatch.context() as patched:
    patched.setenv("LOCUST_SKIP_MONKEY_PATCH", "1")
    import locust  # noqa: F401
