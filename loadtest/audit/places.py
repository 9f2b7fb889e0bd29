"""Everything that the audit can reach: files, tables, pages, answers, keys and values of a cache, command lines."""

import base64
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import httpx
import psutil
import redis

from loadtest.audit.search import Needle, Search

# Larger files are read in pieces that overlap by more than any needle is long.
_PIECE_BYTES: Final = 16 << 20
_OVERLAP_BYTES: Final = 64 << 10
_PAGES: Final = ("/metrics", "/v1/state", "/healthz")
_OPENMETRICS: Final = {"accept": "application/openmetrics-text"}
# The beginnings of files that hold audio: FLAC, WAV, Ogg, MP3 with a tag.
_AUDIO: Final = (b"fLaC", b"RIFF", b"OggS", b"ID3")
# Questions without parameters, or whose parameters are all optional.
_QUESTIONS: Final = ("runs", "summary", "page", "slowest", "turns", "calls", "stage_budget")


@dataclass(frozen=True, slots=True, order=True)
class Leak:
    """Personal data of an utterance, or a part of its words, in a place where they must not be."""

    place: str
    source: str
    form: str


class Places:
    """Searches place by place, and remembers what was found. `searched` counts the places of each kind."""

    def __init__(self, search: Search, *, there_before: Iterable[Path] = ()) -> None:
        """Audio in files that were `there_before` is of earlier runs, which were asked to keep it."""
        self._search = search
        self._there_before = frozenset(there_before)
        self._seen: dict[Path, tuple[int, int]] = {}
        self._seen_tables: dict[Path, tuple[int, int]] = {}
        self.leaks: set[Leak] = set()
        self.searched: dict[str, int] = {}

    def folder(self, folder: Path, *, tables: bool = True) -> None:
        """Search every file below a folder, its name, and with `tables` the rows of Parquet files and of databases that
        nobody owns, whose bytes are compressed. Files that are gone meanwhile, and those that have not changed
        since they were searched, are left out."""
        for path in sorted(folder.rglob("*")):
            with contextlib.suppress(OSError):
                if not path.is_file():
                    continue
                if self._is_new(path, self._seen):
                    self._file(path, str(path.relative_to(folder)))
                if tables and path.suffix in (".parquet", ".duckdb") and self._is_new(path, self._seen_tables):
                    self._tables(path, str(path.relative_to(folder)))

    def pages(self, url: str) -> None:
        """Search what a sidecar shows: its pages, metrics in both formats, and the answers to its questions.

        Raises httpx.HTTPError when it does not answer: what is not seen is not searched.
        """
        with httpx.Client(base_url=url, timeout=30.0) as client:
            for page in _PAGES:
                self._look("page", f"GET {page}", _content(client.get(page)))
            self._look("page", "GET /metrics (OpenMetrics)", _content(client.get("/metrics", headers=_OPENMETRICS)))
            for name in _QUESTIONS:
                self._look("answer", f"POST /v1/query/{name}", _content(client.post(f"/v1/query/{name}", json={})))

    def redis(self, url: str) -> None:
        """Search every key and value of a Redis server."""
        client = redis.Redis.from_url(url, socket_timeout=10.0)
        with contextlib.closing(client):
            for key in client.scan_iter(count=1000):
                self._look("cache entry", f"Redis key {_shown(key)}", key)
                self._look("cache entry", f"Redis value of {_shown(key)}", _value(client, key))

    def processes(self, pids: Iterable[int]) -> None:
        """Search the command lines and the environments of processes and of those that they started."""
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                for member in (process, *process.children(recursive=True)):
                    words = [*member.cmdline(), *(f"{name}={value}" for name, value in member.environ().items())]
                    self._look("process", f"command line or environment of {member.name()}", "\n".join(words).encode())

    def _is_new(self, path: Path, seen: dict[Path, tuple[int, int]]) -> bool:
        status = path.stat()
        state = (status.st_size, status.st_mtime_ns)
        if seen.get(path) == state:
            return False
        seen[path] = state
        return True

    def _file(self, path: Path, name: str) -> None:
        self._look("file name", f"file name {name}", name.encode())
        with path.open("rb") as file:
            is_audio = file.read(4).startswith(_AUDIO)
        if is_audio and path not in self._there_before:
            self.leaks.add(Leak(f"file {name}", "what a caller said or heard", "audio"))
        for piece in _pieces(path):
            self._look("file", f"file {name}", piece)

    def _tables(self, path: Path, name: str) -> None:
        """Search the texts of a Parquet file or of the tables of a database, as DuckDB reads them."""
        try:
            if path.suffix == ".parquet":
                with duckdb.connect() as database:
                    self._rows(database.execute("SELECT * FROM read_parquet(?)", [str(path)]), f"table {name}")
                return
            with duckdb.connect(str(path), read_only=True) as database:
                for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    rows = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - as the database names it
                    self._rows(rows, f"table {table} of {name}")
        except duckdb.Error:
            return  # half written, or in use; its bytes were searched

    def _rows(self, result: duckdb.DuckDBPyConnection, place: str) -> None:
        while batch := result.fetchmany(2000):
            self._look("table", place, "\n".join(map(_row_text, batch)).encode("utf-8", "replace"))

    def _look(self, kind: str, place: str, octets: bytes) -> None:
        self.searched[kind] = self.searched.get(kind, 0) + 1
        needles: set[Needle] = self._search.needles_in(octets)
        self.leaks |= {Leak(place, needle.source, needle.form) for needle in needles}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        kept = b""
        while piece := file.read(_PIECE_BYTES):
            yield kept + piece
            kept = piece[-_OVERLAP_BYTES:]


def _row_text(row: tuple[object, ...]) -> str:
    return "\t".join(map(_text, row))


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return f"{value.decode('utf-8', 'replace')} {base64.b64encode(value).decode()}"
    if isinstance(value, dict):
        return " ".join(f"{_text(key)}={_text(entry)}" for key, entry in value.items() if entry is not None)
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))
    return str(value)


def _content(answer: httpx.Response) -> bytes:
    answer.raise_for_status()
    return answer.content + b"\n" + str(answer.headers).encode()


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return text if len(text) <= 80 else f"{text[:77]}..."


def _value(client: "redis.Redis", key: bytes) -> bytes:
    """A value of any type, as Redis itself writes it; what is text in it is text there."""
    asked: Any = client  # the answers of its commands have no exact types
    kind = asked.type(key)
    if kind == b"string":
        return asked.get(key) or b""
    if kind == b"hash":
        return b"\n".join(part for pair in asked.hgetall(key).items() for part in pair)
    return asked.dump(key) or b""
