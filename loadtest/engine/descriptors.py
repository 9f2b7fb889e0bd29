"""How many connections this process may hold open, which a system keeps low unless it is asked."""

import errno

try:
    import resource
except ImportError:  # Windows: sockets are not counted against such a limit
    resource = None


class Descriptors:
    """The limit on this process's open files. `limit` is None where there is none, or where it is not known."""

    def __init__(self) -> None:
        self.limit: int | None = None

    def allow_many(self) -> None:
        """Raise the limit as far as this user may."""
        if resource is None:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):  # macOS states a hard limit that it does not grant
                pass
        self.limit = None if soft == resource.RLIM_INFINITY else soft

    def shortage(self, error: OSError) -> str | None:
        """What to say of a connection that could not be opened for want of descriptors; None for any other error."""
        if error.errno == errno.EMFILE:
            allowed = "all files" if self.limit is None else f"the {self.limit:,} files"
            return f"this process has used up {allowed} it may open; raise the limit (ulimit -n) or use more processes"
        if error.errno == errno.ENFILE:
            return "this machine has run out of open files; raise its limit (fs.file-max) or use more machines"
        return None
