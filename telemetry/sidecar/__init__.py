"""The sidecar; gRPC's core reads its setting when it is first imported, which is after this."""

import os

# Otherwise it logs what any client sends that is not gRPC.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
