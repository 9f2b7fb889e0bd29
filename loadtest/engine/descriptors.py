"""The limit on this process's open files, which bounds its connections and is low by default."""

import errno

try:
    import resource
except ImportError:  # Windows: sockets are not counted against such a limit
    resource = None


class Descriptors:
    """The limit on this process's open files. `limit` is None if unlimited or unknown."""

    def __init__(self) -> None:
        self.limit: int | None = None

    def allow_many(self) -> None:
        """Raise the limit as far as this user is allowed to."""
        if resource is None:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):  # macOS reports a hard limit that it does not grant
                pass
        self.limit = None if soft == resource.RLIM_INFINITY else soft

    def shortage(self, error: OSError) -> str | None:
        """Return the error sentence if the process or machine ran out of file descriptors, else None."""
        if error.errno == errno.EMFILE:
            allowed = "all files" if self.limit is None else f"the {self.limit:,} files"
            return f"this process has used up {allowed} it may open; raise the limit (ulimit -n) or use more processes"
        if error.errno == errno.ENFILE:
            return "this machine has run out of open files; raise its limit (fs.file-max) or use more machines"
        return None
