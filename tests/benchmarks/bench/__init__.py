"""The benchmarks of developers: `python -m tests.benchmarks.bench` for the load generator, and `... bench store`.

Read `paired` (rounds, ratios, tables), `modes` (what callers and endpoint do), `generator` (one measurement, and all of
them), `figures` (from records to figures), `callers/` (processes of their own) and the programs in `c/`; then `store`
with `asking` and `sending`, and `pages`.
"""
