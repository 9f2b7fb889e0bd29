"""A turn and what becomes of it, from the span to the verdict. Imports nothing of the other packages.

Read `model` first (the turn and its metrics), then `objectives` (judging) and `rollout` (the gate), `export` (from
a process to a sidecar), `sidecar` (receiving) and `store` (the file, and the questions to it).
"""
