"""`voiceprobe corpus review`: serves the review page on this machine until Ctrl-C."""

import json
import secrets
import socket
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from corpora.manifest.errors import CorpusError
from corpora.manifest.validation import numbered
from corpora.review.bounds_file import Review

EPILOG = "Example: voiceprobe corpus review ./my-corpus"
_LOOPBACK = "127.0.0.1"


def review(
    folder: Annotated[Path, typer.Argument(help="a corpus folder")],
    everything: Annotated[bool, typer.Option("--all", help="list all utterances, not only doubtful ones")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="port to listen on; 0 uses a free one")] = 0,
    headless: Annotated[bool, typer.Option("--headless", help="do not open a browser; print one JSON line")] = False,
) -> None:
    """Review doubtful speech bounds in the browser: play, move and save them in the manifest."""
    import uvicorn

    from corpora.review.app import build_app

    review_state = Review(folder, everything)
    doubtful = len(review_state.listed())
    if not doubtful:
        sys.stdout.write(f"{folder}: no utterance has doubtful bounds; --all lists all utterances.\n")
        return
    listening = _listen(port)
    url = f"http://{_LOOPBACK}:{listening.getsockname()[1]}/"
    if headless:
        sys.stdout.write(json.dumps({"ready": True, "url": url, "listed": doubtful}) + "\n")
    else:
        sys.stdout.write(f"{numbered(doubtful, 'utterance')} to review: {url} (Ctrl-C stops)\n")
        webbrowser.open(url)
    sys.stdout.flush()
    app = build_app(review_state, secrets.token_urlsafe(32))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    left = sum(bool(row.reasons) for row in review_state.listed())
    sys.stdout.write(f"{numbered(left, 'utterance')} still doubtful.\n")


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen()  # before the address is printed, because a reader may connect immediately
    except OSError as error:
        listening.close()
        raise CorpusError(f"--port {port} cannot be opened ({error.strerror}); use another port or 0.") from error
    return listening
