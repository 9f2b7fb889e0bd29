"""Records what Pipecat's types of xAI's voice API make of our messages: `python record_xai.py MESSAGES.json OUT.json`.

It runs where pipecat-ai is installed. MESSAGES.json comes from
`python -m tests.unit.loadtest.protocols.test_protocols_dialects MESSAGES.json`, in this project's environment; it also
holds the handmade session of the fixtures, each message of which Pipecat must know.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

from pipecat.services.xai.realtime import events


def main(messages: str, out: str) -> None:
    given = json.loads(Path(messages).read_text())
    update = events.SessionUpdateEvent.model_validate_json(given["session.update"])
    understood = update.session.model_dump(mode="json", exclude_none=True)
    kinds = [type(events.parse_server_event(message)).__name__ for message in given["server"]]
    note = {"peer": "pipecat-ai", "version": importlib.metadata.version("pipecat-ai")}
    result = {"recorded": note, "given": given["session.update"], "understood": understood, "server": kinds}
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
