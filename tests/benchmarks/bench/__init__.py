"""The benchmark of the load generator: what it costs, and how exact its pacing and time stamps are.

    python -m tests.benchmarks.bench --short

`command` has the flags. Callers and endpoints are processes of their own, which nothing here imports.
"""
