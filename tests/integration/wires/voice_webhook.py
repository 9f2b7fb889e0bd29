"""A voice webhook in a thread of the test: it authenticates requests by Twilio's rule, and answers as the test says."""

import base64
import contextlib
import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl


@dataclass
class Answer:
    """The webhook's answer: bytes as they go on the wire, after the head if there is one."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/xml"),)
    promised_bytes: int | None = None  # of the body, if more than it has
    silent: bool = False  # nothing is ever answered
    after_s: float = 0.0


@dataclass
class Asked:
    """A request that arrived."""

    form: dict[str, str]
    headers: dict[str, str]


def twiml(url: str, **parameters: str) -> Answer:
    inside = "".join(f'<Parameter name="{name}" value="{value}"/>' for name, value in parameters.items())
    return Answer(f'<Response><Connect><Stream url="{url}">{inside}</Stream></Connect></Response>'.encode())


@dataclass
class VoiceWebhook:
    """A running webhook. Without the right signature for `token` it answers 403."""

    url: str
    answer: Answer
    token: str | None
    asked: list[Asked] = field(default_factory=list[Asked])
    answered_perf_ns: list[int] = field(default_factory=list[int])  # when each answer began
    over: threading.Event = field(default_factory=threading.Event)

    def is_genuine(self, asked: Asked) -> bool:
        """Twilio's rule: the URL, then each field's name and value in the order of the names, by HMAC-SHA1."""
        if self.token is None:
            return True
        mac = hmac.new(self.token.encode(), self.url.encode(), hashlib.sha1)
        for name in sorted(asked.form):
            mac.update(name.encode())
            mac.update(asked.form[name].encode())
        return asked.headers.get("x-twilio-signature") == base64.b64encode(mac.digest()).decode()


@contextlib.contextmanager
def voice_webhook(answer: Answer, token: str | None = None) -> Iterator[VoiceWebhook]:
    """Run a webhook until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's own name
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
            asked = Asked(form, {name.lower(): value for name, value in self.headers.items()})
            hook.asked.append(asked)
            reply = hook.answer if hook.is_genuine(asked) else Answer(b"wrong signature", 403)
            if hook.over.wait(60 if reply.silent else reply.after_s):
                return
            hook.answered_perf_ns.append(time.perf_counter_ns())
            self.send_response(reply.status)
            size = len(reply.body) if reply.promised_bytes is None else reply.promised_bytes
            for name, value in (*reply.headers, ("Content-Length", str(size))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.promised_bytes is not None:
                self.wfile.flush()
                hook.over.wait(60)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook = VoiceWebhook(f"http://127.0.0.1:{server.server_address[1]}/voice?tenant=a%20b", answer, token)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.over.set()
        server.shutdown()
        server.server_close()
        thread.join(60)
