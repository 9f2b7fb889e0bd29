"""Golden answers: what the store answered, and `/metrics` showed, before the store was replaced; equal ever after.

Read in this order: `calls` (the turns of three runs, from a seed), `exports` (the OTLP requests of a day, and when each
comes), `feeding` (how requests become a store: the only module that knows a writer), `asking` (every question, and an
answer as plain values), `comparing` (what counts as equal), `one_day` (a store of a thousand turns), `many` (one of
a million), `__main__` (writes the files or compares with them).
"""
