"""Audio and texts of calls, kept next to a store if a run requests it, for as long as it requests.

Read `kept_call` (the recording of a call, and the names of its files), then `files` (finding it, and words in it),
`excerpt` (what a page plays) and `expiry`.
"""
