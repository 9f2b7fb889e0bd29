"""A turn and its processing, from the span to the verdict. Imports nothing from the other packages.

Read `model` first (the turn and its metrics), then `objectives` (judging), `rollout` (the gate), `comparison` (runs)
and `explanation` (why turns are slow); `export` (from a process to a sidecar), `sidecar` (receiving) and `store` (the
file, and the questions to it); `charts`. `sidecar_client` asks a sidecar, with the credentials of `client_tls`.
"""
