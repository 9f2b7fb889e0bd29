"""The sidecar: one process that receives OTLP, owns the store, answers questions and serves Prometheus metrics.

To read in this order: `app` (the command), `server` (its components and its end), `otlp` (the receivers, decoding),
`privacy`, `ingest` (the path of a request), `storing` (a group of requests), `service_turns` with `adapters` (turns of
frameworks), `queries`, `pages` with `counts`, `rollouts`, `forwarding`, `scraping`; `settings` with `configuration`,
and the limits of the sockets last. gRPC's core reads its setting when it is first imported, which is after this.
"""

import os

# Otherwise it logs what clients send that is not gRPC.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
