"""The benchmark of the load generator: what it costs, and how exact its pacing and time stamps are.

Callers and endpoints are processes of their own, started as `python -m loadtest.bench.…`; nothing here imports them.
"""
