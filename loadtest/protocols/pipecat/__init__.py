"""Pipecat: its WebSocket transport (protobuf) and its evaluation transport (JSON), both with RTVI 2."""
