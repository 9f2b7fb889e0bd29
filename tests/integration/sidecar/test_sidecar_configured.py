"""A sidecar that is configured by a file, the environment and a flag together, tables included."""

import json
from contextlib import closing
from pathlib import Path

from tests import asking
from tests.fixtures_forwarding import UpstreamServer, spans_request
from tests.fixtures_sidecar import running_sidecar
from tests.integration.waiting import wait_until

PROTOBUF = {"content-type": "application/x-protobuf", "authorization": "Bearer s3cret-of-a-file"}
FILE = """
host = "0.0.0.0"
token_file = "token"
keep_days = 2
log_level = "error"

[[forward]]
name = "up"
url = {url}
text = "redact"
"""


def test_file_environment_and_flags_work_together(tmp_path: Path) -> None:
    token, file, log = tmp_path / "token", tmp_path / "sidecar.toml", tmp_path / "log"
    token.write_text("s3cret-of-a-file\n")
    token.chmod(0o600)
    with closing(UpstreamServer()) as upstream, log.open("w") as stderr:
        file.write_text(FILE.format(url=json.dumps(upstream.url)))
        variables = {"VOICEPROBE_SIDECAR_CONFIG": str(file), "VOICEPROBE_SIDECAR_LOG_LEVEL": "info"}
        arguments = ("--host", "127.0.0.1")
        with running_sidecar(tmp_path / "store", *arguments, variables=variables, stderr=stderr.fileno()) as sidecar:
            assert sidecar.http.startswith("http://127.0.0.1:")
            assert asking.get(f"{sidecar.http}/metrics").status_code == 401
            posted = asking.post(f"{sidecar.http}/v1/traces", content=spans_request(0, 5), headers=PROTOBUF)
            assert posted.status_code == 200
            wait_until(lambda: len(upstream.span_ids()) == 5)
            assert sidecar.terminate() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines if "event" in line] == ["ready", "stopping", "stopped"]
    assert "s3cret-of-a-file" not in log.read_text()
