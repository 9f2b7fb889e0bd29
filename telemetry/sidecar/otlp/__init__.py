"""Receives OTLP over HTTP and gRPC, and decodes what came into the tables of the store.

Read first how a request comes in: `http` and `grpc` (with `access`, `body`, `compression`, `receive_slots`,
`grpc_health`), then `ingest` with `backlog` and `suspects`, which pass it to the store process, and `responses`. Then
how it is decoded: `tables` for a group of requests, `opening` and `framing` for one of them, `spans` and `points` for
its items, `attributes` for their values; `json_requests` and `readable` for what is not as the parsers take it.
"""
