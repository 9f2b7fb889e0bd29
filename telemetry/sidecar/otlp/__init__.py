"""Receives OTLP over HTTP and gRPC, and decodes it into the tables of the store.

Read first how a request comes in: `http` and `grpc` (with `access`, `body`, `receive_slots`, `grpc_health`) and
`responses`. Then how it is decoded: `tables` for the rows of one request and the tables of several, `opening` for its
items, `spans` and `points` for one of them, `attributes` for its values; `json_requests` and `readable` for input that
parsers do not accept as it is.
"""
