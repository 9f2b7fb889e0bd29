"""Keeps pandas out of a process that does not need it.

If pandas is installed, pyarrow imports it for the first value that it converts from or to Python: 0.15 s of CPU and 40
MB in each process. Only a process's own entry point may decide that nothing in it needs pandas.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_REFUSED: Final = "pandas"


class _Refusing(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: object = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Raise for pandas; leave anything else to the other finders."""
        if fullname == _REFUSED:
            raise ModuleNotFoundError(f"No module named {_REFUSED!r}: this process does without it", name=_REFUSED)
        return None


def refuse_pandas() -> None:
    """Make every further import of pandas in this process fail, as if it were not installed."""
    sys.meta_path.insert(0, _Refusing())
