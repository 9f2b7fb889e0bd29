"""The callers as Locust users: the only package that imports locust.

Read `users` first, then `worker` (one process), `planner` (who speaks which clip), `open_calls` (calls by a
schedule) and `coordinator` (several processes). `paired_callers` is a process of its own for `voiceprobe pair`.
"""
