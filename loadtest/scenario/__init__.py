"""The settings of a run, checked as a whole.

Read `settings` first, then `options` (the flags), `file` (the keys of a scenario file), `behavior` and `arrivals`
(callers and load), and `document` (how settings travel between processes).
"""
