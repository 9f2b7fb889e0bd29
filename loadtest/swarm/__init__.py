"""The callers as Locust users: the only package that imports locust.

Read `users` first, then `worker` (one process), `planner` (who speaks which clip), `open_calls` (calls by a
schedule), `starting` (the start of all processes, and the phases) and `coordinator` (several processes).
`paired_callers` is a process of its own for `voiceprobe pair`.
"""
