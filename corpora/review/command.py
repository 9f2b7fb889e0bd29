"""`voiceprobe corpus review`: serve the page on this machine until Ctrl-C."""

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
from corpora.review.bounds_file import Review

EPILOG = "Example: voiceprobe corpus review ./my-corpus"
_LOOPBACK = "127.0.0.1"


def review(
    folder: Annotated[Path, typer.Argument(help="A corpus folder.")],
    everything: Annotated[bool, typer.Option("--all", help="List every utterance, not only doubtful ones.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes one that is free.")] = 0,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser; print one JSON line.")] = False,
) -> None:
    """Look at doubtful speech bounds in the browser: hear them, move them, save them into the manifest."""
    import uvicorn

    from corpora.review.app import build_app

    looked_at = Review(folder, everything)
    doubtful = len(looked_at.listed())
    if not doubtful:
        sys.stdout.write(f"{folder}: no utterance has doubtful bounds; --all lists them all.\n")
        return
    listening = _listen(port)
    url = f"http://{_LOOPBACK}:{listening.getsockname()[1]}/"
    if headless:
        sys.stdout.write(json.dumps({"ready": True, "url": url, "listed": doubtful}) + "\n")
    else:
        sys.stdout.write(f"{doubtful} utterances to look at: {url} (Ctrl-C ends)\n")
        webbrowser.open(url)
    sys.stdout.flush()
    app = build_app(looked_at, secrets.token_urlsafe(32))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    left = sum(bool(row.reasons) for row in looked_at.listed())
    sys.stdout.write(f"{left} utterances are still doubtful.\n")


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen()  # who reads the address may come at once
    except OSError as error:
        listening.close()
        raise CorpusError(f"--port {port} cannot be listened on ({error.strerror}); take another or 0.") from error
    return listening
