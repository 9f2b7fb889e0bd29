"""The settings of a run, each stated once and checked as a whole.

Read `sections` first (every setting), then `settings` (all of them as one value), `options` (the flags), `file` and
`phases` (the scenario file), `behavior` and `arrivals` (callers and load), and `document` (what workers are sent).
"""
